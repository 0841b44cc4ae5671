/**
 * Rules whose ports are known, as mode iptables' store takes them, and targets of kernel rules: ports, be they ours, of a
 * previous process or of another one, and destinations of UDP packets that conntrack leads where rules led before.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import type { DispatchRule, IptablesPlan, ServiceRules } from "../../iptables/plan/ruleset.ts";
import { sharedRules } from "../../iptables/store/store.ts";
import { CHAINS, planBaseRules, PORTALS_FIREWALL } from "./chains.ts";
import type { PortalId, PortalRule, UserspacePlan } from "./plan.ts";

/** Name among the Services for firewall rules that none of them owns. */
export const GUARDS_OF_OTHERS = "";

/** The rules of portals that have ports; rules of other portals are left out. */
export function rulesOf(
  rules: readonly PortalRule[],
  portOf: (portal: PortalId) => number | undefined,
): readonly DispatchRule[] {
  return rules.flatMap(({ table, chain, portal, rule }) => {
    const port = portOf(portal);
    return port === undefined ? [] : [{ table, chain, rule: rule(port) }];
  });
}

/** The rules of a plan. */
export function planRules(
  plan: UserspacePlan,
  portOf: (portal: PortalId) => number | undefined,
  has: { readonly firewall: boolean },
): Omit<IptablesPlan, "all"> & { readonly services: Map<NamespacedName, ServiceRules | null> } {
  const services = new Map(
    [...plan].map(([name, service]) => [name, service && sharedRules(rulesOf(service.rules, portOf))]),
  );
  return { base: planBaseRules(has), services };
}

/** A protocol and a port that a rule leads to, or is about, e.g. `TCP 40001`. */
export type LedTo = string;

/** Target options before the port in a rule. */
const PORT_REGEXP = /(--to-ports |--to-destination \S*:)(\d+)$/;
/** Placeholder for a port that is not known. */
const NO_PORT = 1;

/** Rules that lead to a port, each with its chain and its canonical text without the port. */
function leadingRules(
  rules: readonly DispatchRule[],
): readonly { readonly key: string; readonly port: number; readonly led: LedTo }[] {
  return rules.flatMap(({ table, chain, rule }) => {
    const port = Number(PORT_REGEXP.exec(rule)?.[2] ?? 0);
    if (table !== "nat" || port === 0) return [];
    const text = readableRuleText(rule.replace(PORT_REGEXP, `$1${NO_PORT}`));
    return text === null ? [] : [{ key: `${chain} ${text}`, port, led: ledTo(rule, port) }];
  });
}

function ledTo(rule: string, port: number | string): LedTo {
  return `${/(?:^| )-p udp /.test(rule) ? "UDP" : "TCP"} ${port}`;
}

/** The rules of our chains of nat. */
export function redirectsIn(saved: IptablesRuleset): readonly DispatchRule[] {
  return CHAINS.nat.flatMap((chain) =>
    (saved.get("nat")?.get(chain)?.rules ?? []).map((rule) => ({ table: "nat" as const, chain, rule }))
  );
}

/**
 * Portal → the port that it had in a previous process, by the rules of nat in the kernel: a process that
 * listens there again serves at once, and the rules need not change. The first rule of each portal counts.
 */
export function adoptedPorts(
  rules: readonly PortalRule[],
  saved: IptablesRuleset,
): ReadonlyMap<PortalId, number> {
  const there = new Map(leadingRules(redirectsIn(saved)).map(({ key, port }) => [key, port]));
  const ports = new Map<PortalId, number>();
  for (const { table, chain, rule, portal } of there.size === 0 ? [] : rules) {
    if (table !== "nat" || ports.has(portal)) continue;
    const port = there.get(`${chain} ${readableRuleText(rule(NO_PORT))}`);
    if (port !== undefined) ports.set(portal, port);
  }
  return ports;
}

/** The ports that rules lead to. */
export function portsLedTo(saved: IptablesRuleset): ReadonlySet<LedTo> {
  return new Set(leadingRules(redirectsIn(saved)).map(({ led }) => led));
}

/**
 * Ports in rules of the kernel that differ from ours in the port only, as after another kproxy was started;
 * none: all lead where they should, or are gone.
 */
export function otherPorts(rules: readonly DispatchRule[], saved: IptablesRuleset): ReadonlySet<LedTo> {
  const ours = leadingRules(rules);
  const [keys, ports] = [new Set(ours.map(({ key }) => key)), new Set(ours.map(({ led }) => led))];
  const there = leadingRules(redirectsIn(saved)).filter(({ key, led }) => keys.has(key) && !ports.has(led));
  return new Set(there.map(({ led }) => led));
}

/** Rules of the firewall, each with the port that it is about. */
export type Guards = readonly (readonly [LedTo, DispatchRule])[];

/** The guards among rules. */
export function guardsIn(rules: readonly DispatchRule[]): Guards {
  return rules.flatMap((one): Guards => {
    const port = /--dport (\d+) -j REJECT(?: |$)/.exec(one.rule)?.[1];
    const isGuard = one.chain === PORTALS_FIREWALL && port !== undefined;
    return isGuard ? [[ledTo(one.rule, port), one]] : [];
  });
}

/** The guards in the kernel. */
export function savedGuards(saved: IptablesRuleset): Guards {
  const rules = saved.get("filter")?.get(PORTALS_FIREWALL)?.rules ?? [];
  return guardsIn(rules.map((rule) => ({ table: "filter", chain: PORTALS_FIREWALL, rule })));
}

/** A destination of UDP packets; `ip` is null for a node port, which any address may have. */
export interface UdpDestination {
  readonly ip: string | null;
  readonly port: number;
}

/**
 * The destinations of UDP packets for which the rules differ from those before, each once. A flow that goes on where
 * it went must stay tracked: its next answer would come from kproxy's own port, and its client would not know it.
 */
export function movedUdp(
  before: readonly DispatchRule[],
  now: readonly DispatchRule[],
): readonly UdpDestination[] {
  const [old, current] = [udpRules(before), udpRules(now)];
  const found = new Map<string, UdpDestination>();
  for (const [key, { rule }] of [...current, ...old]) {
    const port = / -p udp .*--dport (\d+) /.exec(` ${rule}`)?.[1];
    if (old.has(key) === current.has(key) || port === undefined) continue;
    const ip = / -d ([^\s/]+)(?:\/\d+)? /.exec(` ${rule}`)?.[1] ?? null;
    found.set(`${ip} ${port}`, { ip, port: Number(port) });
  }
  return [...found.values()];
}

/** UDP rules of nat, by their chain and canonical text. */
function udpRules(rules: readonly DispatchRule[]): ReadonlyMap<string, DispatchRule> {
  return new Map(rules.flatMap((one) => {
    const text = one.table === "nat" && one.rule.includes("udp") ? readableRuleText(one.rule) : null;
    return text === null ? [] : [[`${one.chain} ${text}`, one]];
  }));
}
