/**
 * TCP segments and Ethernet frames by hand, as no socket would send them.
 *
 * @module
 */
import { ipBytes, type SocketAddress } from "./lab_sockets.ts";

const FLAG_BITS = { F: 1, S: 2, R: 4, P: 8, A: 16 } as const;

function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += (bytes[i]! << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** A TCP header without data, for IPv4. */
export function tcpSegment(
  from: SocketAddress,
  to: SocketAddress,
  flags: "S" | "A",
): Uint8Array<ArrayBuffer> {
  const segment = new Uint8Array(20);
  const view = new DataView(segment.buffer);
  view.setUint16(0, from.port);
  view.setUint16(2, to.port);
  view.setUint32(4, 0x10203040);
  view.setUint32(8, flags === "A" ? 0x50607080 : 0);
  view.setUint8(12, 5 << 4);
  view.setUint8(13, FLAG_BITS[flags]);
  view.setUint16(14, 64_240);
  const pseudo = new Uint8Array([...ipBytes(from.ip), ...ipBytes(to.ip), 0, 6, 0, segment.length]);
  view.setUint16(16, checksum(new Uint8Array([...pseudo, ...segment])));
  return segment;
}

/** An Ethernet frame with an IPv4 packet around a segment. */
export function ethernetFrame(
  hardwareAddress: string,
  from: string,
  to: string,
  segment: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const header = new Uint8Array(20);
  const view = new DataView(header.buffer);
  view.setUint8(0, 0x45);
  view.setUint16(2, header.length + segment.length);
  view.setUint8(8, 64);
  view.setUint8(9, 6);
  header.set(ipBytes(from), 12);
  header.set(ipBytes(to), 16);
  view.setUint16(10, checksum(header));
  const target = hardwareAddress.split(":").map((part) => Number.parseInt(part, 16));
  const sender = [2, 0, 0, 0, 0, 1];
  return new Uint8Array([...target, ...sender, 8, 0, ...header, ...segment]);
}

/** Flags of a TCP answer in an IPv4 packet, e.g. `SA` or `R`; "" if it does not answer this segment. */
export function answerFlags(packet: Uint8Array, from: SocketAddress, to: SocketAddress): string {
  const start = (packet[0]! & 15) * 4;
  if (packet[9] !== 6 || packet.length < start + 14) return "";
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  if (view.getUint16(start) !== to.port || view.getUint16(start + 2) !== from.port) return "";
  const bits = packet[start + 13]!;
  return Object.entries(FLAG_BITS).filter(([, bit]) => (bits & bit) !== 0).map(([flag]) => flag).join("");
}
