/**
 * What the load client is told to do, and what it tells.
 *
 * @module
 */
import type { SocketAddress } from "../support/lab_sockets.ts";

/** The first byte of a connection that only sends; any other begins a request. */
export const STREAM = 0x73;
/** How the backend tells a stream how much of it came: a number in network byte order. */
export const COUNT_BYTES = 8;
/** What a stream hands over with each call. */
export const WRITE_BYTES = 64 * 1024;
/** What a request and its answer have. */
export const REQUEST_BYTES = 100;

/** One job. */
export type LoadJob =
  /** Asks until there is an answer, for so long at most. */
  | { readonly kind: "reach"; readonly to: SocketAddress; readonly limitMs: number }
  /** So many streams at once, for so long; each is then closed by its half and waits for the backend's count. */
  | { readonly kind: "streams"; readonly to: SocketAddress; readonly count: number; readonly ms: number }
  /** So many small requests, one after the other, each on a connection of its own. */
  | { readonly kind: "requests"; readonly to: SocketAddress; readonly count: number };

/** What came of it. */
export interface LoadResult {
  readonly ms: number;
  /** Of all streams together, counted by the backend. */
  readonly bytes: number;
  /** How long each request took with the making of its connection, in milliseconds. */
  readonly timesMs: readonly number[];
}
