/**
 * What kube-proxy leaves on a node in modes other than iptables: the texts of the references' examples, reduced.
 *
 * @module
 */
import { setNames } from "../../lib/backend/ipvs/plan/sets.ts";
import type { IpFamily } from "../../lib/model/objects.ts";

/** All sets of IPVS mode as `ipset restore` reads them. */
export function ipsetText(family: IpFamily): string {
  const options = `family ${family === "IPv4" ? "inet" : "inet6"} hashsize 1024 maxelem 65536`;
  return setNames(family).map((name) => {
    if (name.endsWith("-IPS")) return `create ${name} hash:ip ${options}\n`;
    if (/LOOP-BACK|SOURCE-IP/.test(name)) return `create ${name} hash:ip,port,ip ${options}\n`;
    if (name.includes("SOURCE-CID")) return `create ${name} hash:ip,port,net ${options}\n`;
    if (/(TCP|UDP|CHECK-NODE-PORT)$/.test(name)) return `create ${name} bitmap:port range 0-65535\n`;
    return `create ${name} hash:ip,port ${options}\n`;
  }).join("");
}

/** Rules of IPVS mode, which use those sets. */
export function ipvsRules(family: IpFamily): string {
  const set = (name: string): string => family === "IPv4" ? `KUBE-${name}` : `KUBE-6-${name}`;
  return `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m set --match-set ${set("LOOP-BACK")} dst,dst,src -j MASQUERADE
-A KUBE-SERVICES -m set --match-set ${set("LOAD-BALANCER")} dst,dst -j KUBE-LOAD-BALANCER
-A KUBE-NODE-PORT -p tcp -m set --match-set ${set("NODE-PORT-TCP")} dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m set --match-set ${set("CLUSTER-IP")} dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m set --match-set ${set("CLUSTER-IP")} dst,dst -j ACCEPT
-A KUBE-POSTROUTING -m mark ! --mark 0x00004000/0x00004000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x00004000
-A KUBE-POSTROUTING -j MASQUERADE
-A KUBE-MARK-MASQ -j MARK --or-mark 0x00004000
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-I INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-I INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-I FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-I INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-I OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A KUBE-PROXY-FIREWALL -m set --match-set ${set("LOAD-BALANCER-FW")} dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
-A KUBE-SOURCE-RANGES-FIREWALL -j DROP
-A KUBE-NODE-PORT -m set --match-set ${set("HEALTH-CHECK-NODE-PORT")} dst -j ACCEPT
-A KUBE-IPVS-FILTER -m set --match-set ${set("CLUSTER-IP")} dst,dst -j RETURN
-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set ${set("IPVS-IPS")} dst -j REJECT
COMMIT
`;
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

/** What a table of nftables mode leads somewhere. */
export interface NftService {
  readonly vip: string;
  readonly port: number;
  readonly protocol: "tcp" | "udp";
  /** Address and port of the one endpoint. */
  readonly to: string;
}

const NFT_WEB: NftService = { vip: "10.96.10.1", port: 80, protocol: "tcp", to: "10.244.0.11:8080" };

/** Both families' tables of nftables mode by this name, with these Services in the first. */
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
