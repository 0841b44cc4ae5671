/**
 * Compares rules of iptables mode with a plan: chains of Services, the chains that they share, base chains and jumps.
 *
 * @module
 */
import { CANARY_CHAIN, DISPATCH_CHAINS, isServiceChain } from "../../backend/iptables/plan/chains.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { baseChains } from "../../backend/iptables/store/full_sync.ts";
import type { IpFamily } from "../../model/objects.ts";
import { chainOf, groupByChain, ruleOf } from "../../netfilter/iptables_chains.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import { printedRule } from "../../netfilter/printed_iptables_rule.ts";
import type { IptablesRuleset, SavedChain } from "../../netfilter/iptables_save.ts";
import type { DifferenceList } from "./difference.ts";
import { chainDifference, jumpDifference } from "./rule_lists.ts";
import { chainPlace, quickText, RuleTexts, serviceOfRule } from "./rule_texts.ts";
import { compareSharedChain } from "./shared_chain.ts";

const TABLES: readonly Table[] = ["nat", "filter"];

/** A plan, and its part of the comparison, which takes as long as that of what is found: to be made while the tools still read. */
export class WantedIptables {
  readonly plan: IptablesPlan;
  readonly texts = new RuleTexts();
  readonly #savedTexts = new Map<string, string>();

  constructor(plan: IptablesPlan, family: IpFamily) {
    this.plan = plan;
    for (const rules of plan.services.values()) {
      for (const line of rules?.rules ?? []) {
        const chain = chainOf(line);
        const text = `-A ${chain} ${printedRule(ruleOf(line, chain), family)}`;
        const before = this.#savedTexts.get(chain);
        this.#savedTexts.set(chain, before === undefined ? text : `${before}\n${text}`);
      }
      for (const { rule } of rules?.dispatch ?? []) this.texts.knowAlike(printedRule(rule, family), rule);
    }
  }

  /** True if what was listed of the chain of a Service is what would be printed of the wanted one. */
  isPrintedAs(found: SavedChain | undefined, chain: string): boolean {
    return found?.holdsText?.(this.#savedTexts.get(chain) ?? "") === true;
  }
}

/** What is looked at. */
export interface IptablesPair {
  readonly wanted: WantedIptables;
  /** The tables of the variant in use. */
  readonly live: IptablesRuleset;
  /** True: the kernel was read, so that a table that is not there is empty. False: nobody has saved it. */
  readonly isKernel: boolean;
}

/** Tells `list` of everything that differs. */
export function compareIptables(pair: IptablesPair, list: DifferenceList): void {
  const { wanted: { plan, texts }, live } = pair;
  compareBase(pair, list);
  const nat = live.get("nat");
  const stale = new Set([...nat?.keys() ?? []].filter(isServiceChain));
  for (const [service, rules] of plan.services) {
    if (rules === null) continue;
    let bodies: ReadonlyMap<string, readonly string[]> | null = null;
    for (const chain of rules.chains) {
      stale.delete(chain);
      const found = nat?.get(chain);
      if (pair.wanted.isPrintedAs(found, chain)) continue;
      bodies ??= groupByChain(rules.rules);
      const wanted = (bodies.get(chain) ?? []).map((line) => ruleOf(line, chain));
      const place = chainPlace("nat", chain);
      const texts = { textOf: pair.wanted.texts.of, quickOf: quickText };
      list.add(service, chainDifference({ place, wanted, found: found?.rules, ...texts }));
    }
  }
  for (const table of TABLES) {
    for (const chain of DISPATCH_CHAINS[table]) {
      compareSharedChain({ plan, table, chain, found: live.get(table)?.get(chain)?.rules }, texts, list);
    }
  }
  for (const chain of stale) {
    const rules = nat?.get(chain)?.rules ?? [];
    list.leftovers.push({
      kind: "leftover",
      place: chainPlace("nat", chain),
      cause: `a chain of ${goneName(rules)}, which nothing wants any more`,
      wanted: [],
      found: rules,
    });
  }
}

function goneName(rules: readonly string[]): string {
  for (const rule of rules) {
    const name = serviceOfRule(rule);
    if (name !== null) return `Service ${name}`;
  }
  return "some Service";
}

/** Jumps, canaries and the chains without rules of Services, beside whose rules others may write theirs. */
function compareBase({ wanted, live, isKernel }: IptablesPair, list: DifferenceList): void {
  const { plan, texts } = wanted;
  for (const table of TABLES) {
    const owned = new Set(plan.base.chains[table]);
    for (const [chain, wanted] of baseChains(plan, table)) {
      const found = live.get(table)?.get(chain)?.rules;
      const isOwn = owned.has(chain) || found === undefined && chain.startsWith("KUBE-");
      const pair = {
        place: chainPlace(table, chain),
        wanted,
        found: isOwn ? found : found ?? [],
        textOf: texts.of,
      };
      const shared = chainDifference({ ...pair, isShared: true });
      // Where rules of ours are missing, what stands there instead tells what became of them.
      const difference = shared === null || !isOwn ? shared : chainDifference(pair);
      // The kernel's own chains hold jumps in the order in which others have put theirs between.
      if (!isOwn && difference?.kind === "order") continue;
      list.add(null, difference === null || isOwn ? difference : jumpDifference(difference));
    }
  }
  for (const table of ["mangle", ...TABLES]) {
    const chains = live.get(table);
    if ((chains === undefined && !isKernel) || chains?.has(CANARY_CHAIN) === true) continue;
    // `kproxy render` prints no canary, and whoever loads that has none.
    if (!isKernel) continue;
    list.add(null, {
      kind: "missing",
      place: chainPlace(table, CANARY_CHAIN),
      cause: "the canary is gone: somebody flushed the table",
      wanted: [`:${CANARY_CHAIN}`],
      found: [],
    });
  }
}
