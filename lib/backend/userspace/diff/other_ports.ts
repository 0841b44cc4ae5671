/**
 * Whether packets that should come to our portals are led to ports of somebody else, as those of a kproxy that was started meanwhile.
 *
 * @module
 */
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { CHAINS } from "../plan/chains.ts";
import type { PortalProtocol, PortalRule } from "../plan/ruleset.ts";
import { NO_PORT, PORT_REGEXP } from "./adopted_ports.ts";

/** A port that a rule leads to. */
export interface LedTo {
  readonly protocol: PortalProtocol;
  readonly port: number;
}

/** The ports that rules of ours lead to which are there with another one, each once; none: all lead where they should, or are gone. */
export function otherPorts(rules: readonly PortalRule[], saved: IptablesRuleset): readonly LedTo[] {
  const ours = new Map<string, Set<number>>();
  for (const { table, chain, rule } of rules) {
    const led = table === "nat" ? ledBy(chain, rule) : null;
    if (led === null) continue;
    const ports = ours.get(led.key) ?? new Set();
    ours.set(led.key, ports.add(led.port));
  }
  const own = new Set(ours.values().flatMap((ports) => ports));
  const others = new Map<string, LedTo>();
  for (const chain of CHAINS.nat) {
    for (const line of saved.get("nat")?.get(chain)?.rules ?? []) {
      const led = ledBy(chain, line);
      if (led === null || !ours.has(led.key) || own.has(led.port)) continue;
      others.set(`${led.protocol} ${led.port}`, { protocol: led.protocol, port: led.port });
    }
  }
  return [...others.values()];
}

/** A rule without its port, and that port. */
function ledBy(chain: string, rule: string): (LedTo & { readonly key: string }) | null {
  const port = Number(PORT_REGEXP.exec(rule)?.[2] ?? 0);
  const text = port === 0 ? null : readableRuleText(rule.replace(PORT_REGEXP, `$1${NO_PORT}`));
  const protocol = /(?:^| )-p udp /.test(rule) ? "UDP" : "TCP";
  return text === null ? null : { key: `${chain} ${text}`, protocol, port };
}
