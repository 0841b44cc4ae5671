/**
 * What modes keep beyond one proxy server: the next proxy server of the same process finds it, and the end of the process ends it.
 *
 * @module
 */

import type { Exec } from "../../kernel/exec.ts";

/** Something that the proxy servers of a process share. */
export interface Shared {
  /** True if rules go with the process, because nothing is behind them then. Default: they stay. */
  readonly takesRulesAway?: boolean;
  /** The rules of a proxy server are in force, those of all IP families. */
  inForce(): void;
  /** Ends it; resolves when it has ended, or soon after `signal` aborts. */
  end(signal: AbortSignal): Promise<void>;
}

/** One of each kind, made when it is first asked for. */
export class ProcessWide {
  readonly #kept = new Map<unknown, Shared>();

  /** @param exec starts programs at the end of the process, when those of its proxy servers have ended; without it none are started then */
  constructor(readonly exec?: Exec) {}

  /** True if rules go with the process. */
  get takesRulesAway(): boolean {
    return [...this.#kept.values()].some((shared) => shared.takesRulesAway === true);
  }

  /** The one of this kind. */
  share<T extends Shared>(kind: new () => T): T {
    let found = this.#kept.get(kind);
    if (found === undefined) this.#kept.set(kind, found = new kind());
    return found as T;
  }

  /** As of {@linkcode Shared}. */
  inForce(): void {
    for (const shared of this.#kept.values()) shared.inForce();
  }

  /** Ends all. */
  async end(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#kept.values()].map((shared) => shared.end(signal)));
  }
}
