/**
 * Chains that nothing goes to any more: flushed with the change that made them so, deleted a while later.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Logger } from "../../../observe/log.ts";
import { tableOf } from "../store/full_sync.ts";

/** Kernels before 6.2 learn this much later that a deleted element does not refer to a chain any more (kube-proxy's number). */
const DELETE_AFTER_MS = 1_000;

/** What {@linkcode StaleChains} needs. */
export interface StaleChainsOptions {
  readonly nft: Nft;
  readonly family: IpFamily;
  readonly logger: Logger;
  readonly nowMs: () => number;
}

/** Flushed chains that are still there. */
export class StaleChains {
  readonly #options: StaleChainsOptions;
  readonly #flushedAtMs = new Map<string, number>();

  constructor(options: StaleChainsOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#flushedAtMs.size === 0;
  }

  /** Forgets all of them: what is there is about to be read. */
  clear(): void {
    this.#flushedAtMs.clear();
  }

  /** These were flushed just now. */
  flushed(names: Iterable<string>): void {
    for (const name of names) this.#flushedAtMs.set(name, this.#options.nowMs());
  }

  /** These are in use again. */
  filled(names: Iterable<string>): void {
    for (const name of names) this.#flushedAtMs.delete(name);
  }

  /**
   * Deletes those that were flushed long enough ago, in a transaction of their own: a chain that the kernel does not let go of
   * must not stop a change of rules.
   *
   * @returns how many could not be deleted; they are tried again
   */
  async deleteDue(): Promise<number> {
    const nowMs = this.#options.nowMs();
    const due = [...this.#flushedAtMs].filter(([, flushedAtMs]) => nowMs - flushedAtMs >= DELETE_AFTER_MS)
      .map(([name]) => name);
    if (due.length === 0) return 0;
    if (await this.#delete(due)) return 0;
    // One is enough to keep all of them.
    let failed = 0;
    for (const name of due.length === 1 ? [] : due) if (!await this.#delete([name])) failed++;
    return due.length === 1 ? 1 : failed;
  }

  async #delete(names: readonly string[]): Promise<boolean> {
    const { nft, family, logger, nowMs } = this.#options;
    try {
      await nft.apply(names.map((name) => `delete chain ${tableOf(family)} ${name}\n`).join(""));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const isGone = names.length === 1 && error.isNotFound();
      if (!isGone) {
        logger.info(
          "Stale chains cannot be deleted yet",
          { family, chains: names, problem: error.message },
          2,
        );
        for (const name of names) this.#flushedAtMs.set(name, nowMs());
        return false;
      }
    }
    this.filled(names);
    return true;
  }
}
