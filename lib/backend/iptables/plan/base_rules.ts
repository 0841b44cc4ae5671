/**
 * Base rules, which do not depend on Services: masquerading, forwarding, jumps from built-in chains and the
 * node-port tail.
 *
 * @module
 */
import { isLoopback, parseIp } from "../../../model/ip.ts";
import { jump, type JumpRule, type PerTable } from "../../../netfilter/iptables_jumps.ts";
import {
  CANARY_CHAIN,
  DISPATCH_CHAINS,
  EXTERNAL_SERVICES_CHAIN,
  FIREWALL_JUMP_COMMENT,
  FORWARD_CHAIN,
  KUBELET_FIREWALL_CHAIN,
  MARK_MASQ_CHAIN,
  NODE_PORTS_CHAIN,
  POSTROUTING_CHAIN,
  PROXY_FIREWALL_CHAIN,
  SERVICES_CHAIN,
} from "./chains.ts";
import { formatMark } from "../../planning.ts";
import { type BaseRules, COUNTERS, type IptablesOptions } from "./ruleset.ts";

/** `ctstate NEW` keeps packets of established flows out of chains that are long. */
const NEW_ONLY = "-m conntrack --ctstate NEW ";

/** All jumps from built-in chains, in the order of insertion at the top: the last one ends up first. */
export const JUMP_RULES: readonly JumpRule[] = [
  ...["INPUT", "FORWARD"].map((chain) =>
    jump("filter", chain, EXTERNAL_SERVICES_CHAIN, "kubernetes externally-visible service portals", NEW_ONLY)
  ),
  jump("filter", "INPUT", NODE_PORTS_CHAIN, "kubernetes health check service ports"),
  ...["FORWARD", "OUTPUT"].map((chain) =>
    jump("filter", chain, SERVICES_CHAIN, "kubernetes service portals", NEW_ONLY)
  ),
  jump("filter", "FORWARD", FORWARD_CHAIN, "kubernetes forwarding rules"),
  // After KUBE-FORWARD in this list, so before it in the kernel: that one accepts what carries the mark.
  ...["INPUT", "OUTPUT", "FORWARD"].map((chain) =>
    jump("filter", chain, PROXY_FIREWALL_CHAIN, FIREWALL_JUMP_COMMENT, NEW_ONLY)
  ),
  ...["OUTPUT", "PREROUTING"].map((chain) =>
    jump("nat", chain, SERVICES_CHAIN, "kubernetes service portals")
  ),
  jump("nat", "POSTROUTING", POSTROUTING_CHAIN, "kubernetes postrouting rules"),
  ...["INPUT", "OUTPUT"].map((chain): JumpRule => ({
    table: "filter",
    chain,
    target: KUBELET_FIREWALL_CHAIN,
    args: `-j ${KUBELET_FIREWALL_CHAIN}`,
  })),
];

/** All chains but those of Services. */
export const OWN_CHAINS: PerTable<readonly string[]> = {
  nat: [CANARY_CHAIN, ...DISPATCH_CHAINS.nat, POSTROUTING_CHAIN, MARK_MASQ_CHAIN],
  filter: [CANARY_CHAIN, ...DISPATCH_CHAINS.filter, FORWARD_CHAIN, KUBELET_FIREWALL_CHAIN],
};

/** True if node ports answer on 127.0.0.1, which needs `net.ipv4.conf.all.route_localnet`. */
export function usesLocalhostNodePorts(
  options: Pick<IptablesOptions, "family" | "localhostNodePorts" | "nodePortAddresses">,
): boolean {
  return options.family === "IPv4" && options.localhostNodePorts &&
    options.nodePortAddresses.containsIPv4Loopback;
}

function nodePortTail(options: IptablesOptions): readonly string[] {
  const start = `-A ${SERVICES_CHAIN} -m comment ` +
    `--comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"`;
  const withLocalhost = usesLocalhostNodePorts(options);
  if (options.nodePortAddresses.matchAll) {
    const excluded = options.family === "IPv6" ? " ! -d ::1/128" : withLocalhost ? "" : " ! -d 127.0.0.0/8";
    return [`${start} -m addrtype --dst-type LOCAL${excluded} -j ${NODE_PORTS_CHAIN}`];
  }
  return options.nodePortIps.filter((text) => {
    const ip = parseIp(text);
    if (ip === null || ip.family !== options.family) {
      throw new RangeError(`Node-port address must be an ${options.family} address: got "${text}"`);
    }
    return withLocalhost || !isLoopback(ip);
  }).map((ip) => `${start} -d ${ip} -j ${NODE_PORTS_CHAIN}`);
}

/** Plans all rules of one family that do not come from a Service. */
export function planBaseRules(options: IptablesOptions): BaseRules {
  const mark = formatMark(options.masqueradeMark);
  // route_localnet lets packets from the wire reach 127.0.0.0/8: this closes that hole again.
  const localnet = usesLocalhostNodePorts(options)
    ? [
      `-A ${KUBELET_FIREWALL_CHAIN} -m comment --comment "block incoming localnet connections"` +
      ` -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
    ]
    : [];
  const counted = options.nfacct ? `-m nfacct --nfacct-name ${COUNTERS.invalidDropped} ` : "";
  const head = {
    filter: localnet,
    nat: [
      `-A ${POSTROUTING_CHAIN} -m mark ! --mark ${mark}/${mark} -j RETURN`,
      // Clears the mark, so that a packet which enters the stack again is not masqueraded twice.
      `-A ${POSTROUTING_CHAIN} -j MARK --xor-mark ${mark}`,
      `-A ${POSTROUTING_CHAIN} -m comment --comment "kubernetes service traffic requiring SNAT"` +
      " -j MASQUERADE --random-fully",
      `-A ${MARK_MASQ_CHAIN} -j MARK --or-mark ${mark}`,
    ],
  };
  const tail = {
    filter: [
      // NAT leaves such packets alone, so the pod's peer would see a foreign source and answer with a reset.
      ...(options.dropInvalid
        ? [`-A ${FORWARD_CHAIN} -m conntrack --ctstate INVALID ${counted}-j DROP`]
        : []),
      `-A ${FORWARD_CHAIN} -m comment --comment "kubernetes forwarding rules" -m mark --mark ${mark}/${mark} -j ACCEPT`,
      `-A ${FORWARD_CHAIN} -m comment --comment "kubernetes forwarding conntrack rule"` +
      ` -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
    ],
    nat: nodePortTail(options),
  };
  return {
    chains: {
      filter: [
        SERVICES_CHAIN,
        EXTERNAL_SERVICES_CHAIN,
        FORWARD_CHAIN,
        NODE_PORTS_CHAIN,
        PROXY_FIREWALL_CHAIN,
        ...(localnet.length > 0 ? [KUBELET_FIREWALL_CHAIN] : []),
      ],
      nat: [SERVICES_CHAIN, NODE_PORTS_CHAIN, POSTROUTING_CHAIN, MARK_MASQ_CHAIN],
    },
    dispatch: DISPATCH_CHAINS,
    // The kubelet's chain is ours where we fill it.
    ensured: {
      filter: localnet.length > 0 ? [CANARY_CHAIN] : [KUBELET_FIREWALL_CHAIN, CANARY_CHAIN],
      nat: [CANARY_CHAIN],
    },
    hasServiceChains: true,
    head,
    tail,
    jumps: JUMP_RULES,
  };
}
