/**
 * Rules about ports that are not ours: those that lead packets of our Services there, as a kproxy does that was started meanwhile, and
 * those that keep direct packets from ports of another process or of a former life.
 *
 * @module
 */
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { CHAINS, PORTALS_FIREWALL } from "../plan/chains.ts";
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

/** A rule of the firewall, and the port that it is about. */
export interface GuardedPort extends LedTo {
  /** Without the leading `-A CHAIN `. */
  readonly rule: string;
}

/** The rules of the firewall about ports that none of ours is about. */
export function othersGuarded(rules: readonly PortalRule[], saved: IptablesRuleset): readonly GuardedPort[] {
  const own = new Set(
    rules.filter(({ chain }) => chain === PORTALS_FIREWALL).map(({ rule }) => placeOf(guardedBy(rule))),
  );
  return (saved.get("filter")?.get(PORTALS_FIREWALL)?.rules ?? []).flatMap((rule) => {
    const guarded = guardedBy(rule);
    return guarded === null || own.has(placeOf(guarded)) ? [] : [{ ...guarded, rule }];
  });
}

function placeOf(led: LedTo | null): string {
  return `${led?.protocol} ${led?.port}`;
}

function guardedBy(rule: string): LedTo | null {
  const found = /(?:^| )-p (tcp|udp) .*--dport (\d+) -j REJECT(?: |$)/.exec(rule);
  return found === null ? null : { protocol: found[1] === "udp" ? "UDP" : "TCP", port: Number(found[2]) };
}

/** The ports that rules lead to, each once. */
export function portsLedTo(saved: IptablesRuleset): readonly LedTo[] {
  const found = new Map<string, LedTo>();
  for (const chain of CHAINS.nat) {
    for (const line of saved.get("nat")?.get(chain)?.rules ?? []) {
      const led = ledBy(chain, line);
      if (led !== null) found.set(placeOf(led), { protocol: led.protocol, port: led.port });
    }
  }
  return [...found.values()];
}

/** A rule without its port, and that port. */
function ledBy(chain: string, rule: string): (LedTo & { readonly key: string }) | null {
  const port = Number(PORT_REGEXP.exec(rule)?.[2] ?? 0);
  const text = port === 0 ? null : readableRuleText(rule.replace(PORT_REGEXP, `$1${NO_PORT}`));
  const protocol = /(?:^| )-p udp /.test(rule) ? "UDP" : "TCP";
  return text === null ? null : { key: `${chain} ${text}`, protocol, port };
}
