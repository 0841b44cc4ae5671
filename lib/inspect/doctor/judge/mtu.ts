/**
 * Judges sizes of packets: a tunnel adds a header, so what goes into it must be so much smaller than what leaves the node.
 *
 * @module
 */
import type { Link } from "../../../netfilter/ip_batch.ts";
import { type Finding, ok, warning } from "../finding.ts";
import type { LinksFact } from "../read/links.ts";
import { few } from "../../../text/words.ts";

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

/** What is too large for the uplink, or for the tunnels that pods' packets go through. */
export function judgeMtu({ links, uplinks }: LinksFact): readonly Finding[] {
  const check = "packet sizes";
  const up = links.filter(({ device, isUp, mtu }) => uplinks.includes(device) && isUp && mtu > 0);
  const uplink = smallest(up);
  if (uplink === null) return [ok(check, "no default route: there is no uplink to compare with")];
  const findings: Finding[] = [];
  const tunnels = links.filter(({ kind, isUp, mtu }) =>
    OVERHEAD_BYTES[kind] !== undefined && isUp && mtu > 0
  );
  for (const { device, kind, mtu } of tunnels) {
    if (uplinks.includes(device)) continue;
    const most = uplink.mtu - (OVERHEAD_BYTES[kind] ?? 0);
    if (mtu <= most) continue;
    findings.push(
      warning(
        check,
        `${device} (${kind}) takes packets of ${mtu} bytes, with its header too large for ${uplink.device} ` +
          `(${uplink.mtu}): large answers hang, small ones do not`,
        `set the pod network's MTU to ${most} or less, for now: ip link set ${device} mtu ${most}`,
      ),
    );
  }
  const narrow = smallest(tunnels.filter(({ device }) => !uplinks.includes(device)));
  const way = narrow ?? uplink;
  const wide = links.filter(({ kind, isUp, mtu }) => kind === "veth" && isUp && mtu > way.mtu);
  if (wide.length > 0) {
    findings.push(
      warning(
        check,
        `${
          few(wide.map(({ device, mtu }) => `${device} (${mtu})`))
        } of pods take larger packets than ${way.device} ` +
          `(${way.mtu}): they depend on ICMP "fragmentation needed" getting through`,
        `set the pod network's MTU to ${way.mtu} or less, and make its pods anew`,
      ),
    );
  }
  if (findings.length > 0) return findings;
  return [ok(check, `tunnels and pods fit into ${uplink.device} (${uplink.mtu})`)];
}

function smallest(links: readonly Link[]): Link | null {
  return links.reduce<Link | null>(
    (least, link) => least === null || link.mtu < least.mtu ? link : least,
    null,
  );
}
