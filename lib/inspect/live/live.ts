/**
 * What a kernel holds of one family, as it was read from the tools or from saved text: which service proxies' rules are in force, known by
 * what is there, and what could not be read.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import { leadToServiceChains } from "../../netfilter/iptables_jumps.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import type { RulesMode } from "../desired/desired.ts";

export interface LiveProblem {
  /** A program (`nft list ruleset`) or a file, then the place in its text, e.g. `rules.txt: table nat`. */
  readonly place: string;
  readonly message: string;
}

/** Each once: what concerns both families is among the problems of each. */
export function uniqueProblems(problems: readonly LiveProblem[]): readonly LiveProblem[] {
  return [...new Map(problems.map((one) => [`${one.place}: ${one.message}`, one])).values()];
}

export interface FoundProxy {
  readonly mode: RulesMode;
  /** `kube-proxy`: the names that it uses, too; kproxy's own nftables table has a name of its own. */
  readonly layout: "kproxy" | "kube-proxy";
  /** What shows it, e.g. `table ip kproxy`. */
  readonly sign: string;
  /** False: nothing leads a packet to its rules. */
  readonly isHooked: boolean;
}

export interface LiveRules extends RulesetSnapshot {
  /** Where it was read, e.g. `the kernel`, `files a.txt, b.txt`. */
  readonly from: string;
  /** In the order in which packets meet them; none: no service proxy's rules are there. */
  readonly proxies: readonly FoundProxy[];
  readonly problems: readonly LiveProblem[];
}

export type LiveNode = ReadonlyMap<IpFamily, LiveRules>;

/** The mode in force in any family; null: none. */
export function modeInForce(live: LiveNode): RulesMode | null {
  for (const { proxies } of live.values()) {
    const proxy = proxies.find(({ isHooked }) => isHooked) ?? proxies[0];
    if (proxy !== undefined) return proxy.mode;
  }
  return null;
}

const SERVICES_CHAIN = "KUBE-SERVICES";
/** Only IPVS mode has it, whatever the node serves. */
const IPVS_CHAIN = "KUBE-NODE-PORT";
const IPVS_SET = /--match-set KUBE-/;
/** Of userspace mode, with the chains that lead there. */
const PORTAL_CHAINS: readonly string[] = ["KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST"];
const NFT_TABLE = /^\w+ (kproxy|kube-proxy)$/;

/** Whose service proxy's a table of nft is, e.g. `ip kproxy`; null: it is none's. */
export function proxyOfTable(name: string): FoundProxy["layout"] | null {
  return NFT_TABLE.exec(name)?.[1] as FoundProxy["layout"] | undefined ?? null;
}

/** Those of kproxy and kube-proxy, which share the layouts of iptables and IPVS mode. */
export function foundProxies({ iptables, nftables }: RulesetSnapshot): readonly FoundProxy[] {
  const found: FoundProxy[] = [];
  for (const { tables, variant } of iptables) {
    const nat = tables.get("nat");
    const leadsTo = (target: string): boolean =>
      ["PREROUTING", "OUTPUT"].some((chain) =>
        nat?.get(chain)?.rules.some((rule) => rule.includes(`-j ${target}`)) === true
      );
    const where = variant === "" ? "" : ` (iptables ${variant})`;
    const isPortalsHooked = PORTAL_CHAINS.some(leadsTo);
    if (isPortalsHooked || PORTAL_CHAINS.some((chain) => nat?.has(chain))) {
      found.push({
        mode: "userspace",
        layout: "kube-proxy",
        sign: `chain ${PORTAL_CHAINS[0]} of table nat${where}`,
        isHooked: isPortalsHooked,
      });
    }
    const services = nat?.get(SERVICES_CHAIN);
    if (services === undefined) continue;
    const isHooked = leadsTo(SERVICES_CHAIN);
    const isIpvs = !leadToServiceChains(services.rules) &&
      (nat?.has(IPVS_CHAIN) === true || services.rules.some((rule) => IPVS_SET.test(rule)));
    found.push({
      mode: isIpvs ? "ipvs" : "iptables",
      layout: "kube-proxy",
      sign: `chain ${SERVICES_CHAIN} of table nat${where}`,
      isHooked,
    });
  }
  for (const { name, chains } of nftables) {
    const layout = proxyOfTable(name);
    if (layout === null) continue;
    const isHooked = chains.values().some(({ hook }) =>
      hook?.startsWith("type nat hook prerouting ") === true
    );
    found.push({ mode: "nftables", layout, sign: `table ${name}`, isHooked });
  }
  return found;
}
