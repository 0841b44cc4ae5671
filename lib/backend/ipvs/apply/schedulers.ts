/**
 * Which schedulers the kernel has, found out by trying.
 *
 * @module
 */
import { type Ipvsadm, missingScheduler } from "../../../kernel/ipvsadm.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";

/** Schedulers that a sync may use. */
export interface UsableSchedulers {
  readonly schedulers: readonly string[];
  /** Programs started to find out. */
  readonly commands: number;
}

/** Tries schedulers when they are first asked for. Only for work that no other sync disturbs. */
export class SchedulerProbe {
  readonly #ipvs: Ipvsadm;
  /** The configured scheduler first, which is there for certain, see {@linkcode require}. */
  readonly #usable: Set<string>;
  readonly #missing = new Set<string>();

  /** @param configured the scheduler of Services that name none */
  constructor(ipvs: Ipvsadm, readonly configured: string) {
    this.#ipvs = ipvs;
    this.#usable = new Set([configured]);
  }

  /**
   * Makes sure of the configured scheduler. The first use of IPVS: it makes the kernel load it.
   *
   * @throws {UnsupportedError} naming the module, if the kernel does not have it
   * @throws {ExecError} if IPVS does not work here
   */
  async require(): Promise<void> {
    if (!await this.#ipvs.hasScheduler(this.configured)) {
      throw missingScheduler(this.configured);
    }
  }

  /**
   * The configured scheduler, and those that changed Services name and the kernel has. Schedulers that were
   * not named before are tried.
   */
  async usable(state: ProxyState, changed: Changed): Promise<UsableSchedulers> {
    const unknown = new Set<string>();
    for (const name of changed === "all" ? state.services.keys() : changed) {
      for (const { ipvs: { scheduler } } of state.services.get(name) ?? []) unknown.add(scheduler);
    }
    for (const known of ["", ...this.#usable, ...this.#missing]) unknown.delete(known);
    for (const scheduler of unknown) {
      const isThere = await this.#ipvs.hasScheduler(scheduler);
      (isThere ? this.#usable : this.#missing).add(scheduler);
    }
    return { schedulers: [...this.#usable], commands: unknown.size };
  }
}
