/**
 * Accepting connections, for as long as the socket is there.
 *
 * @module
 */
import { systemClock } from "./clock.ts";
import { isOutOfDescriptors } from "./descriptors.ts";

const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 1_000;
const TELL_AGAIN_MS = 60_000;
/** A socket that fails this often in a row, for reasons of its own, is given up. */
const MAX_FAILURES = 20;

/** Clients without room that are taken at a time: a crowd must not keep the program from its work. */
const CROWD = 8;
const CROWD_PAUSE_MS = 10;

/** Vanished clients in a row after which timers and other sockets get their turn. */
const GONE_IN_A_ROW = 64;

/** Outcome of a new connection: `crowded` is taken in, but another one had to go. */
export type Admission = "admitted" | "crowded" | "refused";

/** A listener, the source of connections. */
export interface Acceptor<Connection> {
  accept(): Promise<Connection>;
  close(): void;
}

/** Receivers of failures. */
export interface AcceptFailures {
  readonly pool: {
    /** Called when the system has no descriptor left. */
    exhausted(): void;
  };
  /** Called for every failure; `isNews` at most once a minute. */
  readonly onFailure: (error: unknown, isNews: boolean) => void;
}

/**
 * Hands every connection to `take`. It waits for the end of what keeps it from accepting, such as a lack of descriptors.
 *
 * @returns when `stop` has aborted, or when the socket is broken; it is closed then
 */
export async function acceptAll<Connection extends Pick<Deno.Conn, "close">>(
  listener: Acceptor<Connection>,
  { pool, onFailure }: AcceptFailures,
  take: (socket: Connection) => Admission,
  stop: AbortSignal,
): Promise<void> {
  let failures = 0;
  let pauseMs = FIRST_PAUSE_MS;
  let crowded = 0;
  let gone = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  for (;;) {
    let socket: Connection;
    try {
      socket = await listener.accept();
    } catch (error) {
      if (stop.aborted) return;
      if (isClientGone(error)) {
        // However many vanished clients come, others have their turn.
        if (++gone % GONE_IN_A_ROW === 0) await systemClock.sleep(0, stop);
        continue;
      }
      const isOut = isOutOfDescriptors(error);
      if (isOut) pool.exhausted();
      failures++;
      const isNews = systemClock.nowMs() - toldMs >= TELL_AGAIN_MS;
      if (isNews) toldMs = systemClock.nowMs();
      onFailure(error, isNews);
      if (failures >= MAX_FAILURES && !isOut) {
        listener.close();
        return;
      }
      await systemClock.sleep(pauseMs, stop);
      if (stop.aborted) return;
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      continue;
    }
    if (stop.aborted) {
      socket.close();
      return;
    }
    failures = 0;
    pauseMs = FIRST_PAUSE_MS;
    crowded = take(socket) === "admitted" ? 0 : crowded + 1;
    if (crowded < CROWD) continue;
    crowded = 0;
    await systemClock.sleep(CROWD_PAUSE_MS, stop);
  }
}

/**
 * True for a client that was gone before it was accepted, which says nothing about the socket: any client can be one as often as it likes.
 * Of one that has reset its connection the runtime only finds out that it has no address any more.
 */
function isClientGone(error: unknown): boolean {
  const { ConnectionAborted, ConnectionReset, NotConnected } = Deno.errors;
  return error instanceof ConnectionAborted || error instanceof ConnectionReset ||
    error instanceof NotConnected;
}
