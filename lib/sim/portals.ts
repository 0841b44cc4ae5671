/**
 * Ports of the node on which kproxy accepts traffic of Services in userspace mode, and what it does with a packet there.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import { isLoopback, joinHostPort, parseIp } from "../model/ip.ts";
import { multiply, type Packet, type RuleHit } from "./flow.ts";
import {
  type EndedWalk,
  type HostState,
  rejectedWalk,
  rememberedIn,
  startOfWalk,
  type Walk,
} from "./packet_walk.ts";

/** A proxy port of userspace mode, with its endpoints. */
export interface HeldPortal {
  /** `ns/name:port`, for messages. */
  readonly servicePort: string;
  /** Traffic policy of the traffic that comes in here. */
  readonly policy: "cluster" | "local";
  /** Endpoints that the policy allows. */
  readonly endpoints: readonly { readonly ip: string; readonly port: number }[];
  /** Session affinity timeout of a client; 0: round robin. */
  readonly stickySeconds: number;
}

/** {@linkcode portalKey} → the listener: kproxy's portal, `nothing`, or `another program`. A port that is missing is unknown. */
export type PortalSnapshot = ReadonlyMap<string, HeldPortal | "nothing" | "another program">;

/** Key of a port, e.g. `tcp 40001`. */
export function portalKey(protocol: string, port: number): string {
  return `${protocol.toLowerCase()} ${port}`;
}

/** Table name in hits of portals; the port is the chain. */
export const PORTAL_TABLE = "userspace";

function hitOf({ protocol, port }: Walk, rule: string): RuleHit {
  return { table: PORTAL_TABLE, chain: `${protocol} port ${port}`, index: 0, rule };
}

/**
 * What kproxy does with a packet that has arrived at one of its proxy ports.
 *
 * @param dial walks the packets of a connection that a process on the node opens
 */
export function throughPortal(
  arrived: EndedWalk,
  portals: PortalSnapshot,
  hostState: HostState,
  dial: (start: Walk) => readonly EndedWalk[],
): readonly EndedWalk[] {
  const { walk } = arrived;
  const portal = portals.get(portalKey(walk.protocol, walk.port));
  if (portal === undefined || portal === "another program" || walk.state !== "NEW") return [arrived];
  if (portal === "nothing") return [rejectedWalk(met(walk, "no process listens there"), null)];
  const { servicePort, endpoints, stickySeconds } = portal;
  if (endpoints.length === 0) {
    return [notServed(met(walk, `kproxy takes it for ${servicePort}, which has no endpoint to lead it to`))];
  }
  const kept = endpoints.filter((endpoint) => isRemembered(walk, portal, endpoint, hostState));
  const turn = kept.length > 0
    ? `to the endpoint that ${walk.source.text} had within ${stickySeconds} s`
    : endpoints.length === 1
    ? "to the only endpoint"
    : stickySeconds > 0
    ? `to the next endpoint in turn, which the client keeps for ${stickySeconds} s`
    : "to the next endpoint in turn";
  const taken = met(
    walk,
    `kproxy takes it for ${servicePort} and connects ${turn}, from the node's own address`,
  );
  return dialled(taken, portal, kept.length > 0 ? kept : endpoints, hostState, dial);
}

/** Tries the endpoints: TCP skips those that refuse the connection; a UDP packet to a dead one is lost. */
function dialled(
  walk: Walk,
  portal: HeldPortal,
  endpoints: HeldPortal["endpoints"],
  hostState: HostState,
  dial: (start: Walk) => readonly EndedWalk[],
): readonly EndedWalk[] {
  const ways = endpoints.map((endpoint) => {
    const ended = dial(connection(walk, endpoint, hostState));
    return { endpoint, ended, isThrough: ended.some(({ verdict }) => verdict === "accept") };
  });
  const isTcp = walk.protocol === "tcp";
  const through = isTcp ? ways.filter(({ isThrough }) => isThrough) : ways;
  const [lost] = ways;
  if (through.length === 0) return lost?.ended.map(({ walk: end }) => notServed(back(walk, end))) ?? [];
  const share = { numerator: 1n, denominator: BigInt(through.length) };
  const skipped = isTcp ? ways.filter(({ isThrough }) => !isThrough) : [];
  return through.flatMap(({ endpoint, ended }) =>
    ended.map(({ walk: end, ...how }): EndedWalk => {
      const whole = {
        ...back(walk, end),
        probability: multiply(multiply(walk.probability, share), end.probability),
      };
      const hits = [
        ...walk.hits,
        ...skipped.flatMap((way) => skippedHits(walk, way.endpoint, way.ended)),
        ...end.hits,
      ];
      const last = { ...whole, hits };
      return {
        ...how,
        walk: portal.stickySeconds > 0 ? rememberedIn(listOf(walk, portal, endpoint), last) : last,
      };
    })
  );
}

function skippedHits(
  walk: Walk,
  { ip, port }: HeldPortal["endpoints"][number],
  ended: readonly EndedWalk[],
): readonly RuleHit[] {
  const cause = ended[0]?.walk.hits.at(-1);
  return [
    hitOf(walk, `${joinHostPort(ip, port)} takes no connection, another endpoint has its turn`),
    ...(cause === undefined ? [] : [cause]),
  ];
}

/** The connection that kproxy opens to an endpoint on behalf of the client. */
function connection(
  { source, protocol }: Walk,
  { ip, port }: HeldPortal["endpoints"][number],
  { nodeAddresses }: HostState,
): Walk {
  const packet: Packet = {
    source: ownAddress(source.family, ip, nodeAddresses),
    destination: ip,
    protocol,
    port,
    inInterface: "",
    state: "NEW",
    mark: 0,
  };
  return startOfWalk(packet);
}

function ownAddress(family: IpFamily, endpoint: string, nodeAddresses: readonly string[]): string {
  if (nodeAddresses.includes(endpoint)) return endpoint;
  const own = nodeAddresses.map(parseIp).find((ip) => ip?.family === family && !isLoopback(ip));
  return own?.text ?? (family === "IPv4" ? "127.0.0.1" : "::1");
}

/** The client's packet, at the end of kproxy's own connection. */
function back(walk: Walk, { destination, port, mark, hits }: Walk): Walk {
  return {
    ...walk,
    destination,
    port,
    mark,
    translated: true,
    masquerade: true,
    hits: [...walk.hits, ...hits],
  };
}

function met(walk: Walk, rule: string): Walk {
  return { ...walk, hits: [...walk.hits, hitOf(walk, rule)] };
}

/** TCP: kproxy accepts the connection and closes it; a UDP packet is dropped without an answer. */
function notServed(walk: Walk): EndedWalk {
  return walk.protocol === "tcp"
    ? { walk, verdict: "reject", rejectWith: "closed" }
    : { walk, verdict: "drop", rejectWith: "" };
}

function listOf(
  { protocol }: Walk,
  { servicePort, policy }: HeldPortal,
  { ip, port }: HeldPortal["endpoints"][number],
): string {
  return `${servicePort} ${protocol} ${policy} ${joinHostPort(ip, port)}`;
}

function isRemembered(
  walk: Walk,
  portal: HeldPortal,
  endpoint: HeldPortal["endpoints"][number],
  { affinity, nowSeconds }: HostState,
): boolean {
  const last = affinity.get(listOf(walk, portal, endpoint))?.get(walk.source.text);
  return last !== undefined && nowSeconds - last < portal.stickySeconds;
}
