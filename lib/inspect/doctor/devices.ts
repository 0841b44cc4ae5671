/**
 * Checks of the network devices: whether packets from each are forwarded, the reverse path filter, and sizes of packets.
 *
 * @module
 */
import type { Exec } from "../../kernel/exec.ts";
import { defaultRouteDevices, readLinks } from "../../kernel/ip_address.ts";
import type { Link } from "../../netfilter/ip_batch.ts";
import { few } from "../../text/words.ts";
import { type Doubt, type Finding, ok, warnings } from "./report.ts";

/** The devices, and those of the default routes of both families. */
export interface Links {
  readonly links: readonly Link[];
  readonly uplinks: readonly string[];
}

export async function readLinksAndRoutes(exec: Exec): Promise<Links> {
  const [links, ...uplinks] = await Promise.all([
    readLinks(exec),
    defaultRouteDevices(exec, "IPv4"),
    // Without IPv6 in the kernel the program fails, which says that there is no route.
    defaultRouteDevices(exec, "IPv6").catch(() => []),
  ]);
  return { links, uplinks: [...new Set(uplinks.flat())] };
}

/** Device → value, of one setting of each device in a family. */
function settingOfDevices(
  settings: ReadonlyMap<string, string>,
  family: "ipv4" | "ipv6",
  setting: string,
): ReadonlyMap<string, string> {
  const [start, end] = [`net.${family}.conf.`, `.${setting}`];
  return new Map(
    [...settings].filter(([name]) => name.startsWith(start) && name.endsWith(end))
      // The program writes a dot of a device's name as a slash.
      .map(([name, value]) => [name.slice(start.length, -end.length).replaceAll("/", "."), value]),
  );
}

/** The name of a device's setting as `sysctl` takes it. */
function deviceSetting(family: "ipv4" | "ipv6", device: string, setting: string): string {
  return `net.${family}.conf.${device.replaceAll(".", "/")}.${setting}`;
}

/** Names that are no device, and the device by which nothing comes from elsewhere. */
const NO_WAY: readonly string[] = ["all", "default", "lo"];
/** Packets are sent to these by the node itself; nothing comes in by them that would be forwarded. */
const OWN_DEVICES: readonly string[] = ["kube-ipvs0", "kube-dummy-if", "nodelocaldns", "dummy0"];

/**
 * Devices whose packets are not forwarded although the node forwards.
 *
 * @param usesIpv6 why the cluster is known to use IPv6; null if nothing says so
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
      // Where nothing is forwarded, the devices are not the cause.
      if (values.get("all") === "0" || first === undefined) return false;
      const more = off.length > 1 ? " and so for the others" : "";
      return [
        `${family === "ipv4" ? "IPv4" : "IPv6"} packets that come in by ${few(off)} are not forwarded`,
        `sysctl -w ${deviceSetting(family, first, "forwarding")}=1${more}`,
      ];
    }),
  );
}

/**
 * The kernel drops a packet whose answer would leave by another device. What is in force at a device is the higher one of its own value
 * and that of `all`.
 *
 * @param podDevices of single pods: strict there keeps a pod from using other addresses than its own, and is meant so
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
  const name = strict.length > 1
    ? "net.ipv4.conf.all.rp_filter"
    : deviceSetting("ipv4", first ?? "", "rp_filter");
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

/** Bytes that a tunnel of this kind adds, at the least: over IPv4. */
const OVERHEAD_BYTES: Readonly<Record<string, number>> = {
  vxlan: 50,
  geneve: 50,
  ipip: 20,
  sit: 20,
  gre: 24,
  gretap: 38,
  wireguard: 60,
};

/** A tunnel adds a header, so what goes into it must be so much smaller than what leaves the node. */
export function checkMtu({ links, uplinks }: Links): readonly Finding[] {
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
