/**
 * Writes transactions into one table.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import { describeNftFailure, type Nft, nftErrors, nftFailureKind } from "../../../kernel/nft.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { NftTransaction, WrittenCounts } from "../../../netfilter/nft_objects.ts";
import type { Logger } from "../../../observe/log.ts";
import { cut } from "../../../text/quote.ts";
import { addWritten, type Progress } from "../../apply/proxier.ts";
import { isolateRefused, type Refusal, type Refused, type RefusedService } from "../../quarantine.ts";
import { type ServiceTransaction, tableLine } from "../store/full_sync.ts";

/** Dependencies of a {@linkcode TableWriter}. */
export interface TableWriterOptions {
  readonly nft: Nft;
  /** Family and name, e.g. `ip kproxy`. */
  readonly table: string;
  /** Elements of one transaction, about. */
  readonly elementsPerTransaction: number;
  readonly logger: Logger;
  readonly progress: Progress;
}

/**
 * Commands of one Service, as text and in numbers. Its objects are some times as large, and would stay while nft runs.
 */
interface PrintedService {
  readonly name: NamespacedName;
  /** Its lines, each ended by a newline. */
  readonly text: string;
  readonly lineCount: number;
  readonly weight: number;
  readonly counts: WrittenCounts;
}

/** Content to fill a table with. */
export interface TableFilling {
  /** Base objects to be written, beside the Services. */
  readonly base: NftTransaction;
  readonly services: Iterable<ServiceTransaction>;
  /** Comment of the table. */
  readonly comment: string;
  /** True: all that is to be written is less than one transaction may have. */
  readonly isSmall: boolean;
}

/** Two thirds of nft's time is its own, outside of the kernel: 100,000 elements take 1.1 s by two of them, 1.45 s by one. */
const PARALLEL_WRITES = 2;

/** Elements of the first Services that go in with the table: the API server and DNS, among them, wait for no others. */
const FIRST_ELEMENTS = 1_000;

/** Characters of a refused line that are reported. */
const SHOWN_LINE = 200;

/** Writer of a table. All methods throw {@linkcode ExecError} unless documented otherwise. */
export class TableWriter {
  readonly #options: TableWriterOptions;

  constructor(options: TableWriterOptions) {
    this.#options = options;
  }

  /** Writes the transaction at once. Nothing is left out: a refusal is an error. */
  async write(transaction: NftTransaction): Promise<void> {
    await this.run(textOf(transaction.lines(this.#options.table)), [transaction]);
  }

  /**
   * Makes the table if need be, its base objects, and the Services. The first Services go in with the table, and
   * all if they are not many: a start of nft takes longer than that.
   */
  async fill({ base, services, comment, isSmall }: TableFilling): Promise<void> {
    const { table, elementsPerTransaction } = this.#options;
    const printed = this.#printed(services);
    if (!base.isEmpty) {
      const text = textOf([tableLine(table, comment), ...base.lines(table)]);
      const first = taken(printed, isSmall ? Infinity : Math.min(FIRST_ELEMENTS, elementsPerTransaction));
      await this.run(text + joined(first), [base, ...first]);
    }
    await this.#writeServices(printed);
  }

  /** Tries Services, in groups. @returns those that are refused; all others are written */
  async findRefused(services: Iterable<ServiceTransaction>): Promise<readonly RefusedService[]> {
    const printed = this.#printed(services);
    const found: RefusedService[] = [];
    for (;;) {
      const group = taken(printed, this.#options.elementsPerTransaction);
      if (group.length === 0) return found;
      for (const { item, problem } of await isolateRefused(group, (part) => this.#attempt(part))) {
        found.push({ service: item.name, problem });
      }
    }
  }

  /** Runs commands, which need not be about this table. */
  async run(text: string, written: readonly { readonly counts: WrittenCounts }[]): Promise<void> {
    if (text === "") return;
    const { nft, logger, progress, table } = this.#options;
    if (logger.enabled(9)) logger.info("Running nft", { table, text }, 9);
    progress.commands++;
    progress.bytes += text.length;
    await nft.apply(text);
    for (const { counts } of written) addWritten(progress, counts);
  }

  /** Deletes chains, all of them or none; one that is gone already is fine. */
  async deleteChains(names: readonly string[]): Promise<Refusal<string> | null> {
    try {
      await this.run(names.map((name) => `delete chain ${this.#options.table} ${name}\n`).join(""), []);
      return null;
    } catch (error) {
      if (names.length === 1 && error instanceof ExecError && error.isNotFound()) return null;
      if (!isRejected(error)) throw error;
      return { problem: error.message, named: [] };
    }
  }

  /** Deletes sets and maps, each by itself: one that a rule still uses stays, and harms nothing. */
  async tryToDeleteContainers(names: readonly string[]): Promise<void> {
    const { table, logger } = this.#options;
    for (const name of names) {
      try {
        // Maps too: to the kernel they are sets.
        await this.run(`delete set ${table} ${name}\n`, []);
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        logger.info("An unused set cannot be deleted", { table, set: name, problem: error.message }, 2);
      }
    }
  }

  /** {@linkcode PARALLEL_WRITES} of nft run at a time: no two groups have anything in common. None runs any more once this settles. */
  async #writeServices(services: Iterator<PrintedService>): Promise<void> {
    let hasFailed = false;
    const writeGroups = async (): Promise<void> => {
      while (!hasFailed) {
        const group = taken(services, this.#options.elementsPerTransaction);
        if (group.length === 0) return;
        try {
          await this.run(joined(group), group);
        } catch (error) {
          hasFailed = true;
          throw error;
        }
      }
    };
    const outcomes = await Promise.allSettled(Array.from({ length: PARALLEL_WRITES }, writeGroups));
    const failure = outcomes.find(({ status }) => status === "rejected");
    if (failure?.status === "rejected") throw failure.reason;
  }

  async #attempt(services: readonly PrintedService[]): Promise<Refusal<PrintedService> | null> {
    try {
      await this.run(joined(services), services);
      return null;
    } catch (error) {
      if (!isRejected(error)) throw error;
      return { problem: describeNftFailure(error), named: named(error, services) };
    }
  }

  *#printed(services: Iterable<ServiceTransaction>): Generator<PrintedService> {
    for (const { name, transaction } of services) {
      const lines = transaction.lines(this.#options.table);
      const { weight, counts } = transaction;
      yield { name, text: textOf(lines), lineCount: lines.length, weight, counts };
    }
  }
}

/** True if nft or the kernel refuses a transaction: then nothing of it was committed. */
export function isRejected(error: unknown): error is ExecError {
  return error instanceof ExecError && nftFailureKind(error) === "rejected";
}

function textOf(lines: readonly string[]): string {
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

function joined(services: readonly PrintedService[]): string {
  return services.map(({ text }) => text).join("");
}

/** The next Services, up to that weight; never a part of one. */
function taken(services: Iterator<PrintedService>, weight: number): readonly PrintedService[] {
  const group: PrintedService[] = [];
  for (let sum = 0; sum < weight;) {
    const { value, done } = services.next();
    if (done === true) break;
    group.push(value);
    sum += value.weight;
  }
  return group;
}

/** The Services that nft names by their lines, each with the first error about it. */
function named(error: ExecError, services: readonly PrintedService[]): readonly Refused<PrintedService>[] {
  const problems = new Map<PrintedService, string>();
  for (const { line, message } of nftErrors(error.stderr)) {
    let end = 0;
    const owner = services.find(({ lineCount }) => line <= (end += lineCount));
    if (owner === undefined || problems.has(owner)) continue;
    const text = owner.text.split("\n")[line - (end - owner.lineCount) - 1] ?? "";
    problems.set(owner, `${message}: ${cut(text, SHOWN_LINE)}`);
  }
  return [...problems].map(([item, problem]) => ({ item, problem }));
}
