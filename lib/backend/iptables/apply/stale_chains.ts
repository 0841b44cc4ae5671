/**
 * Chains that nothing of ours goes to any more and that are still there, mostly because rules of others jump to them: they are empty, do
 * no harm, and must not stop a change of rules.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { failedLines } from "../../../kernel/tool_errors.ts";
import { chainLine, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { Logger } from "../../../observe/log.ts";
import { isolateRefused, type Refusal } from "../../isolate.ts";

/** A chain that could not be deleted is tried again so much later, with a sync or a look. */
const RETRY_MS = 10_000;

/** What {@linkcode StaleChains} needs. */
export interface StaleChainsOptions {
  readonly iptables: Iptables;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** What came of a try. */
export interface DeletionOutcome {
  /** Programs started. */
  readonly commands: number;
  readonly failed: number;
}

/** Chains of table nat that are still there. */
export class StaleChains {
  readonly #options: StaleChainsOptions;
  /** Name → when to try it, in the clock's milliseconds. */
  readonly #dueMs = new Map<string, number>();
  /** Those that were reported. */
  readonly #told = new Set<string>();

  constructor(options: StaleChainsOptions) {
    this.#options = options;
  }

  /** Forgets all of them: what is there is about to be read. */
  clear(): void {
    this.#dueMs.clear();
  }

  /** These were flushed, and something kept the transaction from deleting all of them. */
  flushed(names: Iterable<string>): void {
    for (const name of names) this.#dueMs.set(name, this.#options.nowMs());
  }

  /** These are there, and nothing of ours goes to them; those that are known already keep their time. */
  found(names: readonly string[]): void {
    const { logger, iptables: { family } } = this.#options;
    const unknown = names.filter((name) => !this.#dueMs.has(name));
    if (unknown.length === 0) return;
    logger.info("Chains of Services that are gone are still there, deleting them", {
      family,
      chains: unknown,
    });
    this.flushed(unknown);
  }

  /** These are in use (again). */
  filled(names: Iterable<string>): void {
    if (this.#dueMs.size === 0 && this.#told.size === 0) return;
    for (const name of names) this.#forget(name);
  }

  /** Deletes those that are due, in transactions of their own; those that stay are tried again. */
  async deleteDue(): Promise<DeletionOutcome> {
    const { nowMs, logger, iptables: { family } } = this.#options;
    const due = [...this.#dueMs].filter(([, dueMs]) => dueMs <= nowMs()).map(([name]) => name);
    let commands = 0;
    let staying: ReadonlyMap<string, string>;
    try {
      const refused = await isolateRefused(due, (names) => {
        commands++;
        return this.#delete(names);
      });
      staying = new Map(refused.map(({ item, problem }) => [item, problem]));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // What came before the failure may be gone, which a later try does not mind.
      staying = new Map(due.map((name) => [name, error.message]));
    }
    const untold = [...staying.keys()].filter((name) => !this.#told.has(name));
    for (const name of due) {
      if (!staying.has(name)) this.#forget(name);
      else {
        this.#dueMs.set(name, nowMs() + RETRY_MS);
        this.#told.add(name);
      }
    }
    if (untold.length > 0) {
      logger.warn("Chains of Services that are gone cannot be deleted and stay, empty: others use them", {
        family,
        chains: untold,
        problem: staying.get(untold[0]!),
        advice: "find the rules that jump to them in what iptables-save prints",
      });
    }
    return { commands, failed: staying.size };
  }

  #forget(name: string): void {
    this.#dueMs.delete(name);
    this.#told.delete(name);
  }

  /** Deletes all of them or none. */
  async #delete(names: readonly string[]): Promise<Refusal<string> | null> {
    const deletions = names.map((name) => `-X ${name}`);
    // A chain must be empty; declaring it also makes one that another program deleted, so that it can be deleted.
    const lines = [...names.map(chainLine), ...deletions];
    try {
      await this.#options.iptables.restore(tableBlock("nat", lines), { counters: false });
      return null;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const refused = failedLines(error.stderr).flatMap((line) => {
        // The first line is `*nat`.
        const item = names[line - 2 - names.length];
        return item === undefined ? [] : [{ item, problem: error.message }];
      });
      // Only what the program says of a line says something of a chain.
      if (refused.length === 0) throw error;
      return { problem: error.message, named: refused };
    }
  }
}
