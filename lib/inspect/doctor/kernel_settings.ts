/**
 * Checks of sysctls and network devices: forwarding, connection tracking, settings of single modes, the reverse path filter, and
 * MTUs.
 *
 * @module
 */
import { connReuse, neededIpvsSysctls, type NeededSysctl } from "../../backend/ipvs/node/preflight.ts";
import { BE_LIBERAL, CONN_REUSE_MODE, IP_FORWARD, ROUTE_LOCALNET } from "../../backend/node/mode_sysctls.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { conntrackNames, type ConntrackSetting, isAsWanted } from "../../kernel/conntrack_settings.ts";
import type { Exec } from "../../kernel/exec.ts";
import { readLinks, readRoutes } from "../../kernel/ip_address.ts";
import { DISABLE_IPV6, readSysctls } from "../../kernel/sysctl.ts";
import type { Link } from "../../netfilter/ip_batch.ts";
import { few } from "../../text/words.ts";
import {
  BRIDGE_CALLS,
  CONNTRACK_COUNT,
  CONNTRACK_MAX,
  deviceSetting,
  FORWARDING,
} from "../live/host_network.ts";
import { type Doubt, failure, type Finding, ok, warning, warnings } from "./report.ts";

/** 1: the node forwards IPv6 packets. */
const IPV6_FORWARD = FORWARDING.IPv6;
/** 1: packets that stay on a bridge pass iptables, so that pods of one node reach each other through Services. */
const BRIDGE_NETFILTER = Object.values(BRIDGE_CALLS);

/** Sysctl → value; null if this kernel does not have it. */
export type Settings = ReadonlyMap<string, string | null>;

/** The node-wide sysctls, read by one program. */
export async function readSettings(exec: Exec, config: KubeProxyConfiguration): Promise<Settings> {
  const names = [
    IP_FORWARD,
    IPV6_FORWARD,
    DISABLE_IPV6,
    ...BRIDGE_NETFILTER,
    CONNTRACK_COUNT,
    CONNTRACK_MAX,
    BE_LIBERAL,
    ROUTE_LOCALNET,
    CONN_REUSE_MODE,
    ...neededIpvsSysctls(config).map(({ name }) => name),
    ...conntrackNames(config.conntrack),
  ];
  return await readSysctls(exec, [...new Set(names)]);
}

/** @param usesIpv6 why the cluster is known to use IPv6; null: nothing says so */
export function checkForwarding(settings: Settings, usesIpv6: string | null): readonly Finding[] {
  const check = "forwarding";
  const [v4, v6] = [settings.get(IP_FORWARD) ?? null, settings.get(IPV6_FORWARD) ?? null];
  const turnOn = (name: string): string => `sysctl -w ${name}=1, and keep it in /etc/sysctl.d`;
  const found6 = v6 === null ? "this kernel has no IPv6 forwarding" : `${IPV6_FORWARD} is ${v6}`;
  return [
    v4 === "1"
      ? ok(check, `${IP_FORWARD} is 1`)
      : v4 === null
      ? failure(check, `this kernel has no ${IP_FORWARD}`, "use a kernel with IPv4 forwarding")
      : failure(
        check,
        `${IP_FORWARD} is ${v4}: packets to and from pods of this node are dropped`,
        turnOn(IP_FORWARD),
      ),
    v6 === "1"
      ? ok(check, found6)
      : usesIpv6 === null
      ? ok(check, `${found6}, and nothing says that this cluster uses IPv6`)
      : failure(
        check,
        `${found6}, and ${usesIpv6}: IPv6 packets to and from pods are dropped`,
        turnOn(IPV6_FORWARD),
      ),
  ];
}

const FULL = 0.95;
const NEARLY_FULL = 0.75;

/** Checks how full the conntrack table is, and its sysctls against those that a start sets. */
export function checkConntrack(
  settings: Settings,
  wanted: readonly ConntrackSetting[],
): readonly Finding[] {
  const check = "connection tracking";
  const findings: Finding[] = [];
  const [count = NaN, max = NaN] = [CONNTRACK_COUNT, CONNTRACK_MAX].map((name) =>
    Number(settings.get(name) ?? "NaN")
  );
  if (max > 0 && !Number.isNaN(count)) {
    const text = `${count} of ${max} connections are tracked`;
    const fix = `raise conntrack.maxPerCore (--conntrack-max-per-core), or: sysctl -w ${CONNTRACK_MAX}=${
      2 * max
    }`;
    findings.push(
      count >= FULL * max
        ? failure(check, `${text}: new ones are dropped when it is full`, fix)
        : count >= NEARLY_FULL * max
        ? warning(check, `${text}: it is filling up`, fix)
        : ok(check, text),
    );
  }
  const absent = wanted.filter(({ name }) => (settings.get(name) ?? null) === null).map(({ name }) => name);
  const others = wanted.filter((setting) => !isAsWanted(setting, settings.get(setting.name) ?? ""))
    .map(({ name, value }) => `${name}=${value}`).join(" ");
  findings.push(
    absent.length > 0
      ? warning(
        check,
        `this kernel does not have ${absent.join(", ")}, or has not loaded it`,
        "modprobe nf_conntrack; in a network namespace of its own these belong to the host",
      )
      : others !== ""
      ? warning(
        check,
        `not as the configuration asks for (a start of kproxy sets it, if it may): ${others}`,
        `sysctl -w ${others}`,
      )
      : ok(check, "settings are as the configuration asks for"),
  );
  return findings;
}

const CHECK = "settings";

/** Properties of the mode that decide which sysctls matter. */
export interface ModeSettings {
  readonly mode: ProxyMode;
  readonly needed: readonly NeededSysctl[];
  /** True if node ports have to answer on 127.0.0.1, in mode iptables. */
  readonly wantsLocalhost: boolean;
  /** Output of `uname -r`; null if unknown. */
  readonly release: string | null;
}

/** Checks sysctls of the mode. A start sets them if it may: a wrong value only hurts where it may not. */
export function checkModeSettings(
  settings: Settings,
  { mode, needed, wantsLocalhost, release }: ModeSettings,
): readonly Finding[] {
  // Despite its name, this applies to every netfilter hook. Absent: no bridge uses them, which matters only with pods on one.
  const findings = BRIDGE_NETFILTER.filter((name) => settings.get(name) === "0").map((name) =>
    warning(
      CHECK,
      `${name} is 0: on a pod network with a bridge, Services do not answer pods whose endpoint is on the same node`,
      `sysctl -w ${name}=1, and keep it in /etc/sysctl.d`,
    )
  );
  if (mode === "iptables" && wantsLocalhost) {
    const why = "node ports would not answer on 127.0.0.1";
    findings.push(checkSetting(settings, { name: ROUTE_LOCALNET, value: "1", why }));
  }
  if (mode === "ipvs") {
    // There is a separate check of forwarding.
    const others = needed.filter(({ name }) => name !== IP_FORWARD);
    findings.push(...others.map((one) => checkSetting(settings, one)));
    findings.push(checkConnReuse(settings.get(CONN_REUSE_MODE) ?? null, release));
  }
  return findings;
}

function checkSetting(settings: Settings, { name, value, why }: NeededSysctl): Finding {
  const found = settings.get(name) ?? null;
  if (found === value) return ok(CHECK, `${name} is ${value}`);
  const is = found === null ? "is not there (yet: its module may not be loaded)" : `is ${found}`;
  return warning(
    CHECK,
    `${name} ${is}, and a start of kproxy sets it to ${value}, if it may; otherwise ${why}`,
    `sysctl -w ${name}=${value}, or once: kproxy run --init-only, with full rights`,
  );
}

function checkConnReuse(found: string | null, release: string | null): Finding {
  const is = found ?? "not there";
  const choice = release === null ? null : connReuse(release);
  if (choice === null) {
    const what = `it is not known what this kernel needs of ${CONN_REUSE_MODE}, which is ${is}`;
    return warning(CHECK, what, "start kproxy with --allow-sys=osRelease");
  }
  if (choice === "leave") return ok(CHECK, `${CONN_REUSE_MODE} may be anything on Linux ${release}`);
  if (choice === "too old") {
    const what = `on Linux ${release} connections from a port used before may go to an endpoint that is gone`;
    return warning(CHECK, what, "use Linux 5.9 or newer");
  }
  if (found === "0") return ok(CHECK, `${CONN_REUSE_MODE} is 0, as Linux ${release} needs it`);
  return warning(
    CHECK,
    `${CONN_REUSE_MODE} is ${is}: on Linux ${release} a new connection from a port used before waits a second, ` +
      "unless it is 0 (a start sets it where it is 1)",
    `sysctl -w ${CONN_REUSE_MODE}=0, or use Linux 5.9 or newer`,
  );
}

/** Network devices, and the names of those with default routes of either family. */
export async function readLinksAndRoutes(exec: Exec) {
  const [links, ...routes] = await Promise.all([
    readLinks(exec),
    readRoutes(exec, "IPv4", ["show", "default"]),
    // Without IPv6 in the kernel `ip` fails: there is no route.
    readRoutes(exec, "IPv6", ["show", "default"]).catch(() => []),
  ]);
  return { links, uplinks: [...new Set(routes.flat().flatMap(({ devices }) => devices))] };
}

/** Device → value of one sysctl in a family. */
function settingOfDevices(
  settings: ReadonlyMap<string, string>,
  family: "ipv4" | "ipv6",
  setting: "forwarding" | "rp_filter",
): ReadonlyMap<string, string> {
  const [start, end] = [`net.${family}.conf.`, `.${setting}`];
  return new Map(
    [...settings].filter(([name]) => name.startsWith(start) && name.endsWith(end))
      // `ip` prints a dot of a device's name as a slash.
      .map(([name, value]) => [name.slice(start.length, -end.length).replaceAll("/", "."), value]),
  );
}

/** Names in the listing that are no devices, and lo, at which no packet arrives from elsewhere. */
const NO_WAY: readonly string[] = ["all", "default", "lo"];
/** Devices for the node's own addresses; packets that arrive by them are never forwarded. */
const OWN_DEVICES: readonly string[] = ["kube-ipvs0", "kube-dummy-if", "nodelocaldns", "dummy0"];

/**
 * Checks for devices whose packets are not forwarded although the node forwards.
 *
 * @param usesIpv6 why the cluster is known to use IPv6; null: nothing says so
 */
export function checkDeviceForwarding(
  settings: ReadonlyMap<string, string>,
  usesIpv6: string | null,
): readonly Finding[] {
  const families = usesIpv6 === null ? ["ipv4"] as const : ["ipv4", "ipv6"] as const;
  return warnings(
    "forwarding",
    null,
    families.map((family): Doubt => {
      const values = settingOfDevices(settings, family, "forwarding");
      const off = [...values].filter(([device, value]) =>
        value === "0" && !NO_WAY.includes(device) && !OWN_DEVICES.includes(device)
      ).map(([device]) => device);
      const [first] = off;
      // If the node forwards nothing, the devices are not the cause.
      if (values.get("all") === "0" || first === undefined) return false;
      const more = off.length > 1 ? " and so for the others" : "";
      return [
        `${family === "ipv4" ? "IPv4" : "IPv6"} packets that come in by ${few(off)} are not forwarded`,
        `sysctl -w ${deviceSetting(first, "forwarding", family)}=1${more}`,
      ];
    }),
  );
}

/**
 * Checks rp_filter: the kernel drops a packet whose reply would leave by another device. A device uses the higher one of its own value
 * and that of `all`.
 *
 * @param podDevices devices of single pods: strict is intended there, and keeps a pod from using foreign addresses
 */
export function checkReversePath(
  settings: ReadonlyMap<string, string>,
  podDevices: ReadonlySet<string>,
): readonly Finding[] {
  const check = "reverse path filter";
  const values = settingOfDevices(settings, "ipv4", "rp_filter");
  const all = values.get("all") ?? "0";
  const strict = [...values].filter(([device, value]) =>
    !NO_WAY.includes(device) && !podDevices.has(device) && Math.max(Number(all), Number(value)) === 1
  ).map(([device]) => device);
  const [first] = strict;
  const name = deviceSetting(strict.length > 1 ? "all" : first ?? "", "rp_filter");
  return warnings(check, all === "2" ? "loose" : "strict on no device", [
    first !== undefined && [
      `strict on ${
        few(strict)
      }: packets that come by another way than their answers go are dropped, as with several ` +
      "uplinks, tunnels of pod networks, or load balancers that keep the client's address",
      `sysctl -w ${name}=2 (loose; the higher one of a device's value and that of "all" is in force)`,
    ],
  ]);
}

/** Least overhead of a tunnel, by kind, in bytes: over IPv4. */
const OVERHEAD_BYTES: Readonly<Record<string, number>> = {
  vxlan: 50,
  geneve: 50,
  ipip: 20,
  sit: 20,
  gre: 24,
  gretap: 38,
  wireguard: 60,
};

/** Checks MTUs: a tunnel adds a header, so its MTU must be smaller than the uplink's by as much. */
export function checkMtu(
  { links, uplinks }: Awaited<ReturnType<typeof readLinksAndRoutes>>,
): readonly Finding[] {
  const check = "packet sizes";
  const up = links.filter(({ isUp, mtu }) => isUp && mtu > 0);
  const uplink = smallest(up.filter(({ device }) => uplinks.includes(device)));
  if (uplink === undefined) return [ok(check, "no default route: there is no uplink to compare with")];
  const tunnels = up.filter(({ device, kind }) =>
    OVERHEAD_BYTES[kind] !== undefined && !uplinks.includes(device)
  );
  const way = smallest(tunnels) ?? uplink;
  const wide = up.filter(({ kind, mtu }) => kind === "veth" && mtu > way.mtu)
    .map(({ device, mtu }) => `${device} (${mtu})`);
  return warnings(check, `tunnels and pods fit into ${uplink.device} (${uplink.mtu})`, [
    ...tunnels.map(({ device, kind, mtu }): Doubt => {
      const most = uplink.mtu - (OVERHEAD_BYTES[kind] ?? 0);
      return mtu > most && [
        `${device} (${kind}) takes packets of ${mtu} bytes, with its header too large for ${uplink.device} ` +
        `(${uplink.mtu}): large answers hang, small ones do not`,
        `set the pod network's MTU to ${most} or less, for now: ip link set ${device} mtu ${most}`,
      ];
    }),
    wide.length > 0 && [
      `${few(wide)} of pods take larger packets than ${way.device} (${way.mtu}): they depend on ICMP ` +
      `"fragmentation needed" getting through`,
      `set the pod network's MTU to ${way.mtu} or less, and make its pods anew`,
    ],
  ]);
}

function smallest(links: readonly Link[]): Link | undefined {
  return links.toSorted((one, other) => one.mtu - other.mtu)[0];
}
