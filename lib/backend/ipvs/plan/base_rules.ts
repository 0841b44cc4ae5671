/**
 * The iptables rules that do not depend on Services (the numbers in comments are those of
 * `../README.md`, "The rules, by number"). Most of them look into sets, so that a Service that comes or goes changes no rule.
 *
 * @module
 */
import type { IpFamily } from "../../../model/objects.ts";
import { jump, type JumpRule, type PerTable } from "../../../netfilter/iptables_jumps.ts";
import { formatMark, podMatch } from "../../planning.ts";
import type { BaseRule, BaseRules, IpvsOptions } from "./ruleset.ts";
import { FIREWALL_JUMP_COMMENT, setComment, type SetKind, setName } from "./sets.ts";

export const OUT_FILTER_CHAIN = "KUBE-IPVS-OUT-FILTER";
const SERVICES = "KUBE-SERVICES";
const POSTROUTING = "KUBE-POSTROUTING";
const NODE_PORT = "KUBE-NODE-PORT";
const LOAD_BALANCER = "KUBE-LOAD-BALANCER";
const MARK_MASQ = "KUBE-MARK-MASQ";
const FORWARD = "KUBE-FORWARD";
const PROXY_FIREWALL = "KUBE-PROXY-FIREWALL";
const SOURCE_RANGES = "KUBE-SOURCE-RANGES-FIREWALL";
const IPVS_FILTER = "KUBE-IPVS-FILTER";

/** All chains of ours, emission order. */
export const CHAINS: PerTable<readonly string[]> = {
  nat: [SERVICES, POSTROUTING, NODE_PORT, LOAD_BALANCER, MARK_MASQ],
  filter: [FORWARD, NODE_PORT, PROXY_FIREWALL, SOURCE_RANGES, IPVS_FILTER, OUT_FILTER_CHAIN],
};

/** All jumps from built-in chains, in the order of insertion at the top: the last one ends up first. */
export const JUMP_RULES: readonly JumpRule[] = [
  jump("nat", "OUTPUT", SERVICES, "kubernetes service portals"),
  jump("nat", "PREROUTING", SERVICES, "kubernetes service portals"),
  jump("nat", "POSTROUTING", POSTROUTING, "kubernetes postrouting rules"),
  jump("filter", "FORWARD", FORWARD, "kubernetes forwarding rules"),
  jump("filter", "INPUT", NODE_PORT, "kubernetes health check rules"),
  jump("filter", "INPUT", PROXY_FIREWALL, FIREWALL_JUMP_COMMENT),
  // After KUBE-FORWARD in this list, so before it in the kernel: that one accepts what carries the mark.
  jump("filter", "FORWARD", PROXY_FIREWALL, FIREWALL_JUMP_COMMENT),
  jump("filter", "INPUT", IPVS_FILTER, "kubernetes ipvs access filter"),
  jump("filter", "OUTPUT", OUT_FILTER_CHAIN, "kubernetes ipvs access filter"),
];

/** Chains and jumps of this mode in every state of the cluster. */
export const OWN_RULES = { chains: CHAINS, jumps: JUMP_RULES };

/** Makes rules of one family with the names of its sets. */
class RuleWriter {
  readonly #family: IpFamily;

  constructor(family: IpFamily) {
    this.#family = family;
  }

  matchSet(kind: SetKind, directions: string): string {
    return `-m set --match-set ${setName(kind, this.#family)} ${directions}`;
  }

  commented(kind: SetKind, directions: string): string {
    return `-m comment --comment "${setComment(kind)}" ${this.matchSet(kind, directions)}`;
  }

  /** A rule that is only there while its set has entries; `before` and `after` stand around the match. */
  whileFilled(chain: string, kind: SetKind, directions: string, after: string, before = ""): BaseRule {
    return {
      chain,
      rule: `${before}${this.commented(kind, directions)} ${after}`,
      needs: setName(kind, this.#family),
    };
  }

  /** As {@linkcode whileFilled}, without a comment. */
  accept(chain: string, kind: SetKind): BaseRule {
    return { chain, rule: `${this.matchSet(kind, "dst,dst")} -j ACCEPT`, needs: setName(kind, this.#family) };
  }
}

function always(chain: string, rule: string): BaseRule {
  return { chain, rule, needs: "" };
}

function nodePorts(rules: RuleWriter): BaseRule[] {
  return ([
    ["tcp", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-TCP", "dst"],
    ["udp", "KUBE-NODE-PORT-LOCAL-UDP", "KUBE-NODE-PORT-UDP", "dst"],
    ["sctp", "KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-NODE-PORT-SCTP-HASH", "dst,dst"],
  ] as const).flatMap(([protocol, local, all, directions]) => [
    rules.whileFilled(NODE_PORT, local, directions, "-j RETURN", `-p ${protocol} `),
    rules.whileFilled(NODE_PORT, all, directions, `-j ${MARK_MASQ}`, `-p ${protocol} `),
  ]);
}

function clusterIps(rules: RuleWriter, { masqueradeAll, detector }: IpvsOptions): BaseRule {
  const fragment = podMatch(detector);
  // Without a way to recognise pods only the node itself is known: a virtual address as source is its own.
  const directions = masqueradeAll || fragment !== null ? "dst,dst" : "src,dst";
  const pods = masqueradeAll || fragment === null ? "" : `! ${fragment} `;
  return rules.whileFilled(SERVICES, "KUBE-CLUSTER-IP", directions, `${pods}-j ${MARK_MASQ}`);
}

function externalIps(rules: RuleWriter): BaseRule[] {
  // Traffic from elsewhere, and traffic to an address of this node, is not subject to the rules after these.
  const accepts = (kind: SetKind): BaseRule[] =>
    ["-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL", "-m addrtype --dst-type LOCAL"]
      .map((match) => rules.whileFilled(SERVICES, kind, "dst,dst", `${match} -j ACCEPT`));
  return [
    rules.whileFilled(SERVICES, "KUBE-EXTERNAL-IP", "dst,dst", `-j ${MARK_MASQ}`), // 9
    ...accepts("KUBE-EXTERNAL-IP"),
    ...accepts("KUBE-EXTERNAL-IP-LOCAL"), // 10
  ];
}

function natRules(rules: RuleWriter, options: IpvsOptions): BaseRule[] {
  const { family, masqueradeMark } = options;
  const mark = formatMark(masqueradeMark);
  return [
    // A loopback source could not be answered from elsewhere: no node ports on localhost.
    always(SERVICES, `-s ${family === "IPv4" ? "127.0.0.0/8" : "::1/128"} -j RETURN`), // 1
    rules.whileFilled(POSTROUTING, "KUBE-LOOP-BACK", "dst,dst,src", "-j MASQUERADE"), // 2
    rules.whileFilled(SERVICES, "KUBE-LOAD-BALANCER", "dst,dst", `-j ${LOAD_BALANCER}`), // 3
    rules.whileFilled(LOAD_BALANCER, "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "-j RETURN"), // 4
    ...nodePorts(rules), // 5
    clusterIps(rules, options), // 8
    ...externalIps(rules),
    always(SERVICES, `-m addrtype --dst-type LOCAL -j ${NODE_PORT}`), // 11
    always(LOAD_BALANCER, `-j ${MARK_MASQ}`), // 12
    rules.accept(SERVICES, "KUBE-CLUSTER-IP"), // 15
    rules.accept(SERVICES, "KUBE-LOAD-BALANCER"),
    always(POSTROUTING, `-m mark ! --mark ${mark}/${mark} -j RETURN`), // 19
    // Clears the mark, so that a packet which enters the stack again is not masqueraded twice.
    always(POSTROUTING, `-j MARK --xor-mark ${mark}`),
    always(
      POSTROUTING,
      '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    ),
    always(MARK_MASQ, `-j MARK --or-mark ${mark}`),
  ];
}

const KNOWN = [
  "KUBE-LOAD-BALANCER",
  "KUBE-CLUSTER-IP",
  "KUBE-EXTERNAL-IP",
  "KUBE-EXTERNAL-IP-LOCAL",
] as const;

function filterRules(rules: RuleWriter, { masqueradeMark }: IpvsOptions): BaseRule[] {
  const mark = formatMark(masqueradeMark);
  return [
    rules.whileFilled(PROXY_FIREWALL, "KUBE-LOAD-BALANCER-FW", "dst,dst", `-j ${SOURCE_RANGES}`), // 6
    rules.whileFilled(SOURCE_RANGES, "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "-j RETURN"), // 7
    rules.whileFilled(SOURCE_RANGES, "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "-j RETURN"),
    always(SOURCE_RANGES, "-j DROP"), // 13
    always(OUT_FILTER_CHAIN, ""), // 14, of Services
    always(
      FORWARD,
      `-m comment --comment "kubernetes forwarding rules" -m mark --mark ${mark}/${mark} -j ACCEPT`,
    ), // 16
    always(
      FORWARD,
      `-m comment --comment "kubernetes forwarding conntrack rule"` +
        ` -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
    ),
    always(NODE_PORT, `${rules.commented("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`), // 17
    ...KNOWN.map((kind) => always(IPVS_FILTER, `${rules.matchSet(kind, "dst,dst")} -j RETURN`)), // 18
    always(IPVS_FILTER, `${rules.matchSet("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j RETURN`),
    // A virtual address is one of the node: without this rule, whatever listens on all addresses would answer on it.
    always(IPVS_FILTER, `-m conntrack --ctstate NEW ${rules.matchSet("KUBE-IPVS-IPS", "dst")} -j REJECT`),
  ];
}

/** Plans all iptables rules of one family that do not come from a Service. */
export function planBaseRules(options: IpvsOptions): BaseRules {
  const { family } = options;
  const writer = new RuleWriter(family);
  const rules = { nat: natRules(writer, options), filter: filterRules(writer, options) };
  return { family, chains: CHAINS, rules, jumps: JUMP_RULES };
}
