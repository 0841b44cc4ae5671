/**
 * Connections that can be given up while they are opened.
 *
 * @module
 */
import type { EventEmitter } from "node:events";
import { createConnection, type Socket } from "node:net";

/**
 * A connection to `host`.
 *
 * @throws {Error} if nobody answers there
 * @throws what `signal` was aborted with
 */
export function openSocket(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  const socket = createConnection({ host, port });
  return whileOpening(socket, "connect", signal, () => socket);
}

/**
 * Resolves to `take(…)` of the `event` of something that is being opened. If that fails, or `signal` aborts before, what is
 * being opened is destroyed.
 *
 * @throws what it fails with, or `signal` was aborted with
 */
export function whileOpening<V extends unknown[], T>(
  opening: EventEmitter & { destroy(): unknown },
  event: string,
  signal: AbortSignal,
  take: (...values: V) => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (): void => fail(signal.reason);
    const leave = (): void => {
      signal.removeEventListener("abort", end);
      opening.off(event, succeed);
    };
    // Listens on after a failure: what is destroyed may complain once more, and an error without a listener ends the program.
    const fail = (error: unknown): void => {
      leave();
      opening.destroy();
      reject(error);
    };
    const succeed = (...values: V): void => {
      leave();
      opening.off("error", fail);
      resolve(take(...values));
    };
    opening.on("error", fail);
    opening.on(event, succeed);
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
  });
}
