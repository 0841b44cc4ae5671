/**
 * The backend to which measured packets go: `deno run --allow-ffi load_server.ts IP PORT`, in one thread. A connection whose
 * first byte is {@linkcode STREAM} is read to its end and told how many bytes came, as eight bytes; any other gets back what it sends.
 *
 * @module
 */
import { COUNT_BYTES, STREAM } from "./load_jobs.ts";
import { writeLine } from "../../tools/output.ts";
import { acceptFrom, closeSocket, EPOLLIN, listenOn, Poll, receive, send } from "./libc_sockets.ts";

/** More than one write of the client, so that reading costs less than writing. */
const BUFFER_BYTES = 256 * 1024;
const MOST_AT_ONCE = 64;

function serve(ip: string, port: number): never {
  const listener = listenOn({ ip, port });
  const poll = new Poll(MOST_AT_ONCE);
  poll.add(listener, EPOLLIN);
  writeLine("ready");
  const buffer = new Uint8Array(BUFFER_BYTES);
  /** Bytes of each stream so far. */
  const streams = new Map<number, number>();
  const told = new Set<number>();
  for (;;) {
    for (const socket of poll.wait()) {
      if (socket === listener) {
        poll.add(acceptFrom(listener), EPOLLIN);
        continue;
      }
      const count = receive(socket, buffer);
      const before = streams.get(socket);
      const isStream = before !== undefined || count > 0 && buffer[0] === STREAM && !told.has(socket);
      if (count > 0) {
        if (isStream) streams.set(socket, (before ?? 0) + count);
        else {
          told.add(socket);
          send(socket, buffer.subarray(0, count));
        }
        continue;
      }
      if (count === 0 && before !== undefined) send(socket, countBytes(before));
      streams.delete(socket);
      told.delete(socket);
      closeSocket(socket);
    }
  }
}

function countBytes(count: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(COUNT_BYTES);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(count));
  return bytes;
}

if (import.meta.main) serve(Deno.args[0] ?? "", Number(Deno.args[1]));
