/**
 * How many connections clients may keep open, and which has to go when there are too many.
 *
 * @module
 */
import type { Admission } from "../kernel/accept_loop.ts";
import { DescriptorAllowance } from "../kernel/descriptors.ts";

/** What a connection does; whoever waits for its client has to go first. */
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
  /** When its client must have done its part, in milliseconds. */
  readonly deadlineMs: number;
  /** How much of an answer is kept that its client has not taken yet. */
  readonly unsentBytes: number;
  /** Closes it at once. */
  close(): void;
}

/** The connections of one listener. */
export interface Lane {
  /** For metrics: `healthz`, `metrics`, `service-health`. */
  readonly server: string;
  /** How many it may have open. */
  readonly most: number;
}

/** Hears of everything that a pool decides. */
export interface PoolObserver {
  /** So many connections of the server's are open now. */
  open(server: string, count: number): void;
  closed(server: string, reason: CloseReason): void;
  /** The server could not listen, or not accept a connection. */
  failed(server: string): void;
}

/** What a {@linkcode ConnectionPool} needs. */
export interface ConnectionPoolOptions {
  /** How many connections all listeners together may have. @default {256} */
  readonly most?: number;
  /** How many they may have however few descriptors there are. @default {8} */
  readonly least?: number;
  readonly allowance?: DescriptorAllowance;
  readonly observer?: PoolObserver;
  /** Milliseconds, monotonic. @default {performance.now} */
  readonly nowMs?: () => number;
}

/** Few enough for the least limit of descriptors that there is (1,024) to leave most of them to the tools. */
const MOST = 256;
/** Who cannot be asked counts as dead: some are answered out of what is kept for the tools. */
const LEAST = 8;
/** How long an answer is left alone that its client does not take. */
const WRITING_GRACE_MS = 2_000;
const SWEEP_MS = 500;
/** The metrics of a large node are 10 MB. */
const MAX_UNSENT_BYTES = 64 * 1024 * 1024;

/**
 * The connections of all listeners. When there are too many, the client with the most of them loses the one that has waited
 * longest: who asks at once is answered, however many others only keep connections open.
 */
export class ConnectionPool {
  /** To be asked for every other socket that stays open. */
  readonly allowance: DescriptorAllowance;
  readonly #most: number;
  readonly #least: number;
  readonly #observer: PoolObserver | undefined;
  readonly #nowMs: () => number;
  readonly #lanes = new Map<PooledConnection, Lane>();
  /** Those that the allowance was asked for. */
  readonly #given = new Set<PooledConnection>();
  readonly #counts = new Map<Lane, number>();
  #sweep: ReturnType<typeof setInterval> | undefined;

  constructor(
    {
      most = MOST,
      least = LEAST,
      allowance = new DescriptorAllowance(),
      observer,
      nowMs = () => performance.now(),
    }: ConnectionPoolOptions = {},
  ) {
    this.#most = most;
    this.#least = least;
    this.allowance = allowance;
    this.#observer = observer;
    this.#nowMs = nowMs;
  }

  /** Milliseconds, monotonic: what phases are measured with. */
  nowMs(): number {
    return this.#nowMs();
  }

  /**
   * Takes a connection in, if need be in another one's place. It is refused, and closed, if everybody else is being answered.
   */
  admit(connection: PooledConnection, lane: Lane): Admission {
    const before = this.#lanes.size;
    if (!this.#makeRoom(lane, connection)) {
      connection.close();
      this.#observer?.closed(lane.server, "refused");
      return "refused";
    }
    const isCrowded = this.#lanes.size < before;
    this.#lanes.set(connection, lane);
    this.#count(lane, 1);
    this.#sweep ??= setInterval(() => this.#closeOverdue(), SWEEP_MS);
    return isCrowded ? "crowded" : "admitted";
  }

  /**
   * The connection's answer is ready. If too much is kept for clients that do not read, they have to go first.
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

  /** The connection is closed. */
  leave(connection: PooledConnection): void {
    const lane = this.#lanes.get(connection);
    if (lane === undefined) return;
    this.#lanes.delete(connection);
    this.#count(lane, -1);
    if (this.#given.delete(connection)) this.allowance.giveBack();
    if (this.#lanes.size > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  /** A socket of the lane cannot be opened, or cannot accept. */
  failed({ server }: Lane): void {
    this.#observer?.failed(server);
  }

  /** The system has no descriptor left: half of the connections go that wait for their clients. */
  exhausted(): void {
    const waiting = [...this.#lanes.keys()].filter(({ phase }) => phase === "waiting");
    waiting.sort((one, other) => one.sinceMs - other.sinceMs);
    for (const connection of waiting.slice(0, Math.ceil(waiting.length / 2))) {
      this.#end(connection, "evicted");
    }
    this.allowance.exhausted();
  }

  #count(lane: Lane, more: 1 | -1): void {
    const count = (this.#counts.get(lane) ?? 0) + more;
    if (count === 0) this.#counts.delete(lane);
    else this.#counts.set(lane, count);
    let ofServer = 0;
    for (const [{ server }, open] of this.#counts) if (server === lane.server) ofServer += open;
    this.#observer?.open(lane.server, ofServer);
  }

  #makeRoom(lane: Lane, connection: PooledConnection): boolean {
    const { client } = connection;
    const isLaneFull = (this.#counts.get(lane) ?? 0) >= lane.most;
    if (isLaneFull && !this.#evict(lane, client)) return false;
    if (this.#lanes.size >= this.#most && !this.#evict(null, client)) return false;
    if (this.#lanes.size < this.#least) return true;
    // Whoever is evicted gives its descriptor back, if it was given one.
    const isTaken = this.allowance.take() || (this.#evict(null, client) && this.allowance.take());
    if (isTaken) this.#given.add(connection);
    return isTaken || this.#lanes.size < this.#least;
  }

  /** Ends one connection, of the lane if there is one, for a new one of `client`; false if nobody has to go for that. */
  #evict(lane: Lane | null, client: string): boolean {
    const all = [...this.#lanes].filter(([, of]) => lane === null || of === lane).map(([connection]) =>
      connection
    );
    const counts = new Map<string, number>();
    for (const { client } of all) counts.set(client, (counts.get(client) ?? 0) + 1);
    const share = (of: string): number => counts.get(of) ?? 0;
    // Nobody loses a place to a client that has more of them.
    const others = all.filter((other) => share(other.client) >= share(client));
    const victim = [
      others.filter(({ phase }) => phase === "waiting"),
      others.filter((other) => this.#isStuck(other)),
      // Whoever has many places gives one to whoever has fewer, whatever it is doing.
      others.filter((other) => share(other.client) > share(client) + 1),
    ].find((candidates) => candidates.length > 0)
      ?.sort((one, other) => share(other.client) - share(one.client) || one.sinceMs - other.sinceMs)[0];
    if (victim === undefined) return false;
    this.#end(victim, "evicted");
    return true;
  }

  /** Its client does not take the answer. */
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
    this.#observer?.closed(server, reason);
  }
}
