/**
 * Reads a user's description of the packet to trace: `SRC DST:PORT[/PROTOCOL]`.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { cidrContains, isLoopback, joinHostPort, parseCidr, parseIp, specialUse } from "../../model/ip.ts";
import type { IpFamily, Protocol } from "../../model/objects.ts";
import type { ProxyState } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { Packet, PacketProtocol } from "../../sim/flow.ts";
import { deviceTo, type HostNetwork } from "../live/host_network.ts";
import { portText } from "../service/service_match.ts";

export interface TracedDestination {
  readonly family: IpFamily;
  /** Canonical address. */
  readonly ip: string;
  readonly port: number;
  readonly protocol: PacketProtocol;
}

/** A client outside of the cluster: documentation addresses, which no host has. */
export const WORLD: Readonly<Record<IpFamily, string>> = { IPv4: "198.51.100.77", IPv6: "2001:db8:77::77" };
const DESTINATION =
  /^(?:\[(?<ip6>[^\]]+)\]|(?<ip4>\d[\d.]*)|(?<service>[a-z0-9.-]+\/[a-z0-9.-]+))(?::(?<port>[a-z0-9-]+))?(?:\/(?<protocol>tcp|udp|sctp|icmp))?$/i;

const DNS_NAME =
  /^(?<name>[a-z0-9-]+)\.(?<namespace>[a-z0-9-]+)\.svc(?:\.[a-z0-9.-]*[a-z0-9])?\.?(?<rest>(?::[a-z0-9-]+)?(?:\/[a-z]+)?)$/i;

/** `shop/web:80` for the DNS name `web.shop.svc.cluster.local:80`; any other text unchanged. */
export function destinationOfName(text: string): string {
  const groups = DNS_NAME.exec(text)?.groups;
  return groups === undefined ? text : `${groups.namespace}/${groups.name}${groups.rest}`;
}

/**
 * Reads `10.96.0.1:80/udp`, `[fd00::1]:80`, or `namespace/name[:PORT]`, whose port may be a name or, if there is only one, left out.
 *
 * @param from text of the source, whose family is preferred for a dual-stack Service, else IPv4
 * @throws {UsageError} if the text is none of these
 */
export function readDestination(
  text: string,
  states: ReadonlyMap<IpFamily, ProxyState>,
  from = "",
): TracedDestination {
  const groups = DESTINATION.exec(text)?.groups;
  if (groups === undefined) throw wrongDestination(text);
  const { service, port, protocol } = groups;
  if (service !== undefined) {
    const family = parseIp(from.split("@")[0] ?? "")?.family ?? "IPv4";
    const inOrder = [...states].toSorted(([one], [other]) =>
      Number(other === family) - Number(one === family)
    );
    return serviceDestination(text, service, port, protocol, new Map(inOrder));
  }
  const ip = parseIp(groups.ip6 ?? groups.ip4 ?? "");
  const name = (protocol ?? "tcp").toLowerCase() as PacketProtocol;
  if (ip !== null && port === undefined && name !== "icmp") {
    throw new UsageError(`"${text}" names no port: write ${joinHostPort(ip.text, 80)} or another`);
  }
  if (ip === null || (port === undefined) !== (name === "icmp")) throw wrongDestination(text);
  const number = Number(port ?? 0);
  if (!Number.isInteger(number) || number > 65_535) throw wrongDestination(text);
  return { family: ip.family, ip: ip.text, port: number, protocol: name };
}

function wrongDestination(text: string): UsageError {
  return new UsageError(
    `"${text}" is no destination: write IP:PORT, [IPv6]:PORT, NAMESPACE/NAME[:PORT] or NAME.NAMESPACE.svc[:PORT], and /udp or /sctp if it is not TCP`,
  );
}

function serviceDestination(
  text: string,
  service: string,
  port: string | undefined,
  protocol: string | undefined,
  states: ReadonlyMap<IpFamily, ProxyState>,
): TracedDestination {
  for (const [family, { services }] of states) {
    const ports = services.get(service);
    if (ports === undefined) continue;
    const fitting = ports.filter((one) =>
      (port === undefined || one.portName === port || String(one.port) === port) &&
      (protocol === undefined || one.protocol === protocol.toUpperCase())
    );
    const [first] = fitting;
    if (first === undefined || (fitting.length > 1 && port === undefined)) {
      throw new UsageError(
        `"${text}": the ports of Service ${service} are ${ports.map(portText).join(", ")}`,
      );
    }
    return { family, ip: first.clusterIP, port: first.port, protocol: packetProtocol(first.protocol) };
  }
  throw new UsageError(`"${text}": there is no Service ${service} with a cluster IP`);
}

export function packetProtocol(protocol: Protocol): PacketProtocol {
  return protocol.toLowerCase() as PacketProtocol;
}

export interface SourceFacts {
  readonly around: HostNetwork;
  /** All known addresses of the node; its primary one first. */
  readonly nodeAddresses: readonly string[];
  /** Incoming interface of pods' packets, if no route gives it. */
  readonly podInterface: string;
}

export interface TracedSource {
  readonly source: string;
  /** Incoming interface; `""`: a process on the node. */
  readonly inInterface: string;
  /** Assumption that was made, in a sentence. */
  readonly note: string | null;
}

/**
 * Reads `local`, `world`, an address, `ADDRESS@INTERFACE`, or an interface.
 *
 * @throws {UsageError} if the text is none of these, or of another family than the destination
 */
export function readSource(text: string, to: TracedDestination, facts: SourceFacts): TracedSource {
  const { around, nodeAddresses } = facts;
  const own = ownAddress(to, facts);
  if (text === "local") return { source: own, inInterface: "", note: null };
  if (text === "world") return fromWorld(to.family, facts);
  const [address = "", named] = text.split("@");
  const ip = parseIp(address);
  if (ip === null && named === undefined && INTERFACE.test(text)) {
    return fromInterface(text, to.family, facts);
  }
  if (ip === null) {
    throw new UsageError(`"${text}" is no source: write an address, an interface, local or world`);
  }
  if (ip.family !== to.family) {
    throw new UsageError(`${text} is an ${ip.family} address, and ${to.ip} an ${to.family} one`);
  }
  if (named !== undefined) return { source: ip.text, inInterface: named === "node" ? "" : named, note: null };
  if (isLoopback(ip) || nodeAddresses.includes(ip.text)) {
    return { source: ip.text, inInterface: "", note: null };
  }
  const device = around.routes === null ? null : deviceTo(around.routes, ip.text);
  if (device !== null) return { source: ip.text, inInterface: device, note: null };
  const note = around.routes === null
    ? `it is taken to come in through ${facts.podInterface}: write ${ip.text}@INTERFACE if it does not`
    : `the node has no route to ${ip.text}: it is taken to come in through ${facts.podInterface}`;
  return { source: ip.text, inInterface: facts.podInterface, note };
}

// An interface name has at most fifteen bytes.
const INTERFACE = /^[A-Za-z][A-Za-z0-9_.-]{0,14}$/;

function ownAddress({ family, ip }: TracedDestination, { nodeAddresses }: SourceFacts): string {
  const loopback = family === "IPv4" ? "127.0.0.1" : "::1";
  const to = parseIp(ip);
  if (to !== null && isLoopback(to)) return loopback;
  return ownAddressOf(family, nodeAddresses) ?? loopback;
}

/** The node's first reachable address; null: none of this family is known. */
export function ownAddressOf(family: IpFamily, nodeAddresses: readonly string[]): string | null {
  return nodeAddresses.find((text) => {
    const ip = parseIp(text);
    return ip?.family === family && specialUse(ip) === null;
  }) ?? null;
}

function fromWorld(family: IpFamily, { around, nodeAddresses }: SourceFacts): TracedSource {
  const source = WORLD[family];
  const byRoute = around.routes === null ? null : deviceTo(around.routes, source);
  const carrier = around.addresses?.find(({ address }) => address === nodeAddresses[0])?.device;
  const inInterface = byRoute ?? carrier ?? "eth0";
  const isGuess = byRoute === null && carrier === undefined;
  return {
    source,
    inInterface,
    note: isGuess ? `the world is taken to come in through ${inInterface}` : null,
  };
}

function fromInterface(name: string, family: IpFamily, { around }: SourceFacts): TracedSource {
  if (around.interfaces.size > 0 && !around.interfaces.has(name)) {
    const known = [...around.interfaces].slice(0, 20).join(", ");
    throw new UsageError(`There is no interface ${name} here; there are ${known}`);
  }
  const address = around.addresses?.find((one) =>
    one.device === name && one.family === family && one.scope === "global"
  );
  const neighbour = address === undefined ? null : neighbourOf(address);
  const source = neighbour ?? WORLD[family];
  return { source, inInterface: name, note: `source ${source} stands for the clients behind ${name}` };
}

function neighbourOf({ address, prefixLength }: DeviceAddress): string | null {
  const ip = parseIp(address);
  const cidr = parseCidr(`${address}/${prefixLength}`);
  const last = ip?.bytes.at(-1);
  if (ip === null || cidr === null || last === undefined || cidr.bytes.length * 8 - prefixLength < 2) {
    return null;
  }
  const changed = last % 4 === 2 ? last - 1 : last - (last % 4) + 2;
  const text = ip.family === "IPv4"
    ? [...ip.bytes.slice(0, -1), changed].join(".")
    : address.replace(/[0-9a-f]{1,4}$/i, (group) =>
      (Number.parseInt(group, 16) ^ (last ^ changed)).toString(16));
  const other = parseIp(text);
  return other === null || !cidrContains(cidr, other) ? null : other.text;
}

export function packetOf(source: TracedSource, { ip, port, protocol }: TracedDestination): Packet {
  const { source: from, inInterface } = source;
  return { source: from, destination: ip, protocol, port, inInterface, state: "NEW", mark: 0 };
}

/** Text of a packet, e.g. `10.244.0.5@cni0 → 10.96.0.1:80/tcp`; `node` stands for a process on the node. */
export function packetText({ source, inInterface, destination, port, protocol }: Packet): string {
  const to = protocol === "icmp" ? destination : joinHostPort(destination, port);
  return `${source}@${inInterface === "" ? "node" : inInterface} → ${to}/${protocol}`;
}
