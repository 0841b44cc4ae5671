/**
 * Which schedulers the kernel has, found out by trying, and which Services do not get the one that they ask for.
 *
 * @module
 */
import { type Ipvsadm, missingScheduler } from "../../../kernel/ipvsadm.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import type { VirtualServerName } from "../../../netfilter/ipvs.ts";
import type { IpvsPlan } from "../plan/ruleset.ts";

/** Of a network for documentation, where no server is. kube-proxy tries with the same one. */
const PROBE_SERVER: VirtualServerName = { address: "198.51.100.0", protocol: "TCP", port: 20_000 };

/** What a sync may use. */
export interface UsableSchedulers {
  readonly schedulers: readonly string[];
  /** Programs started to find out. */
  readonly commands: number;
}

/** Tries schedulers when they are first asked for. Only for work that no other sync disturbs. */
export class SchedulerProbe {
  readonly #ipvs: Ipvsadm;
  readonly #configured: string;
  readonly #usable = new Map<string, boolean>();

  /** @param configured the one that is there for certain, see {@linkcode require} */
  constructor(ipvs: Ipvsadm, configured: string) {
    this.#ipvs = ipvs;
    this.#configured = configured;
  }

  /**
   * Makes sure of the configured one. The first use of IPVS: it makes the kernel load it.
   *
   * @throws {UnsupportedError} naming the module, if the kernel does not have it
   * @throws {ExecError} if IPVS does not work here
   */
  async require(): Promise<void> {
    if (!(await this.#ipvs.trySchedulers(PROBE_SERVER, [this.#configured])).has(this.#configured)) {
      throw missingScheduler(this.#configured);
    }
  }

  /**
   * The configured one, and those of the ones that the changed Services name which the kernel has. Those that were not named before
   * are tried, all in one run of the program.
   */
  async usable(state: ProxyState, changed: Changed): Promise<UsableSchedulers> {
    const names = changed === "all" ? state.services.keys() : changed;
    const unknown = new Set<string>();
    for (const name of names) {
      for (const { ipvs: { scheduler } } of state.services.get(name) ?? []) {
        if (scheduler !== "" && scheduler !== this.#configured && !this.#usable.has(scheduler)) {
          unknown.add(scheduler);
        }
      }
    }
    if (unknown.size > 0) {
      const found = await this.#ipvs.trySchedulers(PROBE_SERVER, [...unknown]);
      for (const scheduler of unknown) this.#usable.set(scheduler, found.has(scheduler));
    }
    const usable = [...this.#usable].filter(([, works]) => works).map(([name]) => name);
    return { schedulers: [this.#configured, ...usable], commands: unknown.size > 0 ? 1 : 0 };
  }
}

/** Which problems of Services were logged: each once, and again when it comes back. Remembers no more than the problems that there are. */
export class LoggedProblems {
  readonly #logged = new Map<NamespacedName, readonly string[]>();

  /** How many Services have problems. */
  get size(): number {
    return this.#logged.size;
  }

  /** The problems of the plan that were not there before. */
  news({ all, services, problems }: Pick<IpvsPlan, "all" | "services" | "problems">): readonly string[] {
    for (const name of [...all ? this.#logged.keys() : services.keys()]) {
      if (!problems.has(name)) this.#logged.delete(name);
    }
    return [...problems].flatMap(([name, now]) => {
      const before = this.#logged.get(name);
      this.#logged.set(name, now);
      return now.filter((problem) => before?.includes(problem) !== true);
    });
  }
}
