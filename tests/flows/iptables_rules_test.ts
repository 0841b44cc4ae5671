/** What must hold for the rules of every flow case, whatever their packets do. */
import { assertEquals } from "@std/assert";
import { canonicalRuleText } from "../../lib/netfilter/canonical_iptables_rule.ts";
import { parseIptablesRule, renderIptablesRule } from "../../lib/netfilter/iptables_rule.ts";
import { type IptablesRuleset, parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { iptablesRules } from "../../lib/sim/iptables_match.ts";
import { FLOW_CASES } from "./flow_cases.ts";
import { optionsOf } from "./flow_case.ts";
import { rulesText } from "./iptables_backend.ts";
import { renderIptablesSave } from "../support/saved_texts.ts";

const FAMILIES = ["IPv4", "IPv6"] as const;
const RULESETS: readonly { readonly name: string; readonly ruleset: IptablesRuleset }[] = FLOW_CASES.flatMap((
  one,
) =>
  FAMILIES.map((family) => ({
    name: `${one.name}, ${family}`,
    ruleset: parseIptablesSave(rulesText(family, one.objects, optionsOf(one)).restore),
  }))
);

/** By table and chain: policy and rules. */
function rulesOf(ruleset: IptablesRuleset) {
  return new Map([...ruleset].map(([table, chains]) => [
    table,
    new Map([...chains].map(([name, { policy, rules }]) => [name, { policy, rules }])),
  ]));
}

function targetsOf(ruleset: IptablesRuleset, table: string): Set<string> {
  const targets = new Set<string>();
  for (const { rules } of ruleset.get(table)?.values() ?? []) {
    for (const rule of rules) {
      const name = parseIptablesRule(rule).target?.name ?? "";
      if (name.startsWith("KUBE-")) targets.add(name);
    }
  }
  return targets;
}

Deno.test("every jump leads to a chain that is written", { permissions: "none" }, () => {
  for (const { name, ruleset } of RULESETS) {
    for (const [table, chains] of ruleset) {
      assertEquals(
        [...targetsOf(ruleset, table)].filter((target) => !chains.has(target)),
        [],
        `${name}, ${table}`,
      );
    }
  }
});

Deno.test("every chain of a Service is jumped to and holds rules", { permissions: "none" }, () => {
  for (const { name, ruleset } of RULESETS) {
    const targets = targetsOf(ruleset, "nat");
    for (const [chain, { rules }] of ruleset.get("nat") ?? []) {
      if (!/^KUBE-(SVC|SVL|EXT|FW|SEP)-/.test(chain)) continue;
      assertEquals([targets.has(chain), rules.length > 0], [true, true], `${name}: ${chain}`);
    }
  }
});

Deno.test("no rule is written twice into a chain", { permissions: "none" }, () => {
  for (const { name, ruleset } of RULESETS) {
    for (const [table, chains] of ruleset) {
      for (const [chain, { rules }] of chains) {
        assertEquals(new Set(rules).size, rules.length, `${name}: ${table} ${chain}`);
      }
    }
  }
});

Deno.test("with more than 1000 endpoints the rules of which there are many carry no comments", {
  permissions: "none",
}, () => {
  const large = (name: string) => name.startsWith("more than 1000 endpoints");
  for (const { name, ruleset } of RULESETS) {
    for (const [chain, { rules }] of ruleset.get("nat") ?? []) {
      if (!/^KUBE-(SVC|SVL|SEP)-/.test(chain)) continue;
      for (const rule of rules) {
        const commented = rule.includes("--comment");
        const aboutClusterIp = rule.includes(' cluster IP"');
        assertEquals(
          commented,
          aboutClusterIp || !large(name) || name.endsWith("IPv6"),
          `${name}: ${chain} ${rule}`,
        );
      }
    }
  }
});

Deno.test("rendering what was parsed gives the same rules, as text and in their canonical form", {
  permissions: "none",
}, () => {
  for (const { ruleset } of RULESETS) {
    assertEquals(rulesOf(parseIptablesSave(renderIptablesSave(ruleset))), rulesOf(ruleset));
    for (const chains of ruleset.values()) {
      for (const { rules } of chains.values()) {
        for (const rule of rules) {
          assertEquals(renderIptablesRule(parseIptablesRule(rule)), rule);
          assertEquals(canonicalRuleText(canonicalRuleText(rule)), canonicalRuleText(rule));
        }
      }
    }
  }
});

Deno.test("the simulator knows every word of every rule", { permissions: "none" }, () => {
  for (const { name, ruleset } of RULESETS) {
    for (const chains of ruleset.values()) {
      for (const { rules } of chains.values()) {
        for (const rule of rules) {
          const [read] = iptablesRules([rule]);
          const unknown = read?.statements.filter(({ kind }) => kind === "unknown" || kind === "unread");
          assertEquals(unknown, [], `${name}: ${rule}`);
        }
      }
    }
  }
});
