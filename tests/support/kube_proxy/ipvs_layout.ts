/**
 * Sets, servers, addresses and rules of kube-proxy's mode ipvs.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/model/objects.ts";
import {
  type ChainLayout,
  chainLine,
  FORWARDING_RULES,
  jump,
  MASQUERADING_RULES,
} from "./iptables_layout.ts";
import { addressText, inOrder, type LaidOutNode, type LaidOutPort } from "./laid_out.ts";

export const IPVS_CHAINS: ChainLayout = {
  chains: {
    mangle: [],
    nat: ["KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-MARK-MASQ"],
    filter: [
      ...["KUBE-FORWARD", "KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL"],
      ...["KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"],
    ],
  },
  jumps: [
    ...["OUTPUT", "PREROUTING"].map((from) =>
      jump("nat", from, "kubernetes service portals", "KUBE-SERVICES")
    ),
    jump("nat", "POSTROUTING", "kubernetes postrouting rules", "KUBE-POSTROUTING"),
    jump("filter", "FORWARD", "kubernetes forwarding rules", "KUBE-FORWARD"),
    jump("filter", "INPUT", "kubernetes health check rules", "KUBE-NODE-PORT"),
    ...["INPUT", "FORWARD"].map((from) =>
      jump("filter", from, "kube-proxy firewall rules", "KUBE-PROXY-FIREWALL")
    ),
    jump("filter", "INPUT", "kubernetes ipvs access filter", "KUBE-IPVS-FILTER"),
    jump("filter", "OUTPUT", "kubernetes ipvs access filter", "KUBE-IPVS-OUT-FILTER"),
  ],
};

const HASH = "hash:ip,port";
/** Name without the family's prefix, type, and what rules say of the set. */
const SETS: readonly (readonly [name: string, type: string, comment: string])[] = [
  ["LOOP-BACK", "hash:ip,port,ip", "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"],
  ["CLUSTER-IP", HASH, "Kubernetes service cluster ip + port for masquerade purpose"],
  ["EXTERNAL-IP", HASH, "Kubernetes service external ip + port for masquerade and filter purpose"],
  ["EXTERNAL-IP-LOCAL", HASH, "Kubernetes service external ip + port with externalTrafficPolicy=local"],
  ["LOAD-BALANCER", HASH, "Kubernetes service lb portal"],
  ["LOAD-BALANCER-FW", HASH, "Kubernetes service load balancer ip + port for load balancer with sourceRange"],
  [
    "LOAD-BALANCER-LOCAL",
    HASH,
    "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
  ],
  [
    "LOAD-BALANCER-SOURCE-IP",
    "hash:ip,port,ip",
    "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
  ],
  [
    "LOAD-BALANCER-SOURCE-CIDR",
    "hash:ip,port,net",
    "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
  ],
  ["NODE-PORT-TCP", "bitmap:port", "Kubernetes nodeport TCP port for masquerade purpose"],
  ["NODE-PORT-LOCAL-TCP", "bitmap:port", "Kubernetes nodeport TCP port with externalTrafficPolicy=local"],
  ["NODE-PORT-UDP", "bitmap:port", "Kubernetes nodeport UDP port for masquerade purpose"],
  ["NODE-PORT-LOCAL-UDP", "bitmap:port", "Kubernetes nodeport UDP port with externalTrafficPolicy=local"],
  [
    "NODE-PORT-SCTP-HASH",
    HASH,
    "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'",
  ],
  [
    "NODE-PORT-LOCAL-SCTP-HASH",
    HASH,
    "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
  ],
  ["HEALTH-CHECK-NODE-PORT", "bitmap:port", "Kubernetes health check node port"],
  ["IPVS-IPS", "hash:ip", "Addresses on the ipvs interface"],
];
/** Of a set's name. */
const NAME_LENGTH = 31;

function setName(family: IpFamily, name: string): string {
  return `KUBE-${family === "IPv4" ? "" : "6-"}${name}`.slice(0, NAME_LENGTH);
}

/** What one family holds beside rules, each line as its tool prints and reads it. */
export interface IpvsHoldings {
  /** For `ipset restore -exist`. */
  readonly sets: readonly string[];
  /** `add SET ENTRY`. */
  readonly entries: readonly string[];
  /** `-A …` and `-a …` of `ipvsadm`. */
  readonly servers: readonly string[];
  /** On `kube-ipvs0`, with their prefix lengths. */
  readonly addresses: readonly string[];
}

/** Sets, servers and addresses of a full sync. */
export function ipvsHoldings(node: LaidOutNode, ports: readonly LaidOutPort[]): IpvsHoldings {
  const { family, hostIps } = node;
  const all = ports.map((port) => portHoldings(port, hostIps));
  const vips = [...new Set(all.flatMap(({ vips }) => vips))];
  const entries = [
    ...all.flatMap(({ entries }) => entries),
    ...vips.map((vip) => ["IPVS-IPS", vip] as const),
  ];
  return {
    sets: SETS.map(([name, type]) => {
      const options = type === "bitmap:port"
        ? "range 0-65535"
        : `family ${family === "IPv4" ? "inet" : "inet6"} hashsize 1024 maxelem 65536`;
      return `create ${setName(family, name)} ${type} ${options}`;
    }),
    entries: entries.map(([name, entry]) => `add ${setName(family, name)} ${entry}`),
    servers: all.flatMap(({ servers }) => servers),
    addresses: vips.map((vip) => `${vip}/${family === "IPv4" ? 32 : 128}`),
  };
}

function portHoldings(port: LaidOutPort, hostIps: readonly string[]) {
  const { protocol, clusterIp, nodePort, loadBalancer, affinitySeconds } = port;
  const endpoints = inOrder(port.endpoints);
  const at = (ip: string): string => `${ip},${protocol}:${port.port}`;
  const entries: (readonly [set: string, entry: string])[] = [
    ["CLUSTER-IP", at(clusterIp)],
    ...endpoints.map((one) => ["LOOP-BACK", `${one.ip},${protocol}:${one.port},${one.ip}`] as const),
  ];
  if (nodePort !== undefined) entries.push([`NODE-PORT-${protocol.toUpperCase()}`, String(nodePort)]);
  if (loadBalancer !== undefined) {
    entries.push(["LOAD-BALANCER", at(loadBalancer.ip)], ["LOAD-BALANCER-FW", at(loadBalancer.ip)]);
    for (const range of loadBalancer.sourceRanges) {
      entries.push(["LOAD-BALANCER-SOURCE-CIDR", `${at(loadBalancer.ip)},${range}`]);
    }
  }
  const vips = [clusterIp, ...(loadBalancer === undefined ? [] : [loadBalancer.ip])];
  const destinations = [
    ...vips.map((ip) => ({ ip, port: port.port })),
    ...(nodePort === undefined ? [] : hostIps.map((ip) => ({ ip, port: nodePort }))),
  ];
  const servers = destinations.flatMap((destination) => {
    const server = `-${protocol === "tcp" ? "t" : "u"} ${addressText(destination)}`;
    return [
      `-A ${server} -s rr${affinitySeconds === undefined ? "" : ` -p ${affinitySeconds}`}`,
      ...endpoints.map((endpoint) => `-a ${server} -r ${addressText(endpoint)} -m -w 1`),
    ];
  });
  return { entries, vips, servers };
}

/** The text for `iptables-restore --noflush` of a full sync. */
export function ipvsText(node: LaidOutNode, ports: readonly LaidOutPort[]): string {
  const words = new SetWords(node, ports);
  return [...natLines(node, words), ...filterLines(ports, words)].join("\n") + "\n";
}

/** How the rules of one family speak of its sets. */
class SetWords {
  readonly #family: IpFamily;
  readonly #entries: readonly string[];

  constructor(node: LaidOutNode, ports: readonly LaidOutPort[]) {
    this.#family = node.family;
    this.#entries = ipvsHoldings(node, ports).entries;
  }

  /** A match for members of a set. */
  match(name: string, which: string): string {
    return `-m set --match-set ${setName(this.#family, name)} ${which}`;
  }

  /** The same with the set's comment before it. */
  told(name: string, which: string): string {
    const comment = SETS.find(([known]) => known === name)?.[2];
    return `-m comment --comment "${comment}" ${this.match(name, which)}`;
  }

  /** Rules that are there if the set has a member. */
  ifFilled(name: string, ...rules: readonly string[]): readonly string[] {
    const isFilled = this.#entries.some((entry) => entry.startsWith(`add ${setName(this.#family, name)} `));
    return isFilled ? rules : [];
  }
}

function natLines({ family, clusterCidr }: LaidOutNode, words: SetWords): string[] {
  const rule = (name: string, chain: string, which: string, rest: string): readonly string[] =>
    words.ifFilled(name, `-A ${chain} ${words.told(name, which)} ${rest}`);
  return [
    "*nat",
    ...IPVS_CHAINS.chains.nat.map(chainLine),
    `-A KUBE-SERVICES -s ${family === "IPv4" ? "127.0.0.0/8" : "::1/128"} -j RETURN`,
    ...rule("LOOP-BACK", "KUBE-POSTROUTING", "dst,dst,src", "-j MASQUERADE"),
    ...rule("LOAD-BALANCER", "KUBE-SERVICES", "dst,dst", "-j KUBE-LOAD-BALANCER"),
    ...["tcp", "udp"].flatMap((protocol) =>
      rule(`NODE-PORT-${protocol.toUpperCase()}`, `KUBE-NODE-PORT -p ${protocol}`, "dst", "-j KUBE-MARK-MASQ")
    ),
    ...rule("CLUSTER-IP", "KUBE-SERVICES", "dst,dst", `! -s ${clusterCidr} -j KUBE-MARK-MASQ`),
    "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT",
    "-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ",
    ...["CLUSTER-IP", "LOAD-BALANCER"].flatMap((name) =>
      words.ifFilled(name, `-A KUBE-SERVICES ${words.match(name, "dst,dst")} -j ACCEPT`)
    ),
    ...MASQUERADING_RULES,
    "COMMIT",
  ];
}

function filterLines(ports: readonly LaidOutPort[], words: SetWords): string[] {
  const sources = "KUBE-SOURCE-RANGES-FIREWALL";
  return [
    "*filter",
    ...IPVS_CHAINS.chains.filter.map(chainLine),
    ...words.ifFilled(
      "LOAD-BALANCER-FW",
      `-A KUBE-PROXY-FIREWALL ${words.told("LOAD-BALANCER-FW", "dst,dst")} -j ${sources}`,
      `-A ${sources} ${words.told("LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src")} -j RETURN`,
    ),
    `-A ${sources} -j DROP`,
    ...ports.flatMap(({ loadBalancer, protocol, port }) =>
      loadBalancer === undefined ? [] : [
        `-A KUBE-IPVS-OUT-FILTER -s ${loadBalancer.ip} -m ipvs --vaddr ${loadBalancer.ip} --vproto ${protocol} --vport ${port} -j DROP`,
      ]
    ),
    ...FORWARDING_RULES,
    `-A KUBE-NODE-PORT ${words.told("HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`,
    ...["LOAD-BALANCER", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL"].map((name) =>
      `-A KUBE-IPVS-FILTER ${words.match(name, "dst,dst")} -j RETURN`
    ),
    `-A KUBE-IPVS-FILTER ${words.match("HEALTH-CHECK-NODE-PORT", "dst")} -j RETURN`,
    `-A KUBE-IPVS-FILTER -m conntrack --ctstate NEW ${words.match("IPVS-IPS", "dst")} -j REJECT`,
    "COMMIT",
  ];
}
