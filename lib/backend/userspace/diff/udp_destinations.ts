/**
 * The destinations of UDP packets that rules are about: connection tracking leads flows there where rules led before.
 *
 * @module
 */
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { CHAINS } from "../plan/chains.ts";
import type { PortalRule } from "../plan/ruleset.ts";

/** A destination of UDP packets; `ip` is null for a node port, which any address may have. */
export interface UdpDestination {
  readonly ip: string | null;
  readonly port: number;
}

/** The destinations of UDP packets that these rules are about, each once. */
export function udpDestinations(rules: readonly PortalRule[]): readonly UdpDestination[] {
  const found = new Map<string, UdpDestination>();
  for (const { table, rule } of rules) {
    const port = / -p udp .*--dport (\d+) /.exec(` ${rule}`)?.[1];
    if (table !== "nat" || port === undefined) continue;
    const ip = / -d ([^\s/]+)(?:\/\d+)? /.exec(` ${rule}`)?.[1] ?? null;
    found.set(`${ip} ${port}`, { ip, port: Number(port) });
  }
  return [...found.values()];
}

/**
 * The destinations that these rules lead elsewhere than those that were there. A flow that goes on where it went must stay tracked: its
 * next answer would come from kproxy's own port, and its client would not know it.
 */
export function movedUdp(saved: IptablesRuleset, rules: readonly PortalRule[]): readonly UdpDestination[] {
  const before = new Map<string, PortalRule>();
  for (const chain of CHAINS.nat) {
    for (const line of saved.get("nat")?.get(chain)?.rules ?? []) {
      const rule = line.includes("udp") ? readableRuleText(line) : null;
      if (rule !== null) before.set(`${chain} ${rule}`, { table: "nat", chain, rule });
    }
  }
  const now = new Map(
    rules.filter(({ table, rule }) => table === "nat" && rule.includes("udp"))
      .map((rule) => [`${rule.chain} ${readableRuleText(rule.rule) ?? rule.rule}`, rule]),
  );
  const differing = [...before, ...now].filter(([key]) => before.has(key) !== now.has(key));
  return udpDestinations(differing.map(([, rule]) => rule));
}
