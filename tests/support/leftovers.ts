/**
 * Leftovers of kube-proxy on a node, in modes other than iptables: recorded ones of mode ipvs, reduced ones of others.
 *
 * @module
 */
import type { IpFamily } from "../../lib/model/objects.ts";
import { loadRecorded } from "../recorded/recorded.ts";

/** Recorded world of the leftovers. */
const IPVS_WORLD = "bridge-no-localhost";

/** All sets of IPVS mode with their entries, as `ipset restore` reads them. */
export async function ipsetText(family: IpFamily): Promise<string> {
  const lines = (await loadRecorded(IPVS_WORLD, "ipvs")).get("ipset") ?? [];
  const own = lines.filter((line) => line.includes(" KUBE-6-") === (family === "IPv6"));
  // `create` sorts after `add`.
  return own.toSorted((left, right) => Number(left.startsWith("add")) - Number(right.startsWith("add")))
    .map((line) => `${line}\n`).join("");
}

/** Rules of IPVS mode that use those sets, except those that need IPVS in the kernel. */
export async function ipvsRules(family: IpFamily): Promise<string> {
  const lines = (await loadRecorded(IPVS_WORLD, "ipvs")).get(family === "IPv4" ? "iptables" : "ip6tables") ??
    [];
  return lines.filter((line) => !/^:(?!KUBE-)| -m ipvs /.test(line)).map((line) => `${line}\n`).join("");
}

/** Rules of userspace mode. */
export function userspaceRules(family: IpFamily): string {
  const [vip, mask] = family === "IPv4" ? ["10.96.10.1", 32] : ["fd00:10:96::1", 128];
  const portals = "handle ClusterIPs; NOTE: this must be before the NodePort rules";
  const nodePorts = "handle service NodePorts; NOTE: this must be the last rule in the chain";
  const match = `-m comment --comment "shop/web:http" -p tcp -m tcp --dport 80 -d ${vip}/${mask}`;
  return `*nat
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
:KUBE-NODEPORT-CONTAINER - [0:0]
:KUBE-NODEPORT-HOST - [0:0]
-I PREROUTING -m comment --comment "${portals}" -j KUBE-PORTALS-CONTAINER
-I OUTPUT -m comment --comment "${portals}" -j KUBE-PORTALS-HOST
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "${nodePorts}" -j KUBE-NODEPORT-CONTAINER
-A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "${nodePorts}" -j KUBE-NODEPORT-HOST
-A KUBE-PORTALS-CONTAINER ${match} -j REDIRECT --to-ports 41234
-A KUBE-PORTALS-HOST ${match} -j REDIRECT --to-ports 41234
COMMIT
*filter
:KUBE-NODEPORT-NON-LOCAL - [0:0]
-I INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
-A KUBE-NODEPORT-NON-LOCAL -p tcp -m tcp --dport 41234 -m state --state NEW -j ACCEPT
COMMIT
`;
}

/** A Service in a table of nftables mode. */
export interface NftService {
  readonly vip: string;
  readonly port: number;
  readonly protocol: "tcp" | "udp";
  /** Address and port of its only endpoint. */
  readonly to: string;
}

const NFT_WEB: NftService = { vip: "10.96.10.1", port: 80, protocol: "tcp", to: "10.244.0.11:8080" };

/** Tables of nftables mode by this name, for both families, with these Services in the first. */
export function nftTables(name: string, services: readonly NftService[] = [NFT_WEB]): string {
  const elements = services.map(({ vip, port, protocol }, i) =>
    `${vip} . ${protocol} . ${port} : goto service-${i}`
  );
  const chains = services.map(({ protocol, to }, i) =>
    `  chain service-${i} {\n    meta l4proto ${protocol} dnat to ${to}\n  }\n`
  );
  return `table ip ${name} {
  map service-ips {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { ${elements.join(", ")} }
  }
${chains.join("")}  chain nat-prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    ip daddr . meta l4proto . th dport vmap @service-ips
  }
  chain nat-output {
    type nat hook output priority -100; policy accept;
    ip daddr . meta l4proto . th dport vmap @service-ips
  }
}
table ip6 ${name} {
  chain nat-prerouting { type nat hook prerouting priority dstnat; policy accept; }
}
`;
}
