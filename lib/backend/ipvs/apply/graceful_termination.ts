/**
 * Graceful termination: a real server that leaves gets no new connections, and is deleted when the ones it has are gone, or when its time
 * is up. kube-proxy does it in `pkg/proxy/ipvs/graceful_termination.go`.
 *
 * Memory only. What a killed process left shows up in the next full sync as present and unwanted, and comes in again.
 *
 * @module
 */
import type { Clock } from "../../../kernel/clock.ts";
import type { Ipvsadm } from "../../../kernel/ipvsadm.ts";
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
import { type ServerChange, serverLine } from "../store/transaction.ts";

/** The first look at the connections of a real server that leaves: most have none. */
const FIRST_SWEEP_MS = 1_000;
/** The pause between two looks doubles up to this. */
const MAX_SWEEP_PAUSE_MS = 15_000;
/** With more virtual servers than this, reading all of them at once costs less than a program for each. */
const MAX_SINGLE_READS = 4;

/** A real server that leaves. */
interface Termination {
  /** Of the virtual server, as in {@linkcode Loads}. */
  readonly virtualKey: string;
  readonly virtual: VirtualServerName;
  readonly real: RealServerName;
  readonly sinceMs: number;
}

/** Virtual server → real server → its connections. A virtual server that is not there has none. */
export type Loads = ReadonlyMap<string, ReadonlyMap<string, RealServerLoad>>;

/** What a look at the connections leads to. */
export interface Sweep {
  /** Lines of `ipvsadm -R`. */
  readonly lines: readonly string[];
  /** Virtual and real server of those that are deleted by the lines or have vanished. */
  readonly ended: readonly { readonly key: string; readonly end: "drained" | "deadline" | "vanished" }[];
}

/** The real servers of one node that leave, both families. */
export class Terminations {
  readonly #deadlineMs: number;
  /** By virtual and real server. */
  readonly #terminations = new Map<string, Termination>();

  /** @param deadlineMs how long one may last; 0: as long as its connections */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  /** All that leave now. One that comes back and leaves again is another one. */
  get all(): ReadonlySet<Termination> {
    return new Set(this.#terminations.values());
  }

  get size(): number {
    return this.#terminations.size;
  }

  /** The virtual servers that have some. */
  get virtualServers(): readonly VirtualServerName[] {
    return [...new Map([...this.all].map(({ virtualKey, virtual }) => [virtualKey, virtual])).values()];
  }

  /**
   * The lines of `ipvsadm -R` for a change, which the list takes over. If they are not carried out, everything must
   * be read again and {@linkcode Terminations.retain} be called.
   */
  take(change: ServerChange, nowMs: number): readonly string[] {
    const { server } = change;
    switch (change.kind) {
      case "deleteServer": {
        const virtualKey = virtualServerKey(server);
        for (const [key, one] of this.#terminations) {
          if (one.virtualKey === virtualKey) this.#terminations.delete(key);
        }
        break;
      }
      case "addReal":
        // It is still there, and so are its connections.
        if (this.#drop(server, change.real)) return [updateRealServerLine(server, change.real)];
        break;
      case "updateReal":
        this.#drop(server, change.real);
        break;
      case "removeReal": {
        // Connection tracking of UDP ends by idle time only, and clients of SCTP have other paths.
        if (!change.graceful || server.protocol !== "TCP") {
          this.#drop(server, change.real);
          break;
        }
        const { address, port, weight } = change.real;
        const key = keyOf(server, change.real);
        const virtualKey = virtualServerKey(server);
        // One that is in the list already keeps its time.
        if (!this.#terminations.has(key)) {
          this.#terminations.set(key, { virtualKey, virtual: server, real: change.real, sinceMs: nowMs });
        }
        return weight === 0 ? [] : [updateRealServerLine(server, { address, port, weight: 0 })];
      }
    }
    return [serverLine(change)];
  }

  /** Forgets those of `isConcerned` that the kernel does not have. */
  retain(
    saved: ReadonlyMap<string, SavedVirtualServer>,
    isConcerned: (virtual: VirtualServerName) => boolean,
  ): void {
    for (const [key, { virtualKey, virtual, real }] of this.#terminations) {
      const isThere = saved.get(virtualKey)?.realServers.has(realServerKey(real)) === true;
      if (isConcerned(virtual) && !isThere) this.#terminations.delete(key);
    }
  }

  /**
   * What the connections lead to.
   *
   * @param asked those that were in the list when the connections were counted; others are left alone
   */
  sweep(loads: Loads, nowMs: number, asked: ReadonlySet<Termination> = this.all): Sweep {
    const lines: string[] = [];
    const ended: { key: string; end: "drained" | "deadline" | "vanished" }[] = [];
    for (const [key, termination] of this.#terminations) {
      if (!asked.has(termination)) continue;
      const { virtualKey, virtual, real, sinceMs } = termination;
      const load = loads.get(virtualKey)?.get(realServerKey(real));
      const end = load === undefined ? "vanished" : this.#endOf(load, sinceMs, nowMs);
      if (end === null) continue;
      if (load !== undefined) lines.push(deleteRealServerLine(virtual, real));
      ended.push({ key, end });
    }
    return { lines, ended };
  }

  #endOf(load: RealServerLoad, sinceMs: number, nowMs: number): "drained" | "deadline" | null {
    if (load.activeConnections + load.inactiveConnections === 0) return "drained";
    return this.#deadlineMs > 0 && nowMs - sinceMs >= this.#deadlineMs ? "deadline" : null;
  }

  /** Takes over that a sweep was carried out. */
  finish({ ended }: Sweep): void {
    for (const { key } of ended) this.#terminations.delete(key);
  }

  /** When the time of the first one is up; infinite if none has a limit. */
  get nextDeadlineMs(): number {
    if (this.#deadlineMs === 0) return Infinity;
    let firstMs = Infinity;
    for (const { sinceMs } of this.all) firstMs = Math.min(firstMs, sinceMs);
    return firstMs + this.#deadlineMs;
  }

  #drop(virtual: VirtualServerName, real: RealServerName): boolean {
    // A first sync asks for each of 100,000 real servers, and none leaves.
    return this.size > 0 && this.#terminations.delete(keyOf(virtual, real));
  }
}

/** `ip:port/PROTO/rsip:rsport`. */
function keyOf(virtual: VirtualServerName, real: RealServerName): string {
  return `${virtualServerKey(virtual)}/${realServerKey(real)}`;
}

/** What a {@linkcode GracefulTermination} needs. */
export interface GracefulTerminationOptions {
  readonly ipvs: Ipvsadm;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a real server that leaves keeps its connections; 0: as long as they last. */
  readonly deadlineMs: number;
  /** Runs work while no sync does. */
  readonly exclusively: <T>(work: () => Promise<T>) => Promise<T>;
  /** Real servers go between two syncs. */
  readonly onDeletion: () => void;
}

/** Looks at the connections of the real servers that leave, and deletes those without. */
export class GracefulTermination {
  readonly #options: GracefulTerminationOptions;
  readonly #list: Terminations;
  readonly #end = new AbortController();
  #nextSweepMs = Infinity;
  #pauseMs = FIRST_SWEEP_MS;
  #wake = new AbortController();
  #loop: Promise<void> | undefined;

  constructor(options: GracefulTerminationOptions) {
    this.#options = options;
    this.#list = new Terminations(options.deadlineMs);
  }

  /** How many real servers are on their way out. */
  get size(): number {
    return this.#list.size;
  }

  /** The lines of `ipvsadm -R` for a change, in a sync; see {@linkcode Terminations.take}. */
  linesOf(change: ServerChange): readonly string[] {
    return this.#list.take(change, this.#options.clock.nowMs());
  }

  /** Takes over which servers of the family were found. */
  found(saved: ReadonlyMap<string, SavedVirtualServer>, family: "IPv4" | "IPv6"): void {
    this.#list.retain(saved, ({ address }) => address.includes(":") === (family === "IPv6"));
  }

  /** Real servers have begun to leave. */
  begin(): void {
    if (this.size === 0 || this.#end.signal.aborted) return;
    this.#pauseMs = FIRST_SWEEP_MS;
    this.#nextSweepMs = Math.min(this.#nextSweepMs, this.#options.clock.nowMs() + this.#pauseMs);
    if (this.#loop === undefined) this.#loop = this.#run();
    else this.#wake.abort();
  }

  /** Ends the work; what it waits for is found again by the next process. */
  async close(): Promise<void> {
    this.#end.abort();
    this.#wake.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    let lastSweepMs = -Infinity;
    while (!this.#end.signal.aborted && this.size > 0) {
      const deadlineMs = this.#list.nextDeadlineMs;
      // One that a failed sweep could not delete waits for the next one.
      const dueMs = deadlineMs > lastSweepMs ? Math.min(this.#nextSweepMs, deadlineMs) : this.#nextSweepMs;
      const waitMs = dueMs - clock.nowMs();
      if (waitMs > 0) {
        this.#wake = new AbortController();
        await clock.sleep(waitMs, this.#wake.signal);
        continue;
      }
      lastSweepMs = clock.nowMs();
      this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_SWEEP_PAUSE_MS);
      this.#nextSweepMs = lastSweepMs + this.#pauseMs;
      await this.#sweep();
    }
    // Nothing may happen between the last look at the list and this.
    this.#nextSweepMs = Infinity;
    this.#loop = undefined;
  }

  async #sweep(): Promise<void> {
    const { log, exclusively, onDeletion } = this.#options;
    try {
      // Between two syncs: all of these have lost their weight.
      const { asked, wanted } = await exclusively(() =>
        Promise.resolve({ asked: this.#list.all, wanted: this.#list.virtualServers })
      );
      // Where there are many servers this takes long, and no sync has to wait for it.
      const loads = await this.#loads(wanted);
      await exclusively(() => {
        onDeletion();
        return this.#delete(loads, asked);
      });
    } catch (error) {
      if (this.#end.signal.aborted) return;
      log.error("Cannot delete real servers, will try again", error, { waiting: this.size });
    }
  }

  async #delete(loads: Loads, asked: ReadonlySet<Termination>): Promise<void> {
    const { ipvs, clock, log } = this.#options;
    const sweep = this.#list.sweep(loads, clock.nowMs(), asked);
    if (sweep.lines.length > 0) await ipvs.restore(sweep.lines);
    this.#list.finish(sweep);
    for (const { key, end } of sweep.ended) {
      if (end === "deadline") {
        log.info("Deleted a real server with its connections: its time was up", { key });
      }
    }
    if (sweep.ended.length === 0) return;
    const deleted = sweep.lines.length;
    const counts = { deleted, vanished: sweep.ended.length - deleted, left: this.size };
    log.info("Deleted real servers", counts, 4);
  }

  async #loads(wanted: readonly VirtualServerName[]): Promise<Loads> {
    const { ipvs } = this.#options;
    const loads = new Map<string, ReadonlyMap<string, RealServerLoad>>();
    if (wanted.length > MAX_SINGLE_READS) {
      for (const [key, { realServers }] of await ipvs.loads()) loads.set(key, realServers);
      return loads;
    }
    for (const virtual of wanted) {
      const reals = await ipvs.listRealServers(virtual) ?? [];
      loads.set(virtualServerKey(virtual), new Map(reals.map((real) => [realServerKey(real), real])));
    }
    return loads;
  }
}
