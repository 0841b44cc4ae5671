/**
 * Stale chains, to which no rule of ours jumps any more: flushed, they do no harm, and must not stop a change
 * of rules. They are deleted in transactions of their own, be it a while after they were flushed, or again
 * and again until no rule of another program jumps to them.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import { isolateRefused, type Refusal } from "../quarantine.ts";

/** Options of {@linkcode StaleChains}. */
export interface StaleChainsOptions {
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** How long a chain stays after it was flushed. */
  readonly waitMs: number;
  /** Pause before another try to delete a chain that could not be deleted. */
  readonly retryMs: number;
  /** As `attempt` of {@linkcode isolateRefused}; an {@linkcode ExecError} keeps all of them. */
  readonly remove: (names: readonly string[]) => Promise<Refusal<string> | null>;
  /** Reports chains that stay, each once. */
  readonly report: (names: readonly string[], problem: string) => void;
}

/** Result of a round of deletions. */
export interface DeletionOutcome {
  /** Programs started. */
  readonly commands: number;
  readonly failed: number;
}

/** Stale chains of one table. */
export class StaleChains {
  readonly #options: StaleChainsOptions;
  /** Name → when to delete it, in the clock's milliseconds. */
  readonly #dueMs = new Map<string, number>();
  readonly #reported = new Set<string>();

  constructor(options: StaleChainsOptions) {
    this.#options = options;
  }

  has(name: string): boolean {
    return this.#dueMs.has(name);
  }

  /** Forgets all chains: the table is about to be read. */
  clear(): void {
    this.#dueMs.clear();
  }

  /** Records chains that were flushed just now. */
  flushed(names: Iterable<string>): void {
    const { nowMs, waitMs } = this.#options;
    for (const name of names) this.#dueMs.set(name, nowMs() + waitMs);
  }

  /** Forgets chains that are in use again, or gone. */
  forget(names: Iterable<string>): void {
    if (this.#dueMs.size === 0 && this.#reported.size === 0) return;
    for (const name of names) {
      this.#dueMs.delete(name);
      this.#reported.delete(name);
    }
  }

  /** Deletes chains that are due; those that stay are tried again. */
  async deleteDue(): Promise<DeletionOutcome> {
    const { nowMs, retryMs, remove, report } = this.#options;
    const due = [...this.#dueMs].filter(([, dueMs]) => dueMs <= nowMs()).map(([name]) => name);
    let commands = 0;
    let staying: ReadonlyMap<string, string>;
    try {
      const refused = await isolateRefused(due, (names) => {
        commands++;
        return remove(names);
      });
      staying = new Map(refused.map(({ item, problem }) => [item, problem]));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      // Chains before the failure may already be gone, which does not disturb a later try.
      staying = new Map(due.map((name) => [name, error.message]));
    }
    this.forget(due.filter((name) => !staying.has(name)));
    const news = [...staying.keys()].filter((name) => !this.#reported.has(name));
    for (const name of staying.keys()) {
      this.#dueMs.set(name, nowMs() + retryMs);
      this.#reported.add(name);
    }
    if (news.length > 0) report(news, staying.get(news[0]!)!);
    return { commands, failed: staying.size };
  }
}
