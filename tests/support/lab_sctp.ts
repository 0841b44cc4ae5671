/**
 * SCTP by hand, if the kernel has no sockets for it: an INIT as request and an INIT ACK as answer. A firewall needs no more
 * to translate a flow, and connection tracking checks tags and checksums of both.
 *
 * @module
 */
import type { Answer, ProbeRequest, ProbeResult } from "./lab_probe.ts";
import { Socket, type SocketAddress, SocketError } from "./lab_sockets.ts";

const EPROTONOSUPPORT = 93;
const [INIT, INIT_ACK] = [1, 2];
const STATE_COOKIE = 7;
const HEADER = 12;
/** Length of an INIT or INIT ACK chunk, without parameters. */
const CHUNK = 20;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ byte) & 255]!;
  return ~crc >>> 0;
}

/** Fields of a received packet. */
interface Handshake {
  readonly type: number;
  readonly sourcePort: number;
  readonly port: number;
  /** Verification tag that the other side must use. */
  readonly initiateTag: number;
  /** State cookie of an INIT ACK. */
  readonly cookie: string;
}

interface HandshakeToSend extends Handshake {
  readonly verificationTag: number;
}

function packetOf(handshake: HandshakeToSend): Uint8Array<ArrayBuffer> {
  const { type, sourcePort, port, verificationTag, initiateTag } = handshake;
  const cookie = new TextEncoder().encode(handshake.cookie);
  const parameter = cookie.length === 0 ? 0 : 4 + cookie.length;
  const bytes = new Uint8Array(HEADER + CHUNK + Math.ceil(parameter / 4) * 4);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, sourcePort);
  view.setUint16(2, port);
  view.setUint32(4, verificationTag);
  view.setUint8(HEADER, type);
  view.setUint16(HEADER + 2, CHUNK + parameter);
  view.setUint32(HEADER + 4, initiateTag);
  view.setUint32(HEADER + 8, 65_536);
  view.setUint16(HEADER + 12, 1);
  view.setUint16(HEADER + 14, 1);
  view.setUint32(HEADER + 16, 1);
  if (parameter > 0) {
    view.setUint16(HEADER + CHUNK, STATE_COOKIE);
    view.setUint16(HEADER + CHUNK + 2, parameter);
    bytes.set(cookie, HEADER + CHUNK + 4);
  }
  view.setUint32(8, crc32c(bytes), true);
  return bytes;
}

/** @param bytes as a raw socket receives them: for IPv4 with the IP header */
function parsePacket(bytes: Uint8Array<ArrayBuffer>, isIpv6: boolean): Handshake {
  const packet = bytes.subarray(isIpv6 ? 0 : (bytes[0]! & 15) * 4);
  const view = new DataView(packet.buffer, packet.byteOffset);
  const end = HEADER + view.getUint16(HEADER + 2);
  return {
    type: view.getUint8(HEADER),
    sourcePort: view.getUint16(0),
    port: view.getUint16(2),
    initiateTag: view.getUint32(HEADER + 4),
    cookie: new TextDecoder().decode(packet.subarray(HEADER + CHUNK + 4, end)),
  };
}

function randomTag(): number {
  return 1 + Math.floor(Math.random() * 0xfffffffe);
}

/** True if this kernel has sockets for SCTP. */
export function hasSctpSockets(): boolean {
  try {
    using _ = Socket.of("sctp", "127.0.0.1");
    return true;
  } catch (error) {
    if (error instanceof SocketError && error.errno === EPROTONOSUPPORT) return false;
    throw error;
  }
}

/** Answers clients of the port, on a socket for all SCTP packets to this address; false if none came in time. */
export async function answerByHand(
  socket: Socket,
  local: SocketAddress,
  answer: (client: SocketAddress) => string,
  timeoutMs: number,
): Promise<boolean> {
  const received = await socket.receive(timeoutMs);
  if (received === null) return false;
  const asked = parsePacket(received.bytes, local.ip.includes(":"));
  if (asked.type !== INIT || asked.port !== local.port) return false;
  const client = { ip: received.from.ip, port: asked.sourcePort };
  const packet = packetOf({
    type: INIT_ACK,
    sourcePort: local.port,
    port: client.port,
    verificationTag: asked.initiateTag,
    initiateTag: randomTag(),
    cookie: answer(client),
  });
  socket.sendTo(packet, { ip: client.ip, port: 0 });
  return true;
}

/**
 * Sends one request.
 *
 * @param parseAnswer yields null if it is not from a lab's server
 * @throws {SocketError} if the request is refused
 */
export async function askByHand(
  { source, sourcePort, to, timeoutMs }: Omit<ProbeRequest, "count">,
  parseAnswer: (text: string) => Answer | null,
): Promise<ProbeResult> {
  const start = performance.now();
  using socket = Socket.of("rawSctp", to.ip);
  if (source !== undefined) socket.bind({ ip: source, port: 0 });
  // Only connected sockets receive refusals.
  await socket.connect({ ip: to.ip, port: 0 }, timeoutMs);
  const port = sourcePort ?? 20_000 + Math.floor(Math.random() * 10_000);
  const from = { ip: socket.localAddress().ip, port };
  const type = INIT;
  const initiateTag = randomTag();
  socket.send(
    packetOf({ type, sourcePort: port, port: to.port, verificationTag: 0, initiateTag, cookie: "" }),
  );
  for (;;) {
    const tookMs = performance.now() - start;
    const received = tookMs < timeoutMs ? await socket.receive(timeoutMs - tookMs) : null;
    if (received === null) return { kind: "silence" };
    const reply = parsePacket(received.bytes, to.ip.includes(":"));
    if (reply.type !== INIT_ACK || reply.sourcePort !== to.port || reply.port !== port) continue;
    const answer = parseAnswer(reply.cookie);
    if (answer === null) return { kind: "stranger", text: reply.cookie };
    return {
      kind: "answer",
      answer,
      from,
      tookMs: performance.now() - start,
      wasSynLost: false,
      lostSegments: 0,
    };
  }
}
