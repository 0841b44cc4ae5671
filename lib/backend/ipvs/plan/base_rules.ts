/**
 * The iptables rules that are there whatever the Services are (the numbers in comments are those of
 * `../README.md`, "The rules, by number"). Most of them look into sets, so that a Service that comes or goes changes no rule.
 *
 * @module
 */
import type { LocalDetector } from "../../../model/node.ts";
import { jump, type JumpRule, type PerTable, type Table } from "../../../netfilter/iptables_jumps.ts";
import { formatMark } from "../../../netfilter/mark.ts";
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

/** Matches what does not come from a pod of this node or cluster; null if nothing can tell. */
function notLocal(detector: LocalDetector): string | null {
  switch (detector.kind) {
    case "none":
      return null;
    case "cidr":
      return `! -s ${detector.cidr}`;
    case "interface":
      return `! -i ${detector.name}`;
    case "interfacePrefix":
      return `! -i ${detector.prefix}+`;
  }
}

/** Makes the rules of one family, the names of its sets put in. */
class RuleWriter {
  readonly #options: IpvsOptions;

  constructor(options: IpvsOptions) {
    this.#options = options;
  }

  matchSet(kind: SetKind, directions: string): string {
    return `-m set --match-set ${setName(kind, this.#options.family)} ${directions}`;
  }

  commented(kind: SetKind, directions: string): string {
    return `-m comment --comment "${setComment(kind)}" ${this.matchSet(kind, directions)}`;
  }

  /** A rule that is only there while its set has entries; `before` and `after` stand around the match. */
  whileFilled(
    place: readonly [Table, string],
    kind: SetKind,
    directions: string,
    after: string,
    before = "",
  ): BaseRule {
    const [table, chain] = place;
    const rule = `${before}${this.commented(kind, directions)} ${after}`;
    return { table, chain, rule, needs: setName(kind, this.#options.family) };
  }

  nodePorts(): BaseRule[] {
    const place = ["nat", NODE_PORT] as const;
    return ([
      ["tcp", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-TCP", "dst"],
      ["udp", "KUBE-NODE-PORT-LOCAL-UDP", "KUBE-NODE-PORT-UDP", "dst"],
      ["sctp", "KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-NODE-PORT-SCTP-HASH", "dst,dst"],
    ] as const).flatMap(([protocol, local, all, directions]) => [
      this.whileFilled(place, local, directions, "-j RETURN", `-p ${protocol} `),
      this.whileFilled(place, all, directions, `-j ${MARK_MASQ}`, `-p ${protocol} `),
    ]);
  }

  clusterIps(): BaseRule {
    const { masqueradeAll, detector } = this.#options;
    const fragment = notLocal(detector);
    // Without a way to tell pods only the node itself is known: a virtual address as source is its own.
    const directions = masqueradeAll || fragment !== null ? "dst,dst" : "src,dst";
    const pods = masqueradeAll || fragment === null ? "" : `${fragment} `;
    return this.whileFilled(["nat", SERVICES], "KUBE-CLUSTER-IP", directions, `${pods}-j ${MARK_MASQ}`);
  }

  externalIps(): BaseRule[] {
    const place = ["nat", SERVICES] as const;
    // Traffic from elsewhere, and traffic to an address of this node, has nothing to seek in the chains after these.
    const accepts = (kind: SetKind): BaseRule[] =>
      ["-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL", "-m addrtype --dst-type LOCAL"]
        .map((match) => this.whileFilled(place, kind, "dst,dst", `${match} -j ACCEPT`));
    return [
      this.whileFilled(place, "KUBE-EXTERNAL-IP", "dst,dst", `-j ${MARK_MASQ}`), // 9
      ...accepts("KUBE-EXTERNAL-IP"),
      ...accepts("KUBE-EXTERNAL-IP-LOCAL"), // 10
    ];
  }

  nat(): BaseRule[] {
    const { family, masqueradeMark, randomFully } = this.#options;
    const services = ["nat", SERVICES] as const;
    const mark = formatMark(masqueradeMark);
    const always = (chain: string, rule: string): BaseRule => ({ table: "nat", chain, rule, needs: "" });
    const accept = (kind: SetKind): BaseRule => ({
      ...always(SERVICES, `${this.matchSet(kind, "dst,dst")} -j ACCEPT`),
      needs: setName(kind, family),
    });
    return [
      // A loopback source could not be answered from elsewhere: no node ports on localhost.
      always(SERVICES, `-s ${family === "IPv4" ? "127.0.0.0/8" : "::1/128"} -j RETURN`), // 1
      this.whileFilled(["nat", POSTROUTING], "KUBE-LOOP-BACK", "dst,dst,src", "-j MASQUERADE"), // 2
      this.whileFilled(services, "KUBE-LOAD-BALANCER", "dst,dst", `-j ${LOAD_BALANCER}`), // 3
      this.whileFilled(["nat", LOAD_BALANCER], "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "-j RETURN"), // 4
      ...this.nodePorts(), // 5
      this.clusterIps(), // 8
      ...this.externalIps(),
      always(SERVICES, `-m addrtype --dst-type LOCAL -j ${NODE_PORT}`), // 11
      always(LOAD_BALANCER, `-j ${MARK_MASQ}`), // 12
      accept("KUBE-CLUSTER-IP"), // 15
      accept("KUBE-LOAD-BALANCER"),
      always(POSTROUTING, `-m mark ! --mark ${mark}/${mark} -j RETURN`), // 19
      // Clears the mark, so that a packet which enters the stack again is not masqueraded twice.
      always(POSTROUTING, `-j MARK --xor-mark ${mark}`),
      always(
        POSTROUTING,
        `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE` +
          (randomFully ? " --random-fully" : ""),
      ),
      always(MARK_MASQ, `-j MARK --or-mark ${mark}`),
    ];
  }

  /** Rules 6, 7 and 13: those of a load balancer's source ranges. */
  filterHead(): BaseRule[] {
    const ranges = ["filter", SOURCE_RANGES] as const;
    return [
      this.whileFilled(
        ["filter", PROXY_FIREWALL],
        "KUBE-LOAD-BALANCER-FW",
        "dst,dst",
        `-j ${SOURCE_RANGES}`,
      ), // 6
      this.whileFilled(ranges, "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "-j RETURN"), // 7
      this.whileFilled(ranges, "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "-j RETURN"),
      { table: "filter", chain: SOURCE_RANGES, rule: "-j DROP", needs: "" }, // 13
    ];
  }

  filterTail(): BaseRule[] {
    const mark = formatMark(this.#options.masqueradeMark);
    const rule = (chain: string, text: string): BaseRule => ({
      table: "filter",
      chain,
      rule: text,
      needs: "",
    });
    const known = [
      "KUBE-LOAD-BALANCER",
      "KUBE-CLUSTER-IP",
      "KUBE-EXTERNAL-IP",
      "KUBE-EXTERNAL-IP-LOCAL",
    ] as const;
    return [
      rule(
        FORWARD,
        `-m comment --comment "kubernetes forwarding rules" -m mark --mark ${mark}/${mark} -j ACCEPT`,
      ), // 16
      rule(
        FORWARD,
        `-m comment --comment "kubernetes forwarding conntrack rule"` +
          ` -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
      ),
      rule(NODE_PORT, `${this.commented("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`), // 17
      ...known.map((kind) => rule(IPVS_FILTER, `${this.matchSet(kind, "dst,dst")} -j RETURN`)), // 18
      rule(IPVS_FILTER, `${this.matchSet("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j RETURN`),
      // A virtual address is one of the node: without this rule, whatever listens on all addresses would answer on it.
      rule(IPVS_FILTER, `-m conntrack --ctstate NEW ${this.matchSet("KUBE-IPVS-IPS", "dst")} -j REJECT`),
    ];
  }
}

/** Everything of one family in iptables that does not come from a Service. */
export function planBaseRules(options: IpvsOptions): BaseRules {
  const writer = new RuleWriter(options);
  return {
    family: options.family,
    chains: CHAINS,
    head: { nat: writer.nat(), filter: writer.filterHead() },
    tail: { nat: [], filter: writer.filterTail() },
    jumps: JUMP_RULES,
  };
}
