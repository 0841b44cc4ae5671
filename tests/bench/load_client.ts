/**
 * The client whose packets are measured: `deno run --allow-ffi load_client.ts` reads jobs from standard input, one in each
 * line, and writes what came of each. It works in one thread.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import {
  closeSocket,
  connectTo,
  endWriting,
  EPOLLOUT,
  Poll,
  receive,
  send,
  sendNow,
} from "./libc_sockets.ts";
import { LineReader } from "./line_reader.ts";
import {
  COUNT_BYTES,
  type LoadJob,
  type LoadResult,
  REQUEST_BYTES,
  STREAM,
  WRITE_BYTES,
} from "./load_jobs.ts";

const NOTHING = { bytes: 0, timesMs: [] } as const;
const request = new Uint8Array(REQUEST_BYTES).fill(0x72);
const answer = new Uint8Array(REQUEST_BYTES);

function receiveAll(socket: number, into: Uint8Array<ArrayBuffer>): void {
  for (let at = 0; at < into.length;) {
    const count = receive(socket, into.subarray(at));
    if (count <= 0) throw new Error(`The answer ended after ${at} of ${into.length} bytes`);
    at += count;
  }
}

function ask(socket: number): void {
  if (send(socket, request) !== REQUEST_BYTES) throw new Error("A request did not fit");
  receiveAll(socket, answer);
}

/** @returns how many bytes arrived, as the backend says */
function stream(to: SocketAddress, count: number, ms: number): number {
  const chunk = new Uint8Array(WRITE_BYTES).fill(STREAM);
  const poll = new Poll(count);
  const sockets = Array.from({ length: count }, () => connectTo(to));
  for (const socket of sockets) poll.add(socket, EPOLLOUT);
  let sent = 0;
  for (const endMs = performance.now() + ms; performance.now() < endMs;) {
    for (const socket of poll.wait()) {
      const taken = sendNow(socket, chunk);
      if (taken < 0) throw new Error("A stream was broken off");
      sent += taken;
    }
  }
  poll.close();
  for (const socket of sockets) endWriting(socket);
  let arrived = 0;
  for (const socket of sockets) {
    const counted = new Uint8Array(COUNT_BYTES);
    receiveAll(socket, counted);
    arrived += Number(new DataView(counted.buffer).getBigUint64(0));
    closeSocket(socket);
  }
  if (arrived !== sent) throw new Error(`${arrived} of ${sent} bytes arrived`);
  return arrived;
}

function requests(to: SocketAddress, count: number): number[] {
  const timesMs: number[] = [];
  for (let done = 0; done < count; done++) {
    const startMs = performance.now();
    const socket = connectTo(to);
    ask(socket);
    timesMs.push(performance.now() - startMs);
    closeSocket(socket);
  }
  return timesMs;
}

/**
 * A connection that began before the rules were there never finds its way: the kernel translates none that it knows already. So each
 * gets little time, and another is tried.
 */
const FIRST_CONNECT_MS = 500;

/** @throws {Error} if there is no answer in time */
async function reach(to: SocketAddress, limitMs: number): Promise<void> {
  for (const endMs = performance.now() + limitMs;;) {
    try {
      const socket = connectTo(to, FIRST_CONNECT_MS);
      ask(socket);
      closeSocket(socket);
      return;
    } catch (error) {
      if (performance.now() > endMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

async function carryOut(job: LoadJob): Promise<Partial<LoadResult>> {
  switch (job.kind) {
    case "reach":
      await reach(job.to, job.limitMs);
      return {};
    case "streams":
      return { bytes: stream(job.to, job.count, job.ms) };
    case "requests":
      return { timesMs: requests(job.to, job.count) };
  }
}

if (import.meta.main) {
  const lines = new LineReader(Deno.stdin.readable);
  for (let line = await lines.next(); line !== null; line = await lines.next()) {
    const startMs = performance.now();
    const outcome = await carryOut(JSON.parse(line));
    const ms = performance.now() - startMs;
    writeLine(JSON.stringify({ ...NOTHING, ...outcome, ms }));
  }
}
