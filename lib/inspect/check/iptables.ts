/**
 * Compares rules of iptables mode with a plan: chains of Services, the chains that they share, base chains and jumps.
 *
 * @module
 */
import { DISPATCH_CHAINS } from "../../backend/iptables/diff/diff_dispatch.ts";
import { CANARY_CHAIN, sentinels } from "../../backend/iptables/diff/observe_canary.ts";
import { isServiceChain } from "../../backend/iptables/plan/chains.ts";
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { groupByChain, ruleOf } from "../../netfilter/iptables_chains.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import type { Difference, DifferenceList } from "./difference.ts";
import { chainDifference } from "./rule_lists.ts";
import { chainPlace, quickText, RuleTexts, serviceOfRule } from "./rule_texts.ts";
import { compareSharedChain } from "./shared_chain.ts";

const TABLES: readonly Table[] = ["nat", "filter"];

/** One chain of a Service, as it should be. */
interface WantedChain {
  readonly rules: readonly string[];
  readonly quick: readonly string[];
}

/** A plan, and all of its part of the comparison, which takes as long as that of what is found: to be made while the tools still read. */
export class WantedIptables {
  readonly plan: IptablesPlan;
  readonly texts = new RuleTexts();
  readonly #chains = new Map<string, WantedChain>();

  constructor(plan: IptablesPlan) {
    this.plan = plan;
    for (const rules of plan.services.values()) {
      for (const [chain, lines] of groupByChain(rules?.rules ?? [])) {
        const wanted = lines.map((line) => ruleOf(line, chain));
        this.#chains.set(chain, { rules: wanted, quick: wanted.map(quickText) });
      }
      for (const { rule } of rules?.dispatch ?? []) this.texts.of(rule);
    }
  }

  /** The rules of a chain of a Service. */
  chain(name: string): WantedChain {
    return this.#chains.get(name) ?? NOTHING;
  }
}

const NOTHING: WantedChain = { rules: [], quick: [] };

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
    for (const chain of rules.chains) {
      stale.delete(chain);
      const { rules: wanted, quick } = pair.wanted.chain(chain);
      const difference = chainDifference({
        place: chainPlace("nat", chain),
        wanted,
        wantedQuick: quick,
        found: nat?.get(chain)?.rules,
        textOf: texts.of,
        quickOf: quickText,
      });
      list.add(service, difference);
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
  for (const [table, chains] of sentinels(plan.base)) {
    const owned = new Set(plan.base.chains[table]);
    for (const [chain, wanted] of chains) {
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

function jumpDifference(difference: Difference): Difference {
  const { wanted } = difference;
  return {
    ...difference,
    cause: wanted.length === 1 ? "the jump is missing" : `${wanted.length} jumps are missing`,
    found: [],
  };
}
