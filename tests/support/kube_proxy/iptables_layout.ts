/**
 * Chains, jumps and rules of kube-proxy's mode iptables (1.30 to 1.36; since 1.32 with counters of nfacct where the kernel has them).
 *
 * @module
 */
import { base32Sha256 } from "../../../lib/netfilter/chain_hash.ts";
import { addressText, inOrder, type LaidOutNode, type LaidOutPort, MARK } from "./laid_out.ts";

/** Chains of a mode, and what leads there from the kernel's own, in the order in which they are made sure of. */
export interface ChainLayout {
  readonly chains: Readonly<Record<"mangle" | "nat" | "filter", readonly string[]>>;
  readonly jumps: readonly {
    readonly table: "nat" | "filter";
    readonly from: string;
    readonly rule: string;
  }[];
}

/** A jump with this comment; `match` stands before it. */
export function jump(table: "nat" | "filter", from: string, comment: string, to: string, match = "") {
  return { table, from, rule: `${match}-m comment --comment "${comment}" -j ${to}` };
}

const NEW = "-m conntrack --ctstate NEW ";
const CANARY = "KUBE-PROXY-CANARY";

export const IPTABLES_CHAINS: ChainLayout = {
  chains: {
    mangle: [CANARY],
    nat: [CANARY, "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"],
    filter: [
      ...[CANARY, "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS"],
      ...["KUBE-PROXY-FIREWALL", "KUBE-FIREWALL"],
    ],
  },
  jumps: [
    ...["INPUT", "FORWARD"].map((from) =>
      jump("filter", from, "kubernetes externally-visible service portals", "KUBE-EXTERNAL-SERVICES", NEW)
    ),
    jump("filter", "INPUT", "kubernetes health check service ports", "KUBE-NODEPORTS"),
    ...["FORWARD", "OUTPUT"].map((from) =>
      jump("filter", from, "kubernetes service portals", "KUBE-SERVICES", NEW)
    ),
    jump("filter", "FORWARD", "kubernetes forwarding rules", "KUBE-FORWARD"),
    ...["INPUT", "OUTPUT", "FORWARD"].map((from) =>
      jump("filter", from, "kubernetes load balancer firewall", "KUBE-PROXY-FIREWALL", NEW)
    ),
    ...["OUTPUT", "PREROUTING"].map((from) =>
      jump("nat", from, "kubernetes service portals", "KUBE-SERVICES")
    ),
    jump("nat", "POSTROUTING", "kubernetes postrouting rules", "KUBE-POSTROUTING"),
    ...["INPUT", "OUTPUT"].map((from) => ({ table: "filter", from, rule: "-j KUBE-FIREWALL" } as const)),
  ],
};

/** Chains of Services begin so. */
export const SERVICE_CHAIN = /^KUBE-(?:SVC|SVL|EXT|FW|SEP)-/;

/** Rules of both modes that write to iptables. */
export const MASQUERADING_RULES: readonly string[] = [
  `-A KUBE-POSTROUTING -m mark ! --mark ${MARK}/${MARK} -j RETURN`,
  `-A KUBE-POSTROUTING -j MARK --xor-mark ${MARK}`,
  '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
  `-A KUBE-MARK-MASQ -j MARK --or-mark ${MARK}`,
];
export const FORWARDING_RULES: readonly string[] = [
  `-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark ${MARK}/${MARK} -j ACCEPT`,
  '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
];

/** The text for `iptables-restore --noflush` of a full sync. `known`: chains of nat that are there, of which some are stale. */
export function iptablesText(
  node: LaidOutNode,
  ports: readonly LaidOutPort[],
  known: readonly string[],
  nfacct: boolean,
): string {
  const all = ports.map((port) => portRules(node, port, nfacct));
  const natRules = all.flatMap(({ nat }) => nat);
  const chains = natRules.filter((line) => line.startsWith(":"));
  const used = new Set(chains.map((line) => line.slice(1, line.indexOf(" "))));
  const stale = known.filter((chain) => SERVICE_CHAIN.test(chain) && !used.has(chain));
  const isIpv4 = node.family === "IPv4";
  const lines = [
    "*filter",
    ...IPTABLES_CHAINS.chains.filter.filter((chain) =>
      chain !== CANARY && (isIpv4 || chain !== "KUBE-FIREWALL")
    ).map(chainLine),
    ...(isIpv4
      ? [
        '-A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
      ]
      : []),
    ...all.flatMap(({ filter }) => filter),
    `-A KUBE-FORWARD -m conntrack --ctstate INVALID ${
      nfacct ? `${counted("ct_state_invalid_dropped_pkts")} ` : ""
    }-j DROP`,
    ...FORWARDING_RULES,
    "COMMIT",
    "*nat",
    ...IPTABLES_CHAINS.chains.nat.filter((chain) => chain !== CANARY).map(chainLine),
    ...chains,
    ...stale.map(chainLine),
    ...MASQUERADING_RULES,
    ...natRules.filter((line) => !line.startsWith(":")),
    ...stale.map((chain) => `-X ${chain}`),
    `-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL${
      isIpv4 ? "" : " ! -d ::1/128"
    } -j KUBE-NODEPORTS`,
    "COMMIT",
  ];
  return lines.join("\n") + "\n";
}

/** As `iptables-restore` reads it: makes the chain, or empties it. */
export function chainLine(chain: string): string {
  return `:${chain} - [0:0]`;
}

function counted(name: string): string {
  return `-m nfacct --nfacct-name ${name}`;
}

function portRules(
  node: LaidOutNode,
  port: LaidOutPort,
  nfacct: boolean,
): { filter: string[]; nat: string[] } {
  const { name, protocol, clusterIp, nodePort, loadBalancer, endpoints } = port;
  const to = (ip: string): string => `-m ${protocol} -p ${protocol} -d ${ip} --dport ${port.port}`;
  const atNodePort = `-m ${protocol} -p ${protocol} --dport ${nodePort}`;
  if (endpoints.length === 0) return { filter: refusals(port, to, atNodePort), nat: [] };
  const hash = base32Sha256(name + protocol, 16);
  const [svc, ext, fw] = ["SVC", "EXT", "FW"].map((kind) => `KUBE-${kind}-${hash}`) as [
    string,
    string,
    string,
  ];
  const filter: string[] = [];
  const nat = [
    `-A KUBE-SERVICES -m comment --comment "${name} cluster IP" ${to(clusterIp)} -j ${svc}`,
  ];
  if (loadBalancer !== undefined) {
    nat.push(
      `-A KUBE-SERVICES -m comment --comment "${name} loadbalancer IP" ${to(loadBalancer.ip)} -j ${fw}`,
    );
    filter.push(
      `-A KUBE-PROXY-FIREWALL -m comment --comment "${name} traffic not accepted by ${fw}" ${
        to(loadBalancer.ip)
      } -j DROP`,
    );
  }
  if (nodePort !== undefined && nfacct && node.family === "IPv4") {
    nat.push(
      `-A KUBE-NODEPORTS -m comment --comment ${name} ${atNodePort} -d 127.0.0.0/8 ${
        counted("localhost_nps_accepted_pkts")
      } -j ${ext}`,
    );
  }
  if (nodePort !== undefined) {
    nat.push(`-A KUBE-NODEPORTS -m comment --comment ${name} ${atNodePort} -j ${ext}`);
  }
  nat.push(
    `-A ${svc} -m comment --comment "${name} cluster IP" ${
      to(clusterIp)
    } ! -s ${node.clusterCidr} -j KUBE-MARK-MASQ`,
  );
  if (nodePort !== undefined || loadBalancer !== undefined) {
    nat.push(
      chainLine(ext),
      `-A ${ext} -m comment --comment "masquerade traffic for ${name} external destinations" -j KUBE-MARK-MASQ`,
      `-A ${ext} -j ${svc}`,
    );
  }
  if (loadBalancer !== undefined) {
    nat.push(
      chainLine(fw),
      ...loadBalancer.sourceRanges.map((range) =>
        `-A ${fw} -m comment --comment "${name} loadbalancer IP" -s ${range} -j ${ext}`
      ),
      `-A ${fw} -m comment --comment "other traffic to ${name} will be dropped by KUBE-PROXY-FIREWALL"`,
    );
  }
  return { filter, nat: [...nat, chainLine(svc), ...endpointRules(svc, port)] };
}

function refusals(
  { name, clusterIp, nodePort }: LaidOutPort,
  to: (ip: string) => string,
  atNodePort: string,
) {
  const why = `-m comment --comment "${name} has no endpoints"`;
  return [
    `-A KUBE-SERVICES ${why} ${to(clusterIp)} -j REJECT`,
    ...(nodePort === undefined
      ? []
      : [`-A KUBE-EXTERNAL-SERVICES ${why} -m addrtype --dst-type LOCAL ${atNodePort} -j REJECT`]),
  ];
}

function endpointRules(svc: string, { name, protocol, affinitySeconds, ...port }: LaidOutPort): string[] {
  const endpoints = inOrder(port.endpoints).map((endpoint) => {
    const text = addressText(endpoint);
    const chain = `KUBE-SEP-${base32Sha256(name + protocol + text, 16)}`;
    return { ...endpoint, text, chain, to: `-m comment --comment "${name} -> ${text}"` };
  });
  const remembered = affinitySeconds === undefined
    ? []
    : endpoints.map(({ chain, to }) =>
      `-A ${svc} ${to} -m recent --name ${chain} --rcheck --seconds ${affinitySeconds} --reap -j ${chain}`
    );
  return [
    ...remembered,
    ...endpoints.map(({ chain, to }, i) => {
      const left = endpoints.length - i;
      const chance = left === 1 ? "" : ` -m statistic --mode random --probability ${(1 / left).toFixed(10)}`;
      return `-A ${svc} ${to}${chance} -j ${chain}`;
    }),
    ...endpoints.flatMap(({ ip, text, chain }) => [
      chainLine(chain),
      `-A ${chain} -m comment --comment ${name} -s ${ip} -j KUBE-MARK-MASQ`,
      `-A ${chain} -m comment --comment ${name}${
        affinitySeconds === undefined ? "" : ` -m recent --name ${chain} --set`
      } -m ${protocol} -p ${protocol} -j DNAT --to-destination ${text}`,
    ]),
  ];
}
