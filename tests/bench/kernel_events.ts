/**
 * Follows what the kernel says about nftables in its own network namespace, and writes a line for each commit:
 * `{ atMs, added }` with the addresses of 10.0.0.0/8 in the rules and elements that came, each as the chain, set or map and four bytes in
 * hexadecimal (`KUBE-SERVICES 0a60000b`), of many only the first ones; `{ lost: true }` where the kernel dropped messages; at first a
 * line `{ ready: true }`.
 *
 * `nft monitor` shows the same, but loads all elements before it begins, and again after every commit that it has not seen
 * from the start: at 100,000 elements that is 150 MB and seconds of a core. This needs neither.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";

/** One transaction the kernel committed. */
export interface KernelCommit {
  /** When its last message was read, in milliseconds since the epoch. */
  readonly atMs: number;
  /** `KUBE-SERVICES 0a60000b`: chain, set or map, and an IPv4 address. */
  readonly added: readonly string[];
}

// linux/socket.h, linux/netlink.h, linux/netfilter/nfnetlink.h and nf_tables.h
const AF_NETLINK = 16;
const SOCK_RAW = 3;
const NETLINK_NETFILTER = 12;
const SOL_SOCKET = 1;
const SO_RCVBUFFORCE = 33;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NFNLGRP_NFTABLES = 7;
const NFNL_SUBSYS_NFTABLES = 10;
const NFT_MSG_NEWRULE = 6;
const NFT_MSG_NEWSETELEM = 12;
const NFT_MSG_NEWGEN = 15;
/** nlmsghdr and nfgenmsg. */
const HEADERS_BYTES = 20;
const ATTRIBUTE_HEADER_BYTES = 4;
/** NFTA_RULE_CHAIN, NFTA_SET_ELEM_LIST_SET. */
const PLACE_ATTRIBUTE = 2;
/** All that benchmarks make up is in 10.0.0.0/8, from 10.96.0.0 on: what begins with 10 and 0 is a length. */
const FIRST_BYTE = 10;
const LEAST_SECOND_BYTE = 96;

const BUFFER_BYTES = 134_217_728;
const READ_BYTES = 262_144;
/** Of one commit: a proxy that writes a list of Services anew with each change has it all in one. */
const MAX_ENTRIES = 20_000;

function openSocket(): { read(into: Uint8Array<ArrayBuffer>): Promise<number> } {
  const libc = Deno.dlopen("libc.so.6", {
    socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
    bind: { parameters: ["i32", "buffer", "u32"], result: "i32" },
    setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
    recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize", nonblocking: true },
  }).symbols;
  const fd = libc.socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
  const address = new Uint8Array(12);
  new DataView(address.buffer).setUint16(0, AF_NETLINK, true);
  const option = (level: number, name: number, value: number): number =>
    libc.setsockopt(fd, level, name, new Int32Array([value]), 4);
  const failed = fd < 0 || libc.bind(fd, address, address.length) !== 0 ||
    option(SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES) !== 0 ||
    option(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES) !== 0;
  if (failed) throw new Error("The kernel's messages about nftables cannot be followed");
  return { read: async (into) => Number(await libc.recv(fd, into, BigInt(into.length), 0)) };
}

const ADDS: ReadonlySet<number> = new Set([NFT_MSG_NEWRULE, NFT_MSG_NEWSETELEM]);

/** Name of the chain, set or map that a message is about. */
function placeOf(attributes: Uint8Array): string {
  const view = new DataView(attributes.buffer, attributes.byteOffset, attributes.length);
  for (let at = 0; at + ATTRIBUTE_HEADER_BYTES <= attributes.length;) {
    const length = view.getUint16(at, true);
    if (length < ATTRIBUTE_HEADER_BYTES) break;
    if (view.getUint16(at + 2, true) === PLACE_ATTRIBUTE) {
      // A text of C: a zero ends it.
      return new TextDecoder().decode(attributes.subarray(at + ATTRIBUTE_HEADER_BYTES, at + length - 1));
    }
    at += (length + 3) & ~3;
  }
  return "";
}

/** The addresses in a message: everything in it begins at a multiple of four bytes. */
function entriesOf(attributes: Uint8Array): string[] {
  const entries = new Set<string>();
  let place: string | undefined;
  for (let at = 0; at + 4 <= attributes.length; at += 4) {
    if (attributes[at] !== FIRST_BYTE || attributes[at + 1]! < LEAST_SECOND_BYTE) continue;
    place ??= placeOf(attributes);
    entries.add(`${place} ${attributes.subarray(at, at + 4).toHex()}`);
  }
  return [...entries];
}

/** Puts the kernel's messages together to commits. */
class CommitReader {
  #added: string[] = [];

  /** Yields the commits that end in one datagram of the kernel. */
  *read(datagram: Uint8Array): Generator<KernelCommit> {
    const view = new DataView(datagram.buffer, datagram.byteOffset, datagram.length);
    for (let at = 0; at + HEADERS_BYTES <= datagram.length;) {
      const length = view.getUint32(at, true);
      const type = view.getUint16(at + 4, true);
      if (length < HEADERS_BYTES || type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
      const message = type & 255;
      if (message === NFT_MSG_NEWGEN) {
        yield { atMs: performance.timeOrigin + performance.now(), added: this.#added };
        this.#added = [];
      }
      if (ADDS.has(message) && this.#added.length < MAX_ENTRIES) {
        this.#added.push(...entriesOf(datagram.subarray(at + HEADERS_BYTES, at + length)));
      }
      at += (length + 3) & ~3;
    }
  }
}

if (import.meta.main) {
  const socket = openSocket();
  writeLine(JSON.stringify({ ready: true }));
  const reader = new CommitReader();
  const buffer = new Uint8Array(READ_BYTES);
  for (;;) {
    const length = await socket.read(buffer);
    if (length < 0) writeLine(JSON.stringify({ lost: true }));
    else for (const commit of reader.read(buffer.subarray(0, length))) writeLine(JSON.stringify(commit));
  }
}
