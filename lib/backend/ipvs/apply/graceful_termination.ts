/**
 * Graceful termination: a real server that leaves gets no new connections, and is deleted when the ones it has are gone, or when its time
 * is up. kube-proxy does it in `pkg/proxy/ipvs/graceful_termination.go`.
 *
 * Memory only. A full sync finds real servers left by a killed process as present and unwanted: they leave again.
 *
 * @module
 */
import type { Clock, Mutex } from "../../../kernel/clock.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
import type { IpFamily } from "../../../model/objects.ts";
import {
  deleteRealServerLine,
  realServerKey,
  type RealServerLoad,
  type RealServerName,
  type SavedVirtualServer,
  updateRealServerLine,
  virtualServerKey,
  type VirtualServerName,
} from "../../../netfilter/ipvs.ts";
import type { Logger } from "../../../observe/log.ts";
import type { ServerChange } from "../store/transaction.ts";

/** The pause before the first check of the connections: most have none. It doubles from check to check. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 15_000;
/** With more virtual servers than this, reading all of them at once costs less than a program for each. */
const MAX_SINGLE_READS = 4;

/** A real server that leaves. */
interface Leaving {
  readonly virtual: VirtualServerName;
  readonly real: RealServerName;
  readonly sinceMs: number;
}

/** Dependencies of {@linkcode GracefulTermination}. */
export interface GracefulTerminationOptions {
  readonly ipvs: Ipvsadm;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a real server that leaves keeps its connections; 0: as long as they last. */
  readonly deadlineMs: number;
  /** Mutex that each sync holds. */
  readonly mutex: Mutex;
}

/** The real servers of one node that leave, both families. */
export class GracefulTermination {
  readonly #options: GracefulTerminationOptions;
  /** Leaving real servers, by virtual and real server; the first to leave come first. */
  readonly #leaving = new Map<string, Leaving>();
  readonly #end = new AbortController();
  #pauseMs = FIRST_PAUSE_MS;
  #loop: Promise<void> | undefined;

  constructor(options: GracefulTerminationOptions) {
    this.#options = options;
  }

  /** Number of real servers that leave. */
  get size(): number {
    return this.#leaving.size;
  }

  /**
   * The lines of `ipvsadm -R` for a change, taken over before they are written. If they are not carried out, everything must be read
   * again and {@linkcode found} be called.
   */
  linesOf(change: ServerChange): readonly string[] {
    const { server } = change;
    switch (change.kind) {
      case "deleteServer":
        this.#forget((_, key) => key.startsWith(keyOf(server)));
        break;
      case "addReal":
        // The real server is still there, and so are its connections.
        if (this.#drop(server, change.real)) return [updateRealServerLine(server, change.real)];
        break;
      case "updateReal":
        this.#drop(server, change.real);
        break;
      case "removeReal": {
        const { address, port, weight } = change.real;
        // Connection tracking of UDP ends by idle time only, and clients of SCTP have other paths.
        if (!change.graceful || server.protocol !== "TCP") {
          this.#drop(server, change.real);
          break;
        }
        const key = keyOf(server, change.real);
        // A real server that leaves already keeps its time.
        const sinceMs = this.#leaving.get(key)?.sinceMs ?? this.#options.clock.nowMs();
        this.#leaving.set(key, { virtual: server, real: change.real, sinceMs });
        return weight === 0 ? [] : [updateRealServerLine(server, { address, port, weight: 0 })];
      }
    }
    return [change.line];
  }

  /** Forgets real servers of the family that were not found. */
  found(saved: ReadonlyMap<string, SavedVirtualServer>, family: IpFamily): void {
    this.#forget(({ virtual, real }) =>
      virtual.address.includes(":") === (family === "IPv6") &&
      saved.get(virtualServerKey(virtual))?.realServers.has(realServerKey(real)) !== true
    );
  }

  /** Starts the sweeps: real servers may have begun to leave. */
  begin(): void {
    if (this.size === 0 || this.#end.signal.aborted) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#loop ??= this.#run();
  }

  /** Ends the sweeps; the next process finds the real servers again. */
  async close(): Promise<void> {
    this.#end.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { clock, mutex, log } = this.#options;
    while (this.size > 0) {
      await clock.sleep(this.#nextPauseMs(), this.#end.signal);
      if (this.#end.signal.aborted) return;
      // Between two syncs: all of these have lost their weight.
      await mutex.run(() => this.#sweep()).catch((error) => {
        if (this.#end.signal.aborted) return;
        log.error("Cannot delete real servers, will try again", error, { waiting: this.size });
      });
    }
    this.#loop = undefined;
  }

  #nextPauseMs(): number {
    const { clock, deadlineMs } = this.#options;
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
    const [first] = this.#leaving.values();
    const leftMs = deadlineMs === 0 || first === undefined
      ? Infinity
      : first.sinceMs + deadlineMs - clock.nowMs();
    // A real server whose deletion has failed is tried again after a pause.
    return leftMs > 0 ? Math.min(pauseMs, leftMs) : pauseMs;
  }

  /** Deletes real servers that have no connections, or no time left. */
  async #sweep(): Promise<void> {
    const { ipvs, clock, log, deadlineMs } = this.#options;
    const loads = await this.#loads();
    const lines: string[] = [];
    const ended: string[] = [];
    for (const [key, { virtual, real, sinceMs }] of this.#leaving) {
      const load = loads.get(virtualServerKey(virtual))?.get(realServerKey(real));
      const isBusy = load !== undefined && load.activeConnections + load.inactiveConnections > 0;
      const isLate = deadlineMs > 0 && clock.nowMs() - sinceMs >= deadlineMs;
      if (isBusy && !isLate) continue;
      if (isBusy) log.info("Deleting a real server with its connections: its time is up", { key });
      // Another process may have deleted it.
      if (load !== undefined) lines.push(deleteRealServerLine(virtual, real));
      ended.push(key);
    }
    if (ended.length === 0) return;
    if (lines.length > 0) await ipvs.restore(lines);
    for (const key of ended) this.#leaving.delete(key);
    log.info("Deleted real servers", { deleted: lines.length, left: this.size }, 4);
  }

  /** Virtual server → real server → its connections. A virtual server that is not there has none. */
  async #loads(): Promise<ReadonlyMap<string, ReadonlyMap<string, RealServerLoad>>> {
    const { ipvs } = this.#options;
    const wanted = new Map(
      Array.from(this.#leaving.values(), ({ virtual }) => [virtualServerKey(virtual), virtual]),
    );
    const loads = new Map<string, ReadonlyMap<string, RealServerLoad>>();
    if (wanted.size > MAX_SINGLE_READS) {
      for (const [key, { realServers }] of await ipvs.loads()) loads.set(key, realServers);
      return loads;
    }
    for (const [key, virtual] of wanted) {
      const reals = await ipvs.listRealServers(virtual) ?? [];
      loads.set(key, new Map(reals.map((real) => [realServerKey(real), real])));
    }
    return loads;
  }

  #forget(isGone: (leaving: Leaving, key: string) => boolean): void {
    for (const [key, leaving] of this.#leaving) if (isGone(leaving, key)) this.#leaving.delete(key);
  }

  #drop(virtual: VirtualServerName, real: RealServerName): boolean {
    // A first sync asks for each of 100,000 real servers, and none leaves.
    return this.size > 0 && this.#leaving.delete(keyOf(virtual, real));
  }
}

/** `ip:port/PROTO/rsip:rsport`; without `real` the prefix of all keys of a virtual server. */
function keyOf(virtual: VirtualServerName, real?: RealServerName): string {
  return `${virtualServerKey(virtual)}/${real === undefined ? "" : realServerKey(real)}`;
}
