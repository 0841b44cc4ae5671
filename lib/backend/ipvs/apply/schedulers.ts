/**
 * Which schedulers the kernel has, found out by trying.
 *
 * @module
 */
import { type Ipvsadm, missingScheduler } from "../../../kernel/ipvsadm.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";

/** Tries schedulers when they are first asked for. Only for work that no other sync disturbs. */
export class SchedulerProbe {
  readonly #ipvs: Ipvsadm;
  /** Scheduler → whether it is there. The configured one comes first, and is there for certain, see {@linkcode require}. */
  readonly #tried: Map<string, boolean>;

  /** @param configured the one of Services that name none */
  constructor(ipvs: Ipvsadm, readonly configured: string) {
    this.#ipvs = ipvs;
    this.#tried = new Map([[configured, true]]);
  }

  /**
   * Makes sure of the configured one. The first use of IPVS: it makes the kernel load it.
   *
   * @throws {UnsupportedError} naming the module, if the kernel does not have it
   * @throws {ExecError} if IPVS does not work here
   */
  async require(): Promise<void> {
    if (!await this.#ipvs.hasScheduler(this.configured)) throw missingScheduler(this.configured);
  }

  /**
   * What a sync may use: the configured one, and those that Services name which the kernel has. Those that the changed Services name for the
   * first time are tried, with a program each.
   */
  async usable(
    state: ProxyState,
    changed: Changed,
  ): Promise<{ readonly schedulers: readonly string[]; readonly commands: number }> {
    let commands = 0;
    for (const name of changed === "all" ? state.services.keys() : changed) {
      for (const { ipvs: { scheduler } } of state.services.get(name) ?? []) {
        if (scheduler === "" || this.#tried.has(scheduler)) continue;
        this.#tried.set(scheduler, await this.#ipvs.hasScheduler(scheduler));
        commands++;
      }
    }
    const found = [...this.#tried].filter(([, isThere]) => isThere);
    return { schedulers: found.map(([scheduler]) => scheduler), commands };
  }
}
