/**
 * Host network: addresses, interfaces, routes and forwarding, which decide about packets besides rules.
 *
 * @module
 */
import { COUNTERS } from "../../backend/iptables/plan/ruleset.ts";
import { BE_LIBERAL, IP_FORWARD } from "../../backend/node/mode_sysctls.ts";
import { ExecError } from "../../errors.ts";
import { type Exec, runOk } from "../../kernel/exec.ts";
import { readDeviceSettings, readRoutes } from "../../kernel/ip_address.ts";
import { readCounters } from "../../kernel/nfacct.ts";
import { readSysctls } from "../../kernel/sysctl.ts";
import { cidrContains, parseCidr, parseIp } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import {
  type DeviceAddress,
  type Link,
  parseLinks,
  readRecords,
  type Route,
} from "../../netfilter/ip_batch.ts";
import type { HostState } from "../../sim/packet_walk.ts";
import type { LiveProblem } from "./live.ts";

/** Network state of a machine; null: it could not be read. */
export interface HostNetwork {
  readonly addresses: readonly DeviceAddress[] | null;
  readonly down: ReadonlySet<string>;
  readonly interfaces: ReadonlySet<string>;
  readonly bridges: ReadonlySet<string>;
  readonly routes: readonly Route[] | null;
  readonly sysctls: ReadonlyMap<string, string | null>;
  /** True if the `nfacct` counters of iptables mode exist. */
  readonly nfacct: boolean;
  readonly problems: readonly LiveProblem[];
}

type Devices = Pick<HostNetwork, "addresses" | "interfaces" | "down" | "bridges">;

const NO_DEVICES: Devices = { addresses: null, interfaces: new Set(), down: new Set(), bridges: new Set() };

export const UNKNOWN_HOST: HostNetwork = {
  ...NO_DEVICES,
  routes: null,
  sysctls: new Map(),
  nfacct: false,
  problems: [],
};

export const FORWARDING: Readonly<Record<IpFamily, string>> = {
  IPv4: IP_FORWARD,
  IPv6: "net.ipv6.conf.all.forwarding",
};
/** Sysctls that pass bridged packets to iptables; they exist where br_netfilter is loaded. */
export const BRIDGE_CALLS: Readonly<Record<IpFamily, string>> = {
  IPv4: "net.bridge.bridge-nf-call-iptables",
  IPv6: "net.bridge.bridge-nf-call-ip6tables",
};
/** Sysctls of connection tracking: the number of entries, and its limit. */
export const CONNTRACK_COUNT = "net.netfilter.nf_conntrack_count";
export const CONNTRACK_MAX = "net.netfilter.nf_conntrack_max";
const SETTINGS = [
  FORWARDING.IPv4,
  FORWARDING.IPv6,
  BRIDGE_CALLS.IPv4,
  BRIDGE_CALLS.IPv6,
  BE_LIBERAL,
  CONNTRACK_COUNT,
  CONNTRACK_MAX,
];

/** Reads the network state of this network namespace; what cannot be read is among the problems. */
export async function readHostNetwork(exec: Exec): Promise<HostNetwork> {
  const problems: LiveProblem[] = [];
  const attempt = async <T>(place: string, work: () => Promise<T>, none: T): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ExecError || error instanceof SyntaxError)) throw error;
      problems.push({ place, message: error.message });
      return none;
    }
  };
  const ip = <T>(args: string, parse: (text: string) => T, none: T): Promise<T> =>
    attempt(
      `ip ${args}`.replace("-details ", ""),
      async () => parse(await runOk(exec, ["ip", "-json", ...args.split(" ")])),
      none,
    );
  const [devices, four, six, isPlain, settings, ofDevices, nfacct] = await Promise.all([
    ip("-details address", parseDevices, NO_DEVICES),
    attempt<readonly Route[] | null>("ip route", () => readRoutes(exec, "IPv4"), null),
    attempt<readonly Route[] | null>("ip -6 route", () => readRoutes(exec, "IPv6"), null),
    ip("rule", hasOnlyUsualTables, true),
    attempt("sysctl", () => readSysctls(exec, SETTINGS), new Map<string, string | null>()),
    attempt("ip netconf", () => readDeviceSettings(exec), new Map<string, string>()),
    hasCounters(exec),
  ]);
  // With policy routing, the main table does not decide the route alone.
  if (!isPlain) {
    problems.push({ place: "ip rule", message: "there is policy routing: the ways of packets are not told" });
  }
  const routes = !isPlain || (four === null && six === null) ? null : [...four ?? [], ...six ?? []];
  return { ...devices, routes, sysctls: new Map([...settings, ...ofDevices]), nfacct, problems };
}

async function hasCounters(exec: Exec): Promise<boolean> {
  try {
    const found = await readCounters(exec);
    return Object.values(COUNTERS).every((name) => found.has(name));
  } catch (error) {
    // Most kernels, and machines in other modes, have no counters.
    if (error instanceof ExecError) return false;
    throw error;
  }
}

/** Adds `route_localnet` of all interfaces, which only matters for packets from and to 127.0.0.0/8. */
export async function readLocalnet(exec: Exec, around: HostNetwork): Promise<HostNetwork> {
  const names = ["all", ...around.interfaces].map((name) => deviceSetting(name, "route_localnet"));
  try {
    const found = await readSysctls(exec, names);
    return { ...around, sysctls: new Map([...around.sysctls, ...found]) };
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    const problem = { place: `sysctl ${names.join(" ")}`, message: error.message };
    return { ...around, problems: [...around.problems, problem] };
  }
}

/** Name of a device's sysctl: a dot in the device's name becomes a slash. */
export function deviceSetting(
  device: string,
  setting: "forwarding" | "route_localnet" | "rp_filter",
  family: "ipv4" | "ipv6" = "ipv4",
): string {
  return `net.${family}.conf.${device.replaceAll(".", "/")}.${setting}`;
}

/** Problems of the machine for every new connection, one sentence each. */
export function nodeFindings({ sysctls }: HostNetwork): readonly string[] {
  const [count, max] = [CONNTRACK_COUNT, CONNTRACK_MAX].map((name) => Number(sysctls.get(name) ?? "NaN"));
  if (count === undefined || max === undefined || !(max > 0) || !(count >= max)) return [];
  return [`Connection tracking is full, and drops new connections: ${count}, and ${CONNTRACK_MAX} is ${max}`];
}

/** True if connection tracking accepts TCP packets outside of the window; null: unknown. */
export function tcpBeLiberal({ sysctls }: HostNetwork): boolean | null {
  const value = sysctls.get(BE_LIBERAL) ?? null;
  return value === null ? null : value !== "0";
}

export function hostStateOf(
  around: HostNetwork,
  nodeAddresses: readonly string[],
  inInterface: string,
): Required<HostState> {
  const { sysctls, down, routes } = around;
  const offOf = (name: string): string | null => sysctls.get(name) === "0" ? `${name} is 0` : null;
  const forwarding = deviceSetting(inInterface, "forwarding");
  const rpFilters = ["all", inInterface].map((name) => Number(sysctls.get(deviceSetting(name, "rp_filter"))));
  // The kernel takes the greater value; 2 (loose) accepts any route back, and there nearly always is one.
  const rpFilter = Math.max(...rpFilters.filter((value) => !Number.isNaN(value)), 0);
  return {
    nodeAddresses,
    affinity: new Map(),
    nowSeconds: 0,
    notForwarding: {
      // The node's setting comes first: writing it sets those of all interfaces.
      IPv4: sysctls.get(forwarding) === "1" ? null : offOf(FORWARDING.IPv4) ?? offOf(forwarding),
      IPv6: offOf(FORWARDING.IPv6),
    },
    downInterfaces: down,
    outInterface: (address) => routes === null ? undefined : deviceTo(routes, address),
    isBridged: (name, family) => around.bridges.has(name) && sysctls.get(BRIDGE_CALLS[family]) === "1",
    addressOf: (name, family) => addressOf(around, name, family),
    strictInterfaces: new Set(rpFilter === 1 ? [inInterface] : []),
    localnetInterfaces: localnetOn(around),
  };
}

/** First address of an interface; null: it has none; undefined: unknown. */
function addressOf({ addresses }: HostNetwork, name: string, family: IpFamily): string | null | undefined {
  if (addresses === null) return undefined;
  const own = addresses.filter((one) => one.device === name && one.family === family);
  return (own.find(({ scope }) => scope === "global") ?? own[0])?.address ?? null;
}

function localnetOn({ sysctls, interfaces }: HostNetwork): ReadonlySet<string> | null {
  const all = sysctls.get(deviceSetting("all", "route_localnet")) ?? null;
  if (all === null) return null;
  // A setting that could not be read is taken as on: unknown state stops no packet.
  const isOn = (name: string): boolean =>
    all !== "0" || (sysctls.get(deviceSetting(name, "route_localnet")) ?? "1") !== "0";
  return new Set([...interfaces].filter(isOn));
}

/** The device of the best route to the address; null: there is none. */
export function deviceTo(routes: readonly Route[], address: string): string | null {
  const ip = parseIp(address);
  if (ip === null) return null;
  let best: { readonly length: number; readonly route: Route } | null = null;
  for (const route of routes) {
    const cidr = route.family === ip.family ? parseCidr(route.network) : null;
    if (cidr === null || !cidrContains(cidr, ip)) continue;
    const isBetter = best === null || cidr.prefixLength > best.length ||
      (cidr.prefixLength === best.length && route.metric < best.route.metric);
    if (isBetter) best = { length: cidr.prefixLength, route };
  }
  return best?.route.devices[0] ?? null;
}

/** A bridge without ports reports state down, and passes nothing on; tunnels and lo report `UNKNOWN`. */
function parseDevices(text: string): Devices {
  const links = parseLinks(text);
  const names = (some: readonly Link[]): ReadonlySet<string> => new Set(some.map(({ device }) => device));
  return {
    addresses: links.flatMap((link) => link.addresses),
    interfaces: names(links),
    down: names(links.filter(({ isUp }) => !isUp)),
    bridges: names(links.filter(({ kind }) => kind === "bridge")),
  };
}

const USUAL_TABLES: ReadonlySet<unknown> = new Set(["local", "main", "default"]);

function hasOnlyUsualTables(text: string): boolean {
  return readRecords(text).every(({ table }) => USUAL_TABLES.has(table));
}
