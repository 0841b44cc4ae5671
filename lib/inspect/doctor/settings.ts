/**
 * Names of kernel settings that only the doctor asks for, and how those of devices are read.
 *
 * @module
 */

/** 1: the node forwards IPv6 packets. */
export const IPV6_FORWARD = "net.ipv6.conf.all.forwarding";
/** 1: packets that stay on a bridge pass iptables, so that pods of one node reach each other through Services. */
export const BRIDGE_NETFILTER = "net.bridge.bridge-nf-call-iptables";
export const BRIDGE_NETFILTER_6 = "net.bridge.bridge-nf-call-ip6tables";
/** Connections that are tracked now. */
export const CONNTRACK_COUNT = "net.netfilter.nf_conntrack_count";
/** How many there may be. */
export const CONNTRACK_MAX = "net.netfilter.nf_conntrack_max";

/** Device → value, of one setting of each device in a family. */
export function settingOfDevices(
  settings: ReadonlyMap<string, string>,
  family: "ipv4" | "ipv6",
  setting: string,
): ReadonlyMap<string, string> {
  const start = `net.${family}.conf.`;
  const end = `.${setting}`;
  const found = new Map<string, string>();
  for (const [name, value] of settings) {
    if (!name.startsWith(start) || !name.endsWith(end)) continue;
    // The program writes a dot of a device's name as a slash.
    found.set(name.slice(start.length, -end.length).replaceAll("/", "."), value);
  }
  return found;
}

/** The name of a device's setting as `sysctl` takes it. */
export function deviceSetting(family: "ipv4" | "ipv6", device: string, setting: string): string {
  return `net.${family}.conf.${device.replaceAll(".", "/")}.${setting}`;
}
