/**
 * Real servers on their way out: they get no new connections, and are deleted when the ones they have are gone, or when
 * their time is up.
 *
 * Memory only. What a killed process left shows up in the next full sync as present and unwanted, and comes in again.
 *
 * @module
 */
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
import { serverLine } from "./render.ts";
import type { ServerChange } from "../plan/ruleset.ts";

/** One of them. */
export interface Termination {
  readonly virtual: VirtualServerName;
  readonly real: RealServerName;
  readonly sinceMs: number;
}

/** Why one is deleted. */
export type TerminationEnd = "drained" | "deadline";

/** What a look at the connections leads to. */
export interface Sweep {
  /** Lines of `ipvsadm -R`. */
  readonly lines: readonly string[];
  readonly ended: readonly { readonly key: string; readonly end: TerminationEnd }[];
  /** Keys of those that somebody else has deleted. */
  readonly vanished: readonly string[];
}

/** `ip:port/PROTO/rsip:rsport`. */
function terminationKey(virtual: VirtualServerName, real: RealServerName): string {
  return `${virtualServerKey(virtual)}/${realServerKey(real)}`;
}

/** The list of one node, both families. */
export class Terminations {
  readonly #deadlineMs: number;
  /** Virtual server → real server → entry: a virtual server that goes takes all of its own along. */
  readonly #entries = new Map<string, Map<string, Termination>>();
  #size = 0;

  /** @param deadlineMs how long one may last; 0: as long as its connections */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  get size(): number {
    return this.#size;
  }

  /** The virtual servers that have some. */
  get virtualServers(): readonly VirtualServerName[] {
    return [...this.#entries.values()].flatMap((entries) =>
      [...entries.values()].slice(0, 1).map(({ virtual }) => virtual)
    );
  }

  /** All that are in the list now. One that goes and comes again is another one. */
  all(): ReadonlySet<Termination> {
    return new Set([...this.#entries.values()].flatMap((entries) => [...entries.values()]));
  }

  has(virtual: VirtualServerName, real: RealServerName): boolean {
    return this.#entries.get(virtualServerKey(virtual))?.has(realServerKey(real)) === true;
  }

  /**
   * The lines of `ipvsadm -R` for the changes, which the list takes over. If they are not carried out, everything must
   * be read again and {@linkcode retain} be called.
   */
  take(changes: readonly ServerChange[], nowMs: number): string[] {
    return changes.flatMap((change) => this.#takeOne(change, nowMs));
  }

  #takeOne(change: ServerChange, nowMs: number): readonly string[] {
    const { server } = change;
    switch (change.kind) {
      case "deleteServer":
        this.#dropServer(virtualServerKey(server));
        break;
      case "addReal":
        // It is still there, and so are its connections.
        return [
          this.#drop(server, change.real) ? updateRealServerLine(server, change.real) : serverLine(change),
        ];
      case "updateReal":
        this.#drop(server, change.real);
        break;
      case "removeReal": {
        // Connection tracking of UDP ends by idle time only, and clients of SCTP have other paths.
        if (!change.graceful || server.protocol !== "TCP") {
          this.#drop(server, change.real);
          break;
        }
        this.#add({ virtual: server, real: change.real, sinceMs: nowMs });
        const { address, port, weight } = change.real;
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
    for (const [key, entries] of [...this.#entries]) {
      for (const [realKey, { virtual, real }] of [...entries]) {
        if (isConcerned(virtual) && saved.get(key)?.realServers.has(realKey) !== true) {
          this.#drop(virtual, real);
        }
      }
    }
  }

  /**
   * What the connections of these virtual servers lead to. A virtual server that is not there has none.
   *
   * @param asked those that were in the list when the connections were counted; others are left alone
   */
  sweep(
    loads: ReadonlyMap<string, readonly RealServerLoad[]>,
    nowMs: number,
    asked: ReadonlySet<Termination> = this.all(),
  ): Sweep {
    const lines: string[] = [];
    const ended: { key: string; end: TerminationEnd }[] = [];
    const vanished: string[] = [];
    for (const [virtualKey, entries] of this.#entries) {
      const reals = new Map((loads.get(virtualKey) ?? []).map((real) => [realServerKey(real), real]));
      for (const [realKey, termination] of entries) {
        if (!asked.has(termination)) continue;
        const { virtual, real, sinceMs } = termination;
        const key = terminationKey(virtual, real);
        const load = reals.get(realKey);
        const end = load === undefined ? null : this.#endOf(load, sinceMs, nowMs);
        if (load === undefined) vanished.push(key);
        if (end === null) continue;
        lines.push(deleteRealServerLine(virtual, real));
        ended.push({ key, end });
      }
    }
    return { lines, ended, vanished };
  }

  #endOf(load: RealServerLoad, sinceMs: number, nowMs: number): TerminationEnd | null {
    if (load.activeConnections + load.inactiveConnections === 0) return "drained";
    return this.#deadlineMs > 0 && nowMs - sinceMs >= this.#deadlineMs ? "deadline" : null;
  }

  /** Takes over that a sweep was carried out. */
  finish({ ended, vanished }: Sweep): void {
    const gone = new Set([...ended.map(({ key }) => key), ...vanished]);
    for (const entries of [...this.#entries.values()]) {
      for (const { virtual, real } of [...entries.values()]) {
        if (gone.has(terminationKey(virtual, real))) this.#drop(virtual, real);
      }
    }
  }

  /** When the time of the first one is up; infinite if none has a limit. */
  get nextDeadlineMs(): number {
    if (this.#deadlineMs === 0) return Infinity;
    let firstMs = Infinity;
    for (const entries of this.#entries.values()) {
      for (const { sinceMs } of entries.values()) firstMs = Math.min(firstMs, sinceMs);
    }
    return firstMs + this.#deadlineMs;
  }

  /** One that is in the list already keeps its time. */
  #add(entry: Termination): void {
    const key = virtualServerKey(entry.virtual);
    const entries = this.#entries.get(key) ?? new Map<string, Termination>();
    this.#entries.set(key, entries);
    if (entries.has(realServerKey(entry.real))) return;
    entries.set(realServerKey(entry.real), entry);
    this.#size++;
  }

  #drop(virtual: VirtualServerName, real: RealServerName): boolean {
    // A first sync asks for each of 100,000 real servers, and none is on its way out.
    if (this.#size === 0) return false;
    const key = virtualServerKey(virtual);
    const entries = this.#entries.get(key);
    if (entries?.delete(realServerKey(real)) !== true) return false;
    this.#size--;
    if (entries.size === 0) this.#entries.delete(key);
    return true;
  }

  #dropServer(key: string): void {
    this.#size -= this.#entries.get(key)?.size ?? 0;
    this.#entries.delete(key);
  }
}
