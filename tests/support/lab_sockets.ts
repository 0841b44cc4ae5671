/**
 * Sockets straight from the C library: with a chosen source address, raw, or of protocols that the runtime does not support.
 * A socket belongs to the network namespace of the thread that made it, so this code runs in a lab agent's own thread.
 *
 * @module
 */

const LIBC = Deno.dlopen("libc.so.6", {
  open: { parameters: ["buffer", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  setns: { parameters: ["i32", "i32"], result: "i32" },
  socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
  bind: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  listen: { parameters: ["i32", "i32"], result: "i32" },
  accept4: { parameters: ["i32", "buffer", "buffer", "i32"], result: "i32" },
  connect: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  sendto: { parameters: ["i32", "buffer", "usize", "i32", "buffer", "u32"], result: "isize" },
  recvfrom: { parameters: ["i32", "buffer", "usize", "i32", "buffer", "buffer"], result: "isize" },
  setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
  getsockopt: { parameters: ["i32", "i32", "i32", "buffer", "buffer"], result: "i32" },
  getsockname: { parameters: ["i32", "buffer", "buffer"], result: "i32" },
  poll: { parameters: ["buffer", "u64", "i32"], result: "i32", nonblocking: true },
  pollNow: { name: "poll", parameters: ["buffer", "u64", "i32"], result: "i32" },
  shutdown: { parameters: ["i32", "i32"], result: "i32" },
  if_nametoindex: { parameters: ["buffer"], result: "u32" },
  __errno_location: { parameters: [], result: "pointer" },
});
const C = LIBC.symbols;

/** Longest single poll of a wait, lateness of a late poll, and number of late polls that are not counted. */
const [LOOK_MS, LATE_MS, LATE_LOOKS] = [250, 30, 2];

const AF_INET = 2;
const AF_INET6 = 10;
const AF_PACKET = 17;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const CLONE_NEWNET = 0x40000000;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
const SO_LINGER = 13;
const ETH_P_IP = 0x0800;
const IPPROTO_TCP = 6;
const TCP_INFO = 11;
/** Offsets in `struct tcp_info` of `tcpi_rtt` (microseconds), `tcpi_total_retrans`, `tcpi_dsack_dups`, and the length read of it. */
const [RTT_OFFSET, TOTAL_RETRANS_OFFSET, DSACK_DUPS_OFFSET, TCP_INFO_LENGTH] = [68, 100, 216, 220] as const;
/** Time after which a SYN is sent again. */
const SYN_TIMEOUT_US = 1_000_000;
const POLLIN = 1;
const POLLOUT = 4;
const SHUT_RDWR = 2;
/** Option by which SCTP reports refusals. */
const RECVERR = { IPv4: [0, 11], IPv6: [41, 25] } as const;
/** Option to bind to an address that only a route makes local. */
const FREEBIND = { IPv4: [0, 15], IPv6: [41, 78] } as const;
/** Reports a lost peer as an error instead of a signal. */
const MSG_NOSIGNAL = 0x4000;
const EAGAIN = 11;
const EINPROGRESS = 115;
const NAMES: Readonly<Record<number, string>> = {
  1: "EPERM",
  98: "EADDRINUSE",
  99: "EADDRNOTAVAIL",
  101: "ENETUNREACH",
  104: "ECONNRESET",
  111: "ECONNREFUSED",
  113: "EHOSTUNREACH",
};

/** Protocols with ports, and raw ones. */
export type SocketProtocol = "tcp" | "udp" | "sctp" | "icmp" | "rawTcp" | "rawSctp";

const PROTOCOLS: Readonly<Record<SocketProtocol, { type: number; number: number; number6?: number }>> = {
  tcp: { type: SOCK_STREAM, number: 6 },
  udp: { type: SOCK_DGRAM, number: 17 },
  sctp: { type: SOCK_STREAM, number: 132 },
  icmp: { type: SOCK_RAW, number: 1, number6: 58 },
  rawTcp: { type: SOCK_RAW, number: 6 },
  rawSctp: { type: SOCK_RAW, number: 132 },
};

/** One end of a connection. */
export interface SocketAddress {
  readonly ip: string;
  readonly port: number;
}

/** A call of the C library that failed. */
export class SocketError extends Error {
  constructor(call: string, readonly errno: number) {
    super(`${call}: ${NAMES[errno] ?? `errno ${errno}`}`);
  }
}

function errno(): number {
  const location = C.__errno_location();
  return location === null ? 0 : new Deno.UnsafePointerView(location).getInt32();
}

function check(call: string, result: number): number {
  if (result < 0) throw new SocketError(call, errno());
  return result;
}

function cString(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(`${text}\0`);
}

/** Network namespace of the process, in which threads begin. */
export const PROCESS_NETNS = "/proc/self/ns/net";

/** Moves this thread, and so its later sockets, into a namespace made by `ip netns add`, or into that of a file. */
export function enterNetns(name: string): void {
  const path = name.startsWith("/") ? name : `/run/netns/${name}`;
  const fd = check(`open ${path}`, C.open(cString(path), 0));
  check(`setns ${path}`, C.setns(fd, CLONE_NEWNET));
  C.close(fd);
}

/** Bytes of an address: 16 or 4. */
export function ipBytes(ip: string): number[] {
  if (!ip.includes(":")) return ip.split(".").map(Number);
  const [head = "", tail] = ip.split("::");
  const groups = (text: string): string[] => text === "" ? [] : text.split(":");
  const left = groups(head);
  const right = tail === undefined ? [] : groups(tail);
  const middle = Array.from({ length: 8 - left.length - right.length }, () => "0");
  return [...left, ...middle, ...right].flatMap((group) => {
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 255];
  });
}

/** Text of an address of 4 or 16 bytes, in the short form. */
function ipText(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, i) => ((bytes[2 * i]! << 8) | bytes[2 * i + 1]!).toString(16));
  const text = groups.join(":");
  const runs = [...text.matchAll(/(^|:)0(:0)+(?=:|$)/g)].map(([run]) => run);
  const longest = runs.reduce((best, run) => run.length > best.length ? run : best, "");
  if (longest === "") return text;
  return text.replace(longest, ":").replace(/^:(?!:)/, "::").replace(/(?<!:):$/, "::");
}

function encodeAddress({ ip, port }: SocketAddress): Uint8Array<ArrayBuffer> {
  const six = ip.includes(":");
  const bytes = new Uint8Array(six ? 28 : 16);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, six ? AF_INET6 : AF_INET, true);
  view.setUint16(2, port, false);
  bytes.set(ipBytes(ip), six ? 8 : 4);
  return bytes;
}

function decodeAddress(bytes: Uint8Array<ArrayBuffer>): SocketAddress {
  const view = new DataView(bytes.buffer);
  const six = view.getUint16(0, true) === AF_INET6;
  return { ip: ipText(six ? bytes.subarray(8, 24) : bytes.subarray(4, 8)), port: view.getUint16(2, false) };
}

function lengthOf(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new Uint32Array([size]).buffer);
}

/** Milliseconds to wait; or a function of the milliseconds left, called again when they seem to be over. */
export type Patience = number | (() => number);

/** A socket that never blocks its thread. */
export class Socket implements Disposable {
  readonly #fd: number;
  #open = true;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** A socket of the address's family. */
  static of(protocol: SocketProtocol, ip: string): Socket {
    const { type, number, number6 } = PROTOCOLS[protocol];
    const six = ip.includes(":");
    const flags = type | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const wanted = six ? number6 ?? number : number;
    const socket = new Socket(check(`socket ${protocol}`, C.socket(six ? AF_INET6 : AF_INET, flags, wanted)));
    if (protocol === "sctp") socket.#set(six ? RECVERR.IPv6 : RECVERR.IPv4, 1);
    return socket;
  }

  /** A socket that sends and receives whole Ethernet frames of IPv4 on one interface. */
  static frames(interfaceName: string): Socket {
    const protocol = ((ETH_P_IP & 255) << 8) | (ETH_P_IP >> 8);
    const socket = new Socket(
      check("socket packet", C.socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol)),
    );
    const address = new Uint8Array(20);
    const view = new DataView(address.buffer);
    view.setUint16(0, AF_PACKET, true);
    view.setUint16(2, ETH_P_IP, false);
    view.setInt32(4, C.if_nametoindex(cString(interfaceName)), true);
    check(`bind ${interfaceName}`, C.bind(socket.#fd, address, address.length));
    return socket;
  }

  #set([level, name]: readonly [number, number], value: number): void {
    check("setsockopt", C.setsockopt(this.#fd, level, name, lengthOf(value), 4));
  }

  /** Binds the socket, also to an address that is local by a route only, or not yet assigned. */
  bind(address: SocketAddress): void {
    const six = address.ip.includes(":");
    this.#set([SOL_SOCKET, SO_REUSEADDR], 1);
    this.#set(six ? FREEBIND.IPv6 : FREEBIND.IPv4, 1);
    const bytes = encodeAddress(address);
    check(`bind ${address.ip}:${address.port}`, C.bind(this.#fd, bytes, bytes.length));
  }

  listen(): void {
    check("listen", C.listen(this.#fd, 1024));
  }

  /** Waits for a connection; null if none comes in time. */
  async accept(timeoutMs: number): Promise<{ socket: Socket; from: SocketAddress } | null> {
    if (!await this.#wait(POLLIN, timeoutMs)) return null;
    const address = new Uint8Array(28);
    const fd = C.accept4(this.#fd, address, lengthOf(address.length), SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd < 0 ? null : { socket: new Socket(fd), from: decodeAddress(address) };
  }

  /**
   * Connects the socket; false if there is no answer in time.
   *
   * @throws {SocketError} if the connection is refused
   */
  async connect(to: SocketAddress, patience: Patience): Promise<boolean> {
    const bytes = encodeAddress(to);
    if (C.connect(this.#fd, bytes, bytes.length) === 0) return true;
    const code = errno();
    if (code !== EINPROGRESS) throw new SocketError("connect", code);
    if (!await this.#wait(POLLOUT, patience)) return false;
    this.#throwPending("connect");
    return true;
  }

  /** Sends all of a short message. */
  send(bytes: Uint8Array<ArrayBuffer>): void {
    check("send", Number(C.send(this.#fd, bytes, BigInt(bytes.length), MSG_NOSIGNAL)));
  }

  sendTo(bytes: Uint8Array<ArrayBuffer>, to: SocketAddress): void {
    const address = encodeAddress(to);
    const sent = C.sendto(this.#fd, bytes, BigInt(bytes.length), 0, address, address.length);
    check("sendto", Number(sent));
  }

  /**
   * The next message, with its source; null if none comes in time. Empty at the end of a stream.
   *
   * @throws {SocketError} e.g. if a datagram was refused
   */
  async receive(
    patience: Patience,
  ): Promise<{ bytes: Uint8Array<ArrayBuffer>; from: SocketAddress } | null> {
    if (!await this.#wait(POLLIN, patience)) return null;
    const buffer = new Uint8Array(2048);
    const address = new Uint8Array(28);
    const size = BigInt(buffer.length);
    const count = Number(C.recvfrom(this.#fd, buffer, size, 0, address, lengthOf(address.length)));
    if (count < 0 && errno() === EAGAIN) return null;
    check("recv", count);
    return { bytes: buffer.slice(0, count), from: decodeAddress(address) };
  }

  /** Ends pending calls that accept or receive. Listening SCTP sockets do not support it. */
  wake(): void {
    // It fails for sockets without a peer, but wakes waiting calls nevertheless.
    C.shutdown(this.#fd, SHUT_RDWR);
  }

  /**
   * True if the first packet of this TCP connection, or its answer, was lost. A SYN that was only sent again because the answer
   * took more than a second does not count: the answer echoes the timestamp of its SYN, which gives the round-trip time.
   */
  wasSynLost(): boolean {
    const view = this.#tcpInfo();
    return view.getUint32(TOTAL_RETRANS_OFFSET, true) > 0 &&
      view.getUint32(RTT_OFFSET, true) < SYN_TIMEOUT_US;
  }

  /**
   * Number of retransmitted segments of this TCP connection, SYNs included. Segments that the peer reported as duplicates do not
   * count: nothing was lost, only late.
   */
  lostSegments(): number {
    const view = this.#tcpInfo();
    return Math.max(0, view.getUint32(TOTAL_RETRANS_OFFSET, true) - view.getUint32(DSACK_DUPS_OFFSET, true));
  }

  #tcpInfo(): DataView {
    const state = new Uint8Array(TCP_INFO_LENGTH);
    check("getsockopt", C.getsockopt(this.#fd, IPPROTO_TCP, TCP_INFO, state, lengthOf(state.length)));
    return new DataView(state.buffer);
  }

  /** The socket's own address. */
  localAddress(): SocketAddress {
    const address = new Uint8Array(28);
    check("getsockname", C.getsockname(this.#fd, address, lengthOf(address.length)));
    return decodeAddress(address);
  }

  /** Closes a TCP connection at once, by a reset. */
  reset(): void {
    const atOnce = new Uint8Array(new Int32Array([1, 0]).buffer);
    check("setsockopt", C.setsockopt(this.#fd, SOL_SOCKET, SO_LINGER, atOnce, atOnce.length));
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    C.close(this.#fd);
  }

  async #wait(events: number, patience: Patience): Promise<boolean> {
    const request = new Uint8Array(8);
    const view = new DataView(request.buffer);
    view.setInt32(0, this.#fd, true);
    view.setInt16(4, events, true);
    // A wait occupies another thread and costs several times as much, and mostly the socket is ready.
    if (C.pollNow(request, 1n, 0) > 0) return true;
    if (typeof patience === "number") return await C.poll(request, 1n, Math.max(0, Math.ceil(patience))) > 0;
    // While this process stalled, servers mostly did, too: a poll that ended late does not count, unless all did.
    let [stoodMs, lateLooks] = [0, 0];
    for (let leftMs = patience();;) {
      const lookMs = Math.min(LOOK_MS, Math.max(0, Math.ceil(leftMs)));
      const startMs = performance.now();
      if (await C.poll(request, 1n, lookMs) > 0) return true;
      const tookMs = performance.now() - startMs;
      if (tookMs > lookMs + LATE_MS && lateLooks++ < LATE_LOOKS) stoodMs += tookMs;
      leftMs = patience() + stoodMs;
      if (leftMs <= 0) return false;
    }
  }

  #throwPending(call: string): void {
    const value = new Uint8Array(4);
    check("getsockopt", C.getsockopt(this.#fd, SOL_SOCKET, SO_ERROR, value, lengthOf(4)));
    const code = new DataView(value.buffer).getInt32(0, true);
    if (code !== 0) throw new SocketError(call, code);
  }
}
