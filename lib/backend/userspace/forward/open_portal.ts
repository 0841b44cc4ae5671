/**
 * Opens ports: the requested one, one of a range, or any.
 *
 * @module
 */
import { createSocket, type Socket } from "node:dgram";
import { isOutOfDescriptors } from "../../../kernel/descriptors.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { PortRange } from "../../../config/value_texts.ts";
import type { PortalProtocol } from "../plan/plan.ts";
import { NoPortError, type OpenPortal, type RelayContext } from "./relay.ts";
import { TcpPortal } from "./tcp_portal.ts";
import { UdpPortal } from "./udp_portal.ts";

/** Address and ports on which a portal may listen. */
export interface Place {
  readonly family: IpFamily;
  readonly protocol: PortalProtocol;
  /** An address of the node, or the unspecified one for all. */
  readonly ip: string;
  /** Port that is tried first, such as the one that rules lead to already; null: none. */
  readonly requested: number | null;
  /** Allowed ports; null: the kernel chooses. */
  readonly range: PortRange | null;
  /** True: an IPv6 socket, which the runtime opens for IPv4 clients as well, refuses those. Default: false. */
  readonly isOfOneFamily?: boolean;
}

/** Most ephemeral ports that are tried: a kernel that gives one for one protocol may refuse it for the other. */
const MOST_TRIES = 64;

/**
 * Opens a portal without endpoints.
 *
 * @throws {NoPortError} if no port can be had
 */
export async function openPortal(place: Place, context: RelayContext): Promise<OpenPortal> {
  let lastError: unknown = null;
  let tries = 0;
  for (const port of candidates(place, context.random)) {
    try {
      return await listen(place, port, context);
    } catch (error) {
      lastError = error;
      // Other ports need descriptors, too.
      if (isOutOfDescriptors(error) || ++tries >= MOST_TRIES && place.range === null) break;
    }
  }
  const { protocol, ip, range } = place;
  const what = range === null
    ? "port"
    : range.first === range.last
    ? `port ${range.first}`
    : `port from ${range.first} to ${range.last}`;
  const problem = lastError instanceof Error ? lastError.message : String(lastError);
  throw new NoPortError(`no ${protocol} ${what} of ${ip} can be had: ${problem}`, isDenied(lastError));
}

function isDenied(error: unknown): boolean {
  return error instanceof Deno.errors.PermissionDenied ||
    error instanceof Error && "code" in error && error.code === "EACCES";
}

/** The requested port, then any; or all of the range from a random one on. */
function* candidates({ requested, range }: Place, random: () => number): Generator<number> {
  if (requested !== null && (range === null || requested >= range.first && requested <= range.last)) {
    yield requested;
  }
  if (range === null) {
    for (;;) yield 0;
  }
  const count = range.last - range.first + 1;
  const start = Math.floor(random() * count);
  for (let at = 0; at < count; at++) yield range.first + (start + at) % count;
}

async function listen(
  { ip, family, protocol, isOfOneFamily }: Place,
  port: number,
  context: RelayContext,
): Promise<OpenPortal> {
  if (protocol === "TCP") return new TcpPortal(Deno.listen({ hostname: ip, port }), context, isOfOneFamily);
  const socket = createSocket({ type: family === "IPv4" ? "udp4" : "udp6", ipv6Only: family === "IPv6" });
  await bound(socket, ip, port);
  return new UdpPortal(socket, context);
}

function bound(socket: Socket, address: string, port: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fail = (error: Error): void => {
    // A socket that is not bound may be closed already.
    try {
      socket.close();
    } finally {
      reject(error);
    }
  };
  socket.once("error", fail);
  socket.bind({ port, address, exclusive: true }, () => {
    socket.removeListener("error", fail);
    resolve();
  });
  return promise;
}
