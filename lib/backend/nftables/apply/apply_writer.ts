/**
 * Writes operations into one table, in transactions that never cut a Service in two.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import { describeNftFailure, nftComplaints, nftFailureKind } from "../../../kernel/nft_failure.ts";
import type { Logger } from "../../../observe/log.ts";
import { cut } from "../../../text/quote.ts";
import { isolateRefused, type Refusal, type Refused } from "../../isolate.ts";
import { NO_LEFTOVER } from "../diff/diff.ts";
import type { ObservedClients } from "../diff/parse.ts";
import type { BaseRules, Operations, ServiceOperations } from "../plan/ruleset.ts";
import {
  baseLines,
  countWritten,
  groupsByWeight,
  hookedLines,
  leftoverLines,
  ServicesText,
  type ServiceText,
  serviceText,
  type TableAddress,
  weightOf,
  type WrittenCounts,
} from "../diff/transactions.ts";

/** What one sync did, as it goes on. */
export interface Progress {
  commands: number;
  bytes: number;
  readonly written: WrittenCounts;
}

/** What a {@linkcode Writer} needs. */
export interface WriterOptions {
  readonly nft: Nft;
  readonly address: TableAddress;
  /** Of one transaction, about. */
  readonly elementsPerTransaction: number;
  readonly logger: Logger;
  readonly progress: Progress;
}

const NO_BASE: Operations["base"] = {
  containers: [],
  chains: [],
  hookedChains: [],
  deletedElements: [],
  addedElements: [],
  sharedChains: [],
};

/** What a text writes, as far as it counts. */
interface Counted {
  readonly base?: Operations["base"];
  readonly services?: readonly ServiceText[];
  readonly leftover?: Operations["leftover"];
}

/** How a table is made. */
export interface TableMaking {
  /** Its comment; `""` for none. */
  readonly comment: string;
  /** False: no packet comes there yet. */
  readonly hooked: boolean;
}

function written(base: Operations["base"], { hooked }: TableMaking): Operations["base"] {
  return hooked ? base : { ...base, hookedChains: [] };
}

/** The Services that come next, as many as come to that weight. */
function taken(services: Iterator<ServiceText>, weight: number): readonly ServiceText[] {
  const group: ServiceText[] = [];
  for (let sum = 0; sum < weight;) {
    const { value, done } = services.next();
    if (done === true) break;
    group.push(value);
    sum += weightOf(value);
  }
  return group;
}

function* joined<Item>(first: readonly Item[], rest: Iterable<Item>): Generator<Item> {
  yield* first;
  yield* rest;
}

function textOf(lines: readonly string[]): string {
  return lines.length === 0 ? "" : lines.join("\n") + "\n";
}

/** Two thirds of nft's time is its own, outside of the kernel: 100,000 elements take 1.1 s by two of them, 1.45 s by one. */
const PARALLEL_WRITES = 2;

/** Of many Services so much goes in with the table: what comes first, the API server and DNS among it, waits for no more. */
const FIRST_ELEMENTS = 1_000;

/** Writes into one table. All of its methods throw {@linkcode ExecError} for what is not said otherwise. */
export class Writer {
  readonly #options: WriterOptions;
  /** True once a refusal was found not to come from a table that others took away. */
  #hasLooked = false;

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /** Writes all of it, in one transaction unless it is much. Nothing is left out: what is refused fails. */
  async write({ base, services, leftover }: Operations): Promise<void> {
    const { address, elementsPerTransaction } = this.#options;
    let before = textOf(baseLines(address, base, true));
    let counted = base;
    for (const group of groupsByWeight(this.#texts(services), elementsPerTransaction)) {
      await this.#apply(before + new ServicesText(group).text, { base: counted, services: group });
      before = "";
      counted = NO_BASE;
    }
    await this.#apply(before + textOf(leftoverLines(address, leftover)), { base: counted, leftover });
  }

  /**
   * Makes the table if need be, what is in it whatever the Services are, and the Services, as {@linkcode Writer.writeServices} does. The
   * first of them go in with the table, and all if they are not many: a start of nft takes longer than that.
   *
   * @param weight what the Services count at most, as {@linkcode weightOf} each
   * @returns the refused Services, of which nothing was written
   */
  async writeTable(
    { base, services }: Pick<Operations, "base"> & { readonly services: Iterable<ServiceOperations> },
    wanted: BaseRules,
    { weight, ...table }: TableMaking & { readonly weight: number },
  ): Promise<readonly Refused<ServiceText>[]> {
    const { elementsPerTransaction } = this.#options;
    const baseText = this.#baseText(base, table);
    if (baseText === "") return await this.writeServices(services, wanted);
    const texts = this.#texts(services);
    const isAll = weight < elementsPerTransaction;
    const firstWeight = Math.min(FIRST_ELEMENTS, elementsPerTransaction);
    const first = taken(texts, isAll ? Infinity : firstWeight);
    const counted = written(base, table);
    const isIn = first.length > 0 && await this.#writeTogether(baseText, { base: counted, services: first });
    if (!isIn) await this.#apply(baseText, { base: counted });
    return await this.#writeTexts(isIn ? texts : joined(first, texts), wanted, weight - firstWeight);
  }

  /** Makes the table if need be, and what is in it whatever the Services are. */
  async writeBase(base: Operations["base"], table: TableMaking): Promise<void> {
    await this.#apply(this.#baseText(base, table), { base: written(base, table) });
  }

  #baseText(base: Operations["base"], { comment, hooked }: TableMaking): string {
    const { address } = this.#options;
    const lines = baseLines(address, base, hooked);
    if (lines.length === 0) return "";
    const said = comment === "" ? "" : ` { comment "${comment}" ; }`;
    return textOf([`add table ${address.table}${said}`, ...lines]);
  }

  /** False if nft or the kernel refuses something of it: then nothing of it is there. */
  async #writeTogether(
    baseText: string,
    { base, services }: Required<Pick<Counted, "base" | "services">>,
  ): Promise<boolean> {
    try {
      await this.#apply(baseText + new ServicesText(services).text, { base, services });
      return true;
    } catch (error) {
      if (error instanceof ExecError && nftFailureKind(error) === "rejected") return false;
      throw error;
    }
  }

  /** Lets packets in. */
  async writeHooks({ hookedChains }: Pick<BaseRules, "hookedChains">): Promise<void> {
    await this.#apply(textOf(hookedLines(this.#options.address, hookedChains)), {
      base: { ...NO_BASE, hookedChains },
    });
  }

  /**
   * Writes the Services, and without those that are refused if there are any. While nft writes some of them, the next ones
   * are made ready; {@linkcode PARALLEL_WRITES} of it run at a time, because no two groups have anything in common. None
   * runs any more once this settles.
   *
   * @returns the refused ones, of which nothing was written
   */
  async writeServices(
    services: Iterable<ServiceOperations>,
    base: BaseRules,
  ): Promise<readonly Refused<ServiceText>[]> {
    return await this.#writeTexts(this.#texts(services), base);
  }

  /** @param weight of all of them, at most, if that is known: groups are of one size then, and as many as are written at a time */
  async #writeTexts(
    services: Iterable<ServiceText>,
    base: BaseRules,
    weight = Infinity,
  ): Promise<readonly Refused<ServiceText>[]> {
    const { elementsPerTransaction } = this.#options;
    const groupCount = Math.max(PARALLEL_WRITES, Math.ceil(weight / elementsPerTransaction));
    const groupWeight = weight === Infinity
      ? elementsPerTransaction
      : Math.min(elementsPerTransaction, Math.max(1, Math.ceil(weight / groupCount)));
    const refused: Refused<ServiceText>[] = [];
    const writing: Promise<readonly Refused<ServiceText>[]>[] = [];
    try {
      for (const group of groupsByWeight(services, groupWeight)) {
        const ready = new ServicesText(group);
        if (writing.length === PARALLEL_WRITES) {
          refused.push(...await writing[0] ?? []);
          writing.shift();
        }
        const { promise: isRead, resolve: onRead } = Promise.withResolvers<void>();
        const written = isolateRefused(
          group,
          (part) => this.#attempt(part, part === group ? ready : new ServicesText(part), base, onRead),
        );
        writing.push(written);
        // What comes next keeps this thread busy, so nft gets its text first. A failure is for whoever awaits `writing`.
        written.then(() => onRead(), () => onRead());
        await isRead;
      }
      for (const group of await Promise.all(writing)) refused.push(...group);
      return refused;
    } finally {
      await Promise.allSettled(writing);
    }
  }

  /** Puts clients into sets that are there. */
  async writeClients(sets: readonly ObservedClients[]): Promise<void> {
    const { address: { table } } = this.#options;
    const lines = sets.map(({ name, clients }) => `add element ${table} ${name} { ${clients.join(", ")} }`);
    await this.#apply(textOf(lines), {});
  }

  /** Writes what no Service wants any more. */
  async writeLeftover(leftover: Operations["leftover"]): Promise<void> {
    await this.#apply(textOf(leftoverLines(this.#options.address, leftover)), { leftover });
  }

  /** Deletes sets and maps, each by itself: one that somebody's rule still uses stays, and harms nothing. */
  async tryToDeleteContainers(names: readonly string[]): Promise<void> {
    const { address: { table }, logger } = this.#options;
    for (const name of names) {
      try {
        // Maps too: to the kernel they are sets.
        await this.#apply(`delete set ${table} ${name}\n`, {});
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        logger.info("A set of nobody's cannot be deleted", { table, set: name, problem: error.message }, 2);
      }
    }
  }

  /** Removes a table with all that is in it. */
  async deleteTable(table: string): Promise<void> {
    await this.#apply(`add table ${table}\ndelete table ${table}\n`, {});
  }

  async #attempt(
    services: readonly ServiceText[],
    text: ServicesText,
    base: BaseRules,
    onRead: () => void,
  ): Promise<Refusal<ServiceText> | null> {
    try {
      await this.#apply(text.text, { services }, onRead);
      return null;
    } catch (error) {
      if (!(error instanceof ExecError) || nftFailureKind(error) !== "rejected") throw error;
      if (!this.#hasLooked && !await this.#hasBase(base)) throw error;
      this.#hasLooked = true;
      return { problem: describeNftFailure(error), named: named(error, text) };
    }
  }

  /** False if others took away what all Services need: then none of them is to blame. */
  async #hasBase({ containers, chains }: BaseRules): Promise<boolean> {
    const { nft, address: { table }, progress } = this.#options;
    const lines = [
      ...containers.map(({ kind, name }) => `flush ${kind} ${table} ${name}`),
      ...chains.map(({ name }) => `flush chain ${table} ${name}`),
    ];
    progress.commands++;
    try {
      await nft.check(textOf(lines));
      return true;
    } catch (error) {
      if (error instanceof ExecError && nftFailureKind(error) === "rejected") return false;
      throw error;
    }
  }

  *#texts(services: Iterable<ServiceOperations>): Generator<ServiceText> {
    for (const operations of services) yield serviceText(this.#options.address, operations);
  }

  /** @param onRead called once nft has read all of the text */
  async #apply(
    text: string,
    { base = NO_BASE, services = [], leftover = NO_LEFTOVER }: Counted,
    onRead?: () => void,
  ): Promise<void> {
    if (text === "") return;
    const { nft, logger, progress, address } = this.#options;
    if (logger.enabled(9)) logger.info("Running nft", { table: address.table, text }, 9);
    progress.commands++;
    progress.bytes += text.length;
    await nft.apply(
      onRead === undefined ? text : function* () {
        yield text;
        onRead();
      },
    );
    for (const counts of [countWritten({ base, leftover }), ...services.map(({ counts }) => counts)]) {
      for (const kind of ["chains", "elements", "sets"] as const) progress.written[kind] += counts[kind];
    }
  }
}

/** The Services that nft names by their lines, each with the first complaint about it. */
function named(error: ExecError, text: ServicesText): readonly Refused<ServiceText>[] {
  const problems = new Map<ServiceText, string>();
  for (const { line, message } of nftComplaints(error.stderr)) {
    const owner = text.ownerOf(line);
    if (owner !== undefined && !problems.has(owner)) {
      problems.set(owner, `${message}: ${cut(text.text.split("\n", line)[line - 1] ?? "", SHOWN_LINE)}`);
    }
  }
  return [...problems].map(([item, problem]) => ({ item, problem }));
}

/** Of a line that nft refuses so much is told. */
const SHOWN_LINE = 200;
