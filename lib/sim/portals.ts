/**
 * Ports of the node on which a process takes packets for Services, as userspace mode has them: what becomes of a packet there.
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

/** A port that leads to endpoints. */
export interface HeldPortal {
  /** `ns/name:port`, for people. */
  readonly servicePort: string;
  /** Of the traffic that comes here. */
  readonly policy: "cluster" | "local";
  /** That it may be sent on to. */
  readonly endpoints: readonly { readonly ip: string; readonly port: number }[];
  /** For how long a client keeps its endpoint; 0: endpoints take turns. */
  readonly stickySeconds: number;
}

/** {@linkcode portalKey} → what listens there: kproxy's portal, `nothing`, or `another program`. A port that is not in it is not known. */
export type PortalSnapshot = ReadonlyMap<string, HeldPortal | "nothing" | "another program">;

/** E.g. `tcp 40001`. */
export function portalKey(protocol: string, port: number): string {
  return `${protocol.toLowerCase()} ${port}`;
}

/** The table of such hits; a port is the chain. */
export const PORTAL_TABLE = "userspace";

function hitOf({ protocol, port }: Walk, rule: string): RuleHit {
  return { table: PORTAL_TABLE, chain: `${protocol} port ${port}`, index: 0, rule };
}

/**
 * What the process does with a packet that has come to the node.
 *
 * @param dial the ways of a connection that a process on the node begins
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

/** Of those that take no connection another one has the turn; a packet of UDP to them is lost. */
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

/** The connection of kproxy's own that carries on what the walk began. */
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

/** The client's packet where kproxy's own has come to. */
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

/** A connection that was taken is closed; nothing answers a packet of UDP. */
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
