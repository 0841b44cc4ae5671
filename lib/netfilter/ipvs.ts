/**
 * Virtual and real servers of IPVS, and their text: lines of `ipvsadm -R`, `ipvsadm -Sn` and `ipvsadm -Ln`.
 *
 * @module
 */
import { joinHostPort } from "../model/ip.ts";
import type { Protocol } from "../model/objects.ts";

/** A virtual server: an address and port that IPVS serves. Two servers are the same if their keys are. */
export interface VirtualServer {
  /** Canonical address, without brackets. */
  readonly address: string;
  /** Transport protocol. */
  readonly protocol: Protocol;
  /** Port of the Service. */
  readonly port: number;
  /** Scheduler: `rr`, `mh`, … as the kernel's modules are named after `ip_vs_`. */
  readonly scheduler: string;
  /** Flags of the scheduler (`mh-port`, `mh-fallback`, `sh-port`, `sh-fallback`, `flag-1` …), sorted. */
  readonly flags: readonly string[];
  /** Persistence timeout of a client; 0: no persistence. */
  readonly timeoutSeconds: number;
  /** Options that kproxy never gives, as ipvsadm writes them (`-M 255.255.255.0`, `--ops`, `--pe sip`). */
  readonly otherOptions?: string;
}

/** A real server: receives connections of a virtual server, with their destination translated. */
export interface RealServer {
  /** Canonical address, without brackets. */
  readonly address: string;
  /** Port that it listens on. */
  readonly port: number;
  /** Weight; 0: no new connections. */
  readonly weight: number;
  /** Options that kproxy never gives, as ipvsadm writes them (`-g`, `-i --tun-type ipip`). */
  readonly otherOptions?: string;
}

/** A virtual server as the kernel holds it. */
export interface SavedVirtualServer {
  /** The virtual server's own parameters. */
  readonly server: VirtualServer;
  /** Real servers by {@linkcode realServerKey}. */
  readonly realServers: ReadonlyMap<string, RealServer>;
}

/** All virtual servers of IPVS. */
export interface IpvsTable {
  /** Virtual servers by {@linkcode virtualServerKey}, in the order of the text. */
  readonly virtualServers: ReadonlyMap<string, SavedVirtualServer>;
  /** Lines about servers by firewall mark, or of protocols unknown to Kubernetes. They are never kproxy's. */
  readonly otherLines: readonly string[];
}

/** A real server and its connections. */
export interface RealServerLoad extends RealServer {
  /** Established TCP and SCTP connections. */
  readonly activeConnections: number;
  /** Other connections: closing ones, and those of UDP. */
  readonly inactiveConnections: number;
}

/** The key fields of a virtual server. */
export type VirtualServerName = Pick<VirtualServer, "address" | "protocol" | "port">;
/** The key fields of a real server within its virtual server. */
export type RealServerName = Pick<RealServer, "address" | "port">;

/** Key of a virtual server: `ip:port/PROTO`, `[ip]:port/PROTO` for IPv6. */
export function virtualServerKey({ address, port, protocol }: VirtualServerName): string {
  return `${joinHostPort(address, port)}/${protocol}`;
}

/** Key of a real server: `ip:port`, `[ip]:port` for IPv6. */
export function realServerKey({ address, port }: RealServerName): string {
  return joinHostPort(address, port);
}

/** True if the kernel would treat connections to both the same way; address, port and protocol may differ. */
export function sameTreatment(left: VirtualServer, right: VirtualServer): boolean {
  return treatment(left) === treatment(right);
}

const PROTOCOL_OPTIONS: Readonly<Record<Protocol, string>> = {
  TCP: "-t",
  UDP: "-u",
  SCTP: "--sctp-service",
};
const PROTOCOLS: ReadonlyMap<string, Protocol> = new Map([
  ["-t", "TCP"],
  ["--tcp-service", "TCP"],
  ["-u", "UDP"],
  ["--udp-service", "UDP"],
  ["--sctp-service", "SCTP"],
]);

/** Option that names a virtual server: `-t ip:port`, `-u …`, `--sctp-service …`. */
export function virtualServerOption(name: VirtualServerName): string {
  return `${PROTOCOL_OPTIONS[name.protocol]} ${joinHostPort(name.address, name.port)}`;
}

function treatment({ scheduler, flags, timeoutSeconds, otherOptions }: VirtualServer): string {
  return [
    `-s ${scheduler}`,
    ...(timeoutSeconds > 0 ? [`-p ${timeoutSeconds}`] : []),
    ...(otherOptions === undefined ? [] : [otherOptions]),
    ...(flags.length > 0 ? [`-b ${flags.join(",")}`] : []),
  ].join(" ");
}

/** The line that adds a virtual server without real servers. */
export function addVirtualServerLine(server: VirtualServer): string {
  return `-A ${virtualServerOption(server)} ${treatment(server)}`;
}

/** The line that changes scheduler, flags and timeout in place: connections and real servers stay. */
export function updateVirtualServerLine(server: VirtualServer): string {
  return `-E ${virtualServerOption(server)} ${treatment(server)}`;
}

/** The line that deletes a virtual server with its real servers. */
export function deleteVirtualServerLine(name: VirtualServerName): string {
  return `-D ${virtualServerOption(name)}`;
}

/** The line that adds a real server. */
export function addRealServerLine(virtual: VirtualServerName, real: RealServer): string {
  return `-a ${realServerOptions(virtual, real)}`;
}

/** The line that changes the weight of a real server. */
export function updateRealServerLine(virtual: VirtualServerName, real: RealServer): string {
  return `-e ${realServerOptions(virtual, real)}`;
}

/** The line that deletes a real server, even one with connections. */
export function deleteRealServerLine(virtual: VirtualServerName, real: RealServerName): string {
  return `-d ${virtualServerOption(virtual)} -r ${realServerKey(real)}`;
}

function realServerOptions(virtual: VirtualServerName, real: RealServer): string {
  return `${virtualServerOption(virtual)} -r ${realServerKey(real)} ${
    real.otherOptions ?? "-m"
  } -w ${real.weight}`;
}

/**
 * Reads the text of `ipvsadm -Sn`.
 *
 * @throws {SyntaxError} if a line is not ipvsadm's
 */
export function parseIpvsTable(text: string): IpvsTable {
  const virtualServers = new Map<string, { server: VirtualServer; realServers: Map<string, RealServer> }>();
  const otherLines: string[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const words = line.trim().split(/\s+/);
    const name = readName(words[1] ?? "", words[2] ?? "");
    if (name === null) {
      if (!/^-[Aa] -/.test(line)) throw new SyntaxError(`"${line}" is no line of ipvsadm -Sn`);
      otherLines.push(line);
    } else if (words[0] === "-A") {
      virtualServers.set(virtualServerKey(name), {
        server: readVirtualServer(name, words.slice(3), line),
        realServers: new Map(),
      });
    } else {
      const owner = virtualServers.get(virtualServerKey(name));
      if (words[0] !== "-a" || owner === undefined) {
        throw new SyntaxError(`"${line}" is no line of ipvsadm -Sn at this place`);
      }
      const real = readRealServer(words.slice(3), line);
      owner.realServers.set(realServerKey(real), real);
    }
  }
  return { virtualServers, otherLines };
}

function readName(option: string, hostPort: string): VirtualServerName | null {
  const protocol = PROTOCOLS.get(option);
  const place = readHostPort(hostPort);
  return protocol === undefined || place === null ? null : { protocol, ...place };
}

function readHostPort(text: string): RealServerName | null {
  const [, bracketed, plain, port] = /^(?:\[([^[\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  const address = bracketed ?? plain;
  return address === undefined ? null : { address, port: Number(port) };
}

const NUMBER = /^\d{1,10}$/;
const WORD = /^[^-]/;

/** The value of an option. @throws {SyntaxError} if it is not of that shape */
function checkedValue(value: string | undefined, shape: RegExp, line: string): string {
  if (value !== undefined && shape.test(value)) return value;
  throw new SyntaxError(`"${line}" is no line of ipvsadm -Sn: "${value ?? ""}" is no value`);
}

function readVirtualServer(name: VirtualServerName, words: readonly string[], line: string): VirtualServer {
  let scheduler = "";
  let timeoutSeconds = 0;
  let flags: readonly string[] = [];
  const other: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    if (word === "-s") scheduler = words[++i] ?? "";
    else if (word === "-p") timeoutSeconds = Number(checkedValue(words[++i], NUMBER, line));
    else if (word === "-b") flags = checkedValue(words[++i], WORD, line).split(",").sort();
    else other.push(word);
  }
  checkedValue(scheduler, WORD, line);
  const server = { ...name, scheduler, flags, timeoutSeconds };
  return other.length === 0 ? server : { ...server, otherOptions: other.join(" ") };
}

function readRealServer(words: readonly string[], line: string): RealServer {
  let place: RealServerName | null = null;
  let weight = 1;
  const other: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    if (word === "-r") place = readHostPort(words[++i] ?? "");
    else if (word === "-w") weight = Number(checkedValue(words[++i], NUMBER, line));
    else if (word !== "-m") other.push(word);
  }
  if (place === null) throw new SyntaxError(`"${line}" names no real server`);
  return other.length === 0 ? { ...place, weight } : { ...place, weight, otherOptions: other.join(" ") };
}

/** A virtual server and its load, in the output of `ipvsadm -Ln`. */
export interface VirtualServerLoad {
  readonly name: VirtualServerName;
  /** Real servers by {@linkcode realServerKey}. */
  readonly realServers: ReadonlyMap<string, RealServerLoad>;
}

/** Reads the text of `ipvsadm -Ln`; by {@linkcode virtualServerKey}. Servers by firewall mark are left out. */
export function parseIpvsLoads(text: string): ReadonlyMap<string, VirtualServerLoad> {
  const loads = new Map<string, { name: VirtualServerName; realServers: Map<string, RealServerLoad> }>();
  let realServers: Map<string, RealServerLoad> | undefined;
  for (const line of text.split("\n")) {
    const [first = "", second = "", method = "", weight = "", active = "", inactive = ""] = line.trim().split(
      /\s+/,
    );
    const place = readHostPort(second);
    if (first === "->") {
      const isCounted = [weight, active, inactive].every((count) => NUMBER.test(count));
      if (place === null || realServers === undefined || !isCounted) continue;
      const real: RealServerLoad = {
        ...place,
        weight: Number(weight),
        activeConnections: Number(active),
        inactiveConnections: Number(inactive),
        ...(method === "Masq" ? {} : { otherOptions: method }),
      };
      realServers.set(realServerKey(real), real);
      continue;
    }
    realServers = undefined;
    if (place === null || !(first === "TCP" || first === "UDP" || first === "SCTP")) continue;
    const name: VirtualServerName = { ...place, protocol: first };
    realServers = new Map();
    loads.set(virtualServerKey(name), { name, realServers });
  }
  return loads;
}
