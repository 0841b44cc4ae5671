/**
 * Limits how many connections clients keep open, and picks the one to end when there are too many.
 *
 * @module
 */
import { parseCidr } from "../model/ip.ts";
import type { Admission } from "./accept_loop.ts";
import { DescriptorAllowance } from "./descriptors.ts";

/** Phase of a connection; one that waits for its client is closed first. */
export type ConnectionPhase = "waiting" | "answering" | "writing";

/** Why a connection was ended before its client did. */
export type CloseReason = "evicted" | "refused" | "timeout";

/** One open connection, as the pool sees it. */
export interface PooledConnection {
  /** Connections of one client: its address, or its network where addresses are to be had by the million. */
  readonly client: string;
  readonly phase: ConnectionPhase;
  /** When it entered the phase, in milliseconds. */
  readonly sinceMs: number;
  /** Deadline for its client's part, in milliseconds. */
  readonly deadlineMs: number;
  /** Bytes of its answer that its client has not taken yet. */
  readonly unsentBytes: number;
  /** Number of descriptors that it takes. Default: 1. */
  readonly descriptors?: number;
  /** Closes it at once. */
  close(): void;
}

/** The `client` of a {@linkcode PooledConnection}: the owner of one address of an IPv6 network can have all of them. */
export function clientOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, "").split("%", 1)[0]!;
  return plain.includes(":") ? parseCidr(`${plain}/64`)?.text ?? plain : plain;
}

/** Connections that are counted together, such as those of one listener. */
export interface Lane {
  /** For metrics, e.g. `healthz`, `metrics`, `service-health`. */
  readonly server: string;
  /** Limit of its open connections. */
  readonly most: number;
}

/** Observer of a pool's decisions. */
export interface PoolObserver {
  /** `count` connections of the server are open now. */
  open(server: string, count: number): void;
  closed(server: string, reason: CloseReason, client: string): void;
  /** Called when the server could not listen, or not accept a connection. */
  failed(server: string): void;
}

/** Options of a {@linkcode ConnectionPool}. */
export interface ConnectionPoolOptions {
  /** How many connections all listeners together may have. @default {256} */
  readonly most?: number;
  /** How many they may have however few descriptors there are. @default {8} */
  readonly least?: number;
  /**
   * False: none is ended because it waits (why is unknown). Only a client with more places than the new one loses one.
   * @default {true}
   */
  readonly endsWaiting?: boolean;
  readonly allowance?: DescriptorAllowance;
  readonly observer?: PoolObserver;
  /** Milliseconds, monotonic. @default {performance.now} */
  readonly nowMs?: () => number;
}

/** Few enough for the least limit of descriptors that there is (1,024) to leave most of them to the tools. */
const MOST = 256;
/** A server that does not answer counts as dead: some clients are answered with descriptors kept for the tools. */
const LEAST = 8;
/** How long an answer that its client does not take is left alone. */
const WRITING_GRACE_MS = 2_000;
const SWEEP_MS = 500;
/** The metrics of a large node are 10 MB. */
const MAX_UNSENT_BYTES = 64 * 1024 * 1024;

/** The connections of each client. */
class Shares {
  readonly #clients = new Map<string, Set<PooledConnection>>();
  /** Number of connections → the clients that have so many. */
  readonly #bySize = new Map<number, Set<string>>();
  /** Number of connections of the client with the most. */
  #greatest = 0;
  #size = 0;

  /** Number of all connections. */
  get size(): number {
    return this.#size;
  }

  /** Number of connections of one client. */
  of(client: string): number {
    return this.#clients.get(client)?.size ?? 0;
  }

  /** Yields the connections of clients that have at least `least` each, those with the most first. */
  *from(least: number): Generator<readonly PooledConnection[]> {
    for (let size = this.#greatest; size >= Math.max(least, 1); size--) {
      const clients = [...this.#bySize.get(size) ?? []];
      if (clients.length > 0) yield clients.flatMap((client) => [...this.#clients.get(client) ?? []]);
    }
  }

  add(connection: PooledConnection): void {
    const { client } = connection;
    const own = this.#clients.get(client) ?? new Set();
    this.#clients.set(client, own.add(connection));
    this.#resize(client, own.size - 1, own.size);
    this.#size++;
  }

  delete(connection: PooledConnection): void {
    const { client } = connection;
    const own = this.#clients.get(client);
    if (own?.delete(connection) !== true) return;
    if (own.size === 0) this.#clients.delete(client);
    this.#resize(client, own.size + 1, own.size);
    this.#size--;
  }

  #resize(client: string, before: number, now: number): void {
    const former = this.#bySize.get(before);
    former?.delete(client);
    if (former?.size === 0) this.#bySize.delete(before);
    if (now > 0) this.#bySize.set(now, (this.#bySize.get(now) ?? new Set()).add(client));
    if (now > this.#greatest || this.#greatest === before && !this.#bySize.has(before)) this.#greatest = now;
  }
}

/**
 * The connections of all listeners. When there are too many, the client with the most of them loses the one that has waited
 * longest: a client that asks at once is answered, however many others only keep connections open.
 */
export class ConnectionPool {
  /** Allowance to be asked for every other socket that stays open. */
  readonly allowance: DescriptorAllowance;
  readonly #most: number;
  readonly #least: number;
  readonly #endsWaiting: boolean;
  readonly #observer: PoolObserver | undefined;
  readonly #nowMs: () => number;
  readonly #lanes = new Map<PooledConnection, Lane>();
  /** Connections that the allowance was asked for. */
  readonly #given = new Set<PooledConnection>();
  readonly #all = new Shares();
  readonly #ofLane = new Map<Lane, Shares>();
  #sweep: ReturnType<typeof setInterval> | undefined;

  constructor(
    {
      most = MOST,
      least = LEAST,
      endsWaiting = true,
      allowance = new DescriptorAllowance(),
      observer,
      nowMs = () => performance.now(),
    }: ConnectionPoolOptions = {},
  ) {
    this.#most = most;
    this.#least = least;
    this.#endsWaiting = endsWaiting;
    this.allowance = allowance;
    this.#observer = observer;
    this.#nowMs = nowMs;
  }

  /** Milliseconds, monotonic: what phases are measured with. */
  nowMs(): number {
    return this.#nowMs();
  }

  /**
   * Takes a connection in, if need be in another one's place. It is refused, and closed, if all other clients are being answered.
   */
  admit(connection: PooledConnection, lane: Lane): Admission {
    const before = this.#lanes.size;
    if (!this.#makeRoom(lane, connection)) {
      connection.close();
      this.#observer?.closed(lane.server, "refused", connection.client);
      return "refused";
    }
    const isCrowded = this.#lanes.size < before;
    this.#lanes.set(connection, lane);
    this.#all.add(connection);
    this.#sharesOf(lane).add(connection);
    this.#report(lane);
    if (connection.deadlineMs < Infinity) {
      this.#sweep ??= setInterval(() => this.#closeOverdue(), SWEEP_MS);
    }
    return isCrowded ? "crowded" : "admitted";
  }

  /**
   * Called when the connection's answer is ready. If too much is kept for clients that do not read, those go first.
   *
   * @returns false if it is too much all the same; the connection is closed
   */
  mayWrite(connection: PooledConnection): boolean {
    const others = (): number => {
      let bytes = 0;
      for (const other of this.#lanes.keys()) if (other !== connection) bytes += other.unsentBytes;
      return bytes;
    };
    const isTooMuch = (): boolean => others() > 0 && others() + connection.unsentBytes > MAX_UNSENT_BYTES;
    while (isTooMuch()) {
      const [oldest] = [...this.#lanes.keys()].filter((other) => this.#isStuck(other))
        .sort((one, other) => one.sinceMs - other.sinceMs);
      if (oldest === undefined) {
        this.#end(connection, "refused");
        return false;
      }
      this.#end(oldest, "evicted");
    }
    return true;
  }

  /** Removes a connection that is closed. */
  leave(connection: PooledConnection): void {
    const lane = this.#lanes.get(connection);
    if (lane === undefined) return;
    this.#lanes.delete(connection);
    this.#all.delete(connection);
    const shares = this.#sharesOf(lane);
    shares.delete(connection);
    if (shares.size === 0) this.#ofLane.delete(lane);
    this.#report(lane);
    if (this.#given.delete(connection)) this.#giveBack(connection.descriptors);
    if (this.#lanes.size > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  /** Reports a socket of the lane that cannot be opened, or cannot accept. */
  failed({ server }: Lane): void {
    this.#observer?.failed(server);
  }

  /** The system has no descriptor left: ends half of the connections that wait for their clients. */
  exhausted(): void {
    const waiting = [...this.#lanes.keys()].filter(({ phase }) => phase === "waiting");
    waiting.sort((one, other) => one.sinceMs - other.sinceMs);
    for (const connection of waiting.slice(0, Math.ceil(waiting.length / 2))) {
      this.#end(connection, "evicted");
    }
    this.allowance.exhausted();
  }

  /** Number of connections, of the lane or of all. */
  count(lane?: Lane): number {
    return lane === undefined ? this.#lanes.size : this.#ofLane.get(lane)?.size ?? 0;
  }

  /** Number of connections of a client. */
  countOf(client: string): number {
    return this.#all.of(client);
  }

  #sharesOf(lane: Lane): Shares {
    const known = this.#ofLane.get(lane);
    if (known !== undefined) return known;
    const shares = new Shares();
    this.#ofLane.set(lane, shares);
    return shares;
  }

  #report({ server }: Lane): void {
    if (this.#observer === undefined) return;
    let ofServer = 0;
    for (const [lane, { size }] of this.#ofLane) if (lane.server === server) ofServer += size;
    this.#observer.open(server, ofServer);
  }

  #makeRoom(lane: Lane, connection: PooledConnection): boolean {
    const { client, descriptors } = connection;
    if (this.count(lane) >= lane.most && !this.#evict(this.#sharesOf(lane), client)) return false;
    if (this.#lanes.size >= this.#most && !this.#evict(this.#all, client)) return false;
    if (this.#lanes.size < this.#least) return true;
    // A connection that is ended gives its descriptors back, if it was given any.
    for (;;) {
      if (this.#take(descriptors)) {
        this.#given.add(connection);
        return true;
      }
      if (!this.#evict(this.#all, client)) return this.#lanes.size < this.#least;
      if (this.#lanes.size < this.#least) return true;
    }
  }

  /** Takes all descriptors or none. */
  #take(descriptors = 1): boolean {
    for (let taken = 0; taken < descriptors; taken++) {
      if (this.allowance.take()) continue;
      this.#giveBack(taken);
      return false;
    }
    return true;
  }

  #giveBack(descriptors = 1): void {
    for (let given = 0; given < descriptors; given++) this.allowance.giveBack();
  }

  /** Ends one of these connections for a new one of `client`; false if none has to go for that. */
  #evict(among: Shares, client: string): boolean {
    const share = among.of(client);
    const isWaiting = ({ phase }: PooledConnection): boolean => phase === "waiting";
    const isStuck = (other: PooledConnection): boolean => this.#isStuck(other);
    // No client loses a place to one that has more of them. One that has many gives one to one that has few, whatever it is doing.
    const victim =
      (this.#endsWaiting
        ? oldestOf(among.from(share), isWaiting) ?? oldestOf(among.from(share), isStuck)
        : undefined) ?? oldestOf(among.from(share + 2), () => true);
    if (victim === undefined) return false;
    this.#end(victim, "evicted");
    return true;
  }

  /** True if its client does not take the answer. */
  #isStuck({ phase, sinceMs }: PooledConnection): boolean {
    return phase === "writing" && sinceMs <= this.#nowMs() - WRITING_GRACE_MS;
  }

  #closeOverdue(): void {
    const nowMs = this.#nowMs();
    for (const connection of [...this.#lanes.keys()]) {
      if (connection.deadlineMs <= nowMs) this.#end(connection, "timeout");
    }
  }

  #end(connection: PooledConnection, reason: CloseReason): void {
    const server = this.#lanes.get(connection)?.server ?? "";
    this.leave(connection);
    connection.close();
    this.#observer?.closed(server, reason, connection.client);
  }
}

/** The connection that is in its phase for longest, of the first group that has one that `isMeant`. */
function oldestOf(
  groups: Iterable<readonly PooledConnection[]>,
  isMeant: (connection: PooledConnection) => boolean,
): PooledConnection | undefined {
  for (const group of groups) {
    let oldest: PooledConnection | undefined;
    for (const one of group) {
      if (isMeant(one) && (oldest === undefined || one.sinceMs < oldest.sinceMs)) oldest = one;
    }
    if (oldest !== undefined) return oldest;
  }
  return undefined;
}
