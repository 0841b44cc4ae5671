/**
 * The rules that keep direct packets from portals of others: those of a kproxy that this one takes over from, and of a former life. They
 * stay for as long as somebody listens there.
 *
 * @module
 */
import type { Iptables } from "../../../kernel/iptables.ts";
import { isPortTaken } from "../../../kernel/port_probe.ts";
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import { chainHolds, jumpRules } from "../../../netfilter/iptables_chains.ts";
import { type JumpRule, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { type GuardedPort, othersGuarded } from "../diff/other_ports.ts";
import { PORTALS_FIREWALL } from "../plan/chains.ts";
import type { PortalRule } from "../plan/ruleset.ts";

/** Of one family. */
export class OthersFirewall {
  readonly #iptables: Iptables;

  constructor(iptables: Iptables) {
    this.#iptables = iptables;
  }

  /** The rules that stay. @param rules ours */
  async kept(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<readonly string[]> {
    // Of a port that cannot be asked for, the rule stays.
    return (await this.#asked(rules, saved)).filter(([, taken]) => taken !== false).map(([{ rule }]) => rule);
  }

  /** Takes the others away. @param rules ours */
  async forget(rules: readonly PortalRule[], saved: IptablesRuleset): Promise<void> {
    const free = (await this.#asked(rules, saved)).filter(([, taken]) => taken === false);
    if (free.length === 0) return;
    const lines = free.map(([{ rule }]) => `-D ${PORTALS_FIREWALL} ${rule}`);
    await this.#iptables.restore(tableBlock("filter", lines));
  }

  #asked(
    rules: readonly PortalRule[],
    saved: IptablesRuleset,
  ): Promise<readonly (readonly [GuardedPort, boolean | null])[]> {
    const { family } = this.#iptables;
    return Promise.all(
      othersGuarded(rules, saved).map(async (guarded) => {
        const { protocol, port } = guarded;
        return [guarded, await isPortTaken(family, protocol === "TCP" ? "tcp" : "udp", port)] as const;
      }),
    );
  }
}

/** The canonical rules of the firewall that are in force. */
export function rulesInForce(saved: IptablesRuleset, jumps: readonly JumpRule[]): ReadonlySet<string> {
  const filter = saved.get("filter");
  const isReached = [...jumpRules(jumps, "filter")].every(([chain, rules]) =>
    chainHolds(filter?.get(chain)?.rules ?? [], { rules, comparison: "among" })
  );
  const rules = isReached ? filter?.get(PORTALS_FIREWALL)?.rules ?? [] : [];
  return new Set(rules.map((rule) => readableRuleText(rule) ?? ""));
}
