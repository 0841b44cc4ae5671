/**
 * What of the tables that iptables-save shows belongs to which mode, and therefore goes.
 *
 * @module
 */
import type { CleanupMode } from "../../config/types.ts";
import type { IptablesTable } from "../../kernel/iptables.ts";
import type { IptablesRuleset, SavedTable } from "../../netfilter/iptables_save.ts";
import { splitWords } from "../../netfilter/words.ts";
import type { ModeCleanup, OwnedChains } from "./cleanup.ts";
import {
  FORWARD_CHAIN,
  isServiceChain,
  KUBELET_FIREWALL_CHAIN,
  MARK_MASQ_CHAIN,
  POSTROUTING_CHAIN,
  PROXY_FIREWALL_CHAIN,
  serviceChainsInCallOrder,
  SERVICES_CHAIN,
} from "../iptables/plan/chains.ts";
import type { NativeRemoval } from "./iptables_leftovers_native.ts";

/** Everything of one table that goes, and what stays for the sake of others. */
export interface TableCleanup {
  readonly table: IptablesTable;
  /** `-D` lines for the jumps from built-in chains. */
  readonly jumps: readonly string[];
  /** Callers before those they call. */
  readonly chains: readonly string[];
  /** Chain that stays → foreign chain that leads to it. */
  readonly kept: ReadonlyMap<string, string>;
  /** How all that goes where only nft can read it. */
  readonly native?: NativeRemoval;
}

export const TABLES: readonly IptablesTable[] = ["nat", "filter", "mangle"];

/**
 * Chains that iptables mode and IPVS mode both fill; they are of the mode that filled them last. KUBE-MARK-MASQ is one
 * more, which comes after the chains of Services.
 */
const SHARED_CHAINS: OwnedChains = {
  nat: [SERVICES_CHAIN, POSTROUTING_CHAIN],
  filter: [FORWARD_CHAIN, PROXY_FIREWALL_CHAIN],
  mangle: [],
};
/** Where KUBE-SERVICES of nat always leads to in IPVS mode, and never in iptables mode. */
const IPVS_NODE_PORT_CHAIN = "KUBE-NODE-PORT";

/** Chains by which kubelet marks the tables it writes to. */
const KUBELET_CHAINS = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"];

/** What the text of iptables-save holds of these modes, table by table. */
export function planCleanup(saved: IptablesRuleset, modes: readonly ModeCleanup[]): TableCleanup[] {
  const isWanted = (wanted: CleanupMode): boolean => modes.some(({ mode }) => mode === wanted);
  const withIptables = isWanted("iptables");
  const withShared = isWanted(sharedChainsMode(saved));
  const firewall = withIptables && isFirewallOurs(saved) ? [KUBELET_FIREWALL_CHAIN] : [];
  return TABLES.flatMap((table) => {
    const chains = saved.get(table);
    if (chains === undefined) return [];
    const statics = [
      ...(withShared ? SHARED_CHAINS[table] : []),
      ...modes.flatMap((mode) => mode.chains?.[table] ?? []),
      ...(table === "filter" ? firewall : []),
    ];
    const ofServices = withIptables && table === "nat" ? [...chains.keys()].filter(isServiceChain) : [];
    const marks = withShared && table === "nat" ? [MARK_MASQ_CHAIN] : [];
    const wanted = [...statics, ...serviceChainsInCallOrder(ofServices), ...marks];
    return [planTable(table, chains, wanted, modes.flatMap(({ jumpComments = [] }) => jumpComments))];
  });
}

/** Which mode filled the chains that two of them use. */
function sharedChainsMode(saved: IptablesRuleset): CleanupMode {
  const rules = saved.get("nat")?.get(SERVICES_CHAIN)?.rules ?? [];
  return rules.some((rule) => targetOf(rule) === IPVS_NODE_PORT_CHAIN) ? "ipvs" : "iptables";
}

/**
 * KUBE-FIREWALL is kubelet's, but a proxy makes it where it is missing. On a node without kubelet's own chains, holding
 * nothing but what a proxy writes, it can only be left over.
 */
function isFirewallOurs(saved: IptablesRuleset): boolean {
  const isKubeletThere = TABLES.some((table) => KUBELET_CHAINS.some((chain) => saved.get(table)?.has(chain)));
  const rules = saved.get("filter")?.get(KUBELET_FIREWALL_CHAIN)?.rules;
  return !isKubeletThere && rules !== undefined &&
    rules.every((rule) => rule.includes('"block incoming localnet connections"'));
}

/** @param comments of jumps that go although the chain stays */
function planTable(
  table: IptablesTable,
  saved: SavedTable,
  wanted: readonly string[],
  comments: readonly string[],
): TableCleanup {
  const chains = wanted.filter((chain) => saved.has(chain));
  const own = new Set(chains);
  const jumps: string[] = [];
  const kept = new Map<string, string>();
  for (const [name, { policy, rules }] of saved) {
    if (own.has(name)) continue;
    for (const rule of rules) {
      const target = targetOf(rule);
      if (target === null) continue;
      const isOwn = own.has(target);
      if (policy !== "-") {
        // Only a service proxy leads from the kernel's own chains into these, whatever its release wrote as comment.
        const isStale = SHARED_CHAINS[table].includes(target) &&
          comments.some((comment) => rule.includes(`--comment "${comment}"`));
        if (isOwn || isStale) jumps.push(`-D ${name} ${rule}`);
      } else if (isOwn) kept.set(target, name);
    }
  }
  return { table, jumps, chains, kept };
}

/** The chain or extension a saved rule leads to. */
function targetOf(rule: string): string | null {
  // Nearly all rules of others lead elsewhere, and splitting words is the costly part.
  if (!rule.includes("KUBE-")) return null;
  const words = splitWords(rule);
  const at = words.findLastIndex((word) => word === "-j" || word === "-g");
  return at < 0 ? null : words[at + 1] ?? null;
}
