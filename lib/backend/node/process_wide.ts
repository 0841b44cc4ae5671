/**
 * Resources of modes that outlast a proxy server: the next one of the process finds them, the process ends them.
 *
 * @module
 */

import type { Exec } from "../../kernel/exec.ts";

/** A resource that the proxy servers of a process share. */
export interface Shared {
  /** True if rules go with the process, because nothing serves them then. Default: they stay. */
  readonly takesRulesAway?: boolean;
  /** Called when the rules of a proxy server are in force for all its IP families. */
  inForce(): void;
  /** Ends the resource; resolves when it has ended, or soon after `signal` aborts. */
  end(signal: AbortSignal): Promise<void>;
}

/** One resource of each class, made when it is first asked for. */
export class ProcessWide {
  readonly #kept = new Map<unknown, Shared>();

  /** @param exec starts programs at the end of the process, when those of its proxy servers have ended; without it none are started then */
  constructor(readonly exec?: Exec) {}

  /** True if rules go with the process. */
  get takesRulesAway(): boolean {
    return [...this.#kept.values()].some((shared) => shared.takesRulesAway === true);
  }

  /** The resource of this class. */
  share<T extends Shared>(kind: new () => T): T {
    let found = this.#kept.get(kind);
    if (found === undefined) this.#kept.set(kind, found = new kind());
    return found as T;
  }

  /** {@linkcode Shared.inForce} of all. */
  inForce(): void {
    for (const shared of this.#kept.values()) shared.inForce();
  }

  /** Ends all resources. */
  async end(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#kept.values()].map((shared) => shared.end(signal)));
  }
}
