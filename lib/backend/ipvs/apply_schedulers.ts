/**
 * Which schedulers the kernel has, found out by trying.
 *
 * @module
 */
import { UnsupportedError } from "../../errors.ts";
import { type Ipvsadm, isServerThere } from "../../kernel/ipvsadm.ts";
import type { Changed, ProxyState } from "../../model/state.ts";
import type { VirtualServer } from "../../netfilter/ipvs.ts";

/** Of a network for documentation: nobody serves there. kube-proxy tries with the same one. */
const PROBE_ADDRESS = "198.51.100.0";
const PROBE_PORT = 20_000;

function probeServer(scheduler: string): VirtualServer {
  return {
    address: PROBE_ADDRESS,
    protocol: "TCP",
    port: PROBE_PORT,
    scheduler,
    flags: [],
    timeoutSeconds: 0,
  };
}

/** Tries a scheduler when it is first asked for. Only for work that nobody else disturbs. */
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
    try {
      await this.#try(this.#configured);
    } catch (error) {
      // A proxy that was killed while it tried: what it left is deleted by now.
      if (!isServerThere(error)) throw error;
      await this.#try(this.#configured);
    }
  }

  /** The configured one, and those of the ones that the changed Services name which the kernel has. */
  async usable(state: ProxyState, changed: Changed): Promise<readonly string[]> {
    const names = changed === "all" ? state.services.keys() : changed;
    for (const name of names) {
      for (const { ipvs } of state.services.get(name) ?? []) {
        const { scheduler } = ipvs;
        if (scheduler === "" || scheduler === this.#configured || this.#usable.has(scheduler)) continue;
        this.#usable.set(scheduler, await this.#works(scheduler));
      }
    }
    return [this.#configured, ...[...this.#usable].filter(([, works]) => works).map(([name]) => name)];
  }

  async #works(scheduler: string): Promise<boolean> {
    try {
      await this.#try(scheduler);
      return true;
    } catch (error) {
      if (error instanceof UnsupportedError) return false;
      throw error;
    }
  }

  async #try(scheduler: string): Promise<void> {
    // One program: a server that did not stay cannot be deleted, and that is told as well.
    await this.#ipvs.tryVirtualServer(probeServer(scheduler));
  }
}
