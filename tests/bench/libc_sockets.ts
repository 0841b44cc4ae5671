/**
 * TCP sockets of libc, called without the runtime's event loop: what a load program costs is then little more than its system calls,
 * and it is not what a measurement measures. Linux only; needs `--allow-ffi`.
 *
 * @module
 */
import type { SocketAddress } from "../support/lab_sockets.ts";

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_SNDTIMEO = 21;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const SHUT_WR = 1;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const EPOLL_CTL_ADD = 1;
const BACKLOG = 4096;

/** What a socket may be waited for. */
export const EPOLLIN = 1;
export const EPOLLOUT = 4;

const libc = Deno.dlopen("libc.so.6", {
  socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
  setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
  bind: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  listen: { parameters: ["i32", "i32"], result: "i32" },
  accept: { parameters: ["i32", "pointer", "pointer"], result: "i32" },
  connect: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  shutdown: { parameters: ["i32", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  epoll_create1: { parameters: ["i32"], result: "i32" },
  epoll_ctl: { parameters: ["i32", "i32", "i32", "buffer"], result: "i32" },
  epoll_wait: { parameters: ["i32", "buffer", "i32", "i32"], result: "i32" },
}).symbols;

const ONE = new Uint8Array(new Int32Array([1]).buffer);

function checked(result: number, what: string): number {
  if (result < 0) throw new Error(`${what} failed`);
  return result;
}

function sockaddr({ ip, port }: SocketAddress): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, AF_INET, true);
  view.setUint16(2, port);
  bytes.set(ip.split(".").map(Number), 4);
  return bytes;
}

/** A listening socket; its descriptor. */
export function listenOn(at: SocketAddress): number {
  const socket = checked(libc.socket(AF_INET, SOCK_STREAM, 0), "socket");
  libc.setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, ONE, ONE.length);
  checked(libc.bind(socket, sockaddr(at), 16), `bind to ${at.ip}:${at.port}`);
  checked(libc.listen(socket, BACKLOG), "listen");
  return socket;
}

/** Takes the next connection, waiting for it; its descriptor. What is small is sent at once. */
export function acceptFrom(listener: number): number {
  const socket = checked(libc.accept(listener, null, null), "accept");
  libc.setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, ONE, ONE.length);
  return socket;
}

/**
 * A new connection; its descriptor. What is small is sent at once.
 *
 * @param limitMs how long it waits for the connection, and later until something can be sent; 0: as long as the kernel does
 * @throws {Error} if there is none
 */
export function connectTo(to: SocketAddress, limitMs = 0): number {
  const socket = checked(libc.socket(AF_INET, SOCK_STREAM, 0), "socket");
  libc.setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, ONE, ONE.length);
  if (limitMs > 0) {
    const seconds = Math.floor(limitMs / 1000);
    const limit = new Uint8Array(
      new BigInt64Array([BigInt(seconds), BigInt(Math.round((limitMs - seconds * 1000) * 1000))]).buffer,
    );
    checked(libc.setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, limit, limit.length), "setsockopt");
  }
  if (libc.connect(socket, sockaddr(to), 16) >= 0) return socket;
  closeSocket(socket);
  throw new Error(`connect to ${to.ip}:${to.port} failed`);
}

/** Sends what fits, waiting until something does; how many bytes that is. */
export function send(socket: number, bytes: Uint8Array<ArrayBuffer>): number {
  return checked(Number(libc.send(socket, bytes, BigInt(bytes.length), MSG_NOSIGNAL)), "send");
}

/** Sends what fits now; how many bytes that is, -1 for none or if the connection has failed. */
export function sendNow(socket: number, bytes: Uint8Array<ArrayBuffer>): number {
  return Number(libc.send(socket, bytes, BigInt(bytes.length), MSG_NOSIGNAL | MSG_DONTWAIT));
}

/** Waits for bytes; how many came, 0 at the end, -1 if the connection has failed. */
export function receive(socket: number, into: Uint8Array<ArrayBuffer>): number {
  return Number(libc.recv(socket, into, BigInt(into.length), 0));
}

/** Tells the other side that nothing more comes. */
export function endWriting(socket: number): void {
  libc.shutdown(socket, SHUT_WR);
}

export function closeSocket(socket: number): void {
  libc.close(socket);
}

/** Waits for many sockets at once. */
export class Poll {
  readonly #poll = checked(libc.epoll_create1(0), "epoll_create1");
  /** The kernel packs its events on this processor, and on no other. */
  readonly #eventBytes = Deno.build.arch === "x86_64" ? 12 : 16;
  readonly #events: Uint8Array<ArrayBuffer>;
  readonly #view: DataView;

  /** @param most how many are told of at a time */
  constructor(readonly most: number) {
    this.#events = new Uint8Array(this.#eventBytes * most);
    this.#view = new DataView(this.#events.buffer);
  }

  /** @param events {@linkcode EPOLLIN} or {@linkcode EPOLLOUT} */
  add(socket: number, events: number): void {
    const event = new Uint8Array(this.#eventBytes);
    const view = new DataView(event.buffer);
    view.setUint32(0, events, true);
    view.setInt32(this.#eventBytes - 8, socket, true);
    checked(libc.epoll_ctl(this.#poll, EPOLL_CTL_ADD, socket, event), "epoll_ctl");
  }

  /** The descriptors of those that are ready; waits until one is. */
  *wait(): Generator<number> {
    const count = libc.epoll_wait(this.#poll, this.#events, this.most, -1);
    for (let at = 0; at < count; at++) yield this.#view.getInt32((at + 1) * this.#eventBytes - 8, true);
  }

  close(): void {
    libc.close(this.#poll);
  }
}
