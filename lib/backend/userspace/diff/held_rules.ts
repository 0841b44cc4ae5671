/**
 * What rules that are there lead to: ports, be they ours, those of a former run or of another process, and the destinations of UDP packets
 * that connection tracking leads where rules led before.
 *
 * @module
 */
import { readableRuleText } from "../../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../../netfilter/iptables_save.ts";
import { CHAINS, PORTALS_FIREWALL } from "../plan/chains.ts";
import type { Doorway, PortalId, PortalProtocol, PortalRule } from "../plan/ruleset.ts";

/** What stands before the port where a rule leads to one. */
const PORT_REGEXP = /(--to-ports |--to-destination \S*:)(\d+)$/;
/** Stands for a port that is not known. */
const NO_PORT = "1";

/** A port that a rule leads to. */
export interface LedTo {
  readonly protocol: PortalProtocol;
  readonly port: number;
}

/** A rule that leads to a port. */
interface LeadingRule extends LedTo {
  /** The rule without its port, canonical, and its chain. */
  readonly key: string;
}

function leadingRule(chain: string, rule: string): LeadingRule | null {
  const port = Number(PORT_REGEXP.exec(rule)?.[2] ?? 0);
  const text = port === 0 ? null : readableRuleText(rule.replace(PORT_REGEXP, `$1${NO_PORT}`));
  const protocol = /(?:^| )-p udp /.test(rule) ? "UDP" : "TCP";
  return text === null ? null : { key: `${chain} ${text}`, protocol, port };
}

/** The rules of our chains of nat, with those chains. */
function natRules(saved: IptablesRuleset): readonly (readonly [chain: string, rule: string])[] {
  return CHAINS.nat.flatMap((chain) =>
    (saved.get("nat")?.get(chain)?.rules ?? []).map((rule) => [chain, rule] as const)
  );
}

function leadingRules(saved: IptablesRuleset): readonly LeadingRule[] {
  return natRules(saved).map(([chain, rule]) => leadingRule(chain, rule)).filter((led) => led !== null);
}

/**
 * Portal → the port that it had in a former run, as the rules of nat that are there say: who listens there again serves at once, and the
 * rules need not change. The first rule of each portal counts.
 */
export function adoptedPorts(
  doorways: readonly Doorway[],
  saved: IptablesRuleset,
): ReadonlyMap<PortalId, number> {
  const there = new Map(leadingRules(saved).map(({ key, port }) => [key, port]));
  const ports = new Map<PortalId, number>();
  for (const { table, chain, before, after, portal } of there.size === 0 ? [] : doorways) {
    if (table !== "nat" || ports.has(portal)) continue;
    const port = there.get(`${chain} ${readableRuleText(`${before}${NO_PORT}${after}`)}`);
    if (port !== undefined) ports.set(portal, port);
  }
  return ports;
}

/** The ports that rules lead to, each once. */
export function portsLedTo(saved: IptablesRuleset): readonly LedTo[] {
  return once(leadingRules(saved));
}

/**
 * The ports that rules of ours lead to which are there with another one, as after another kproxy was started; none: all lead where they
 * should, or are gone.
 */
export function otherPorts(rules: readonly PortalRule[], saved: IptablesRuleset): readonly LedTo[] {
  const ours = rules.map(({ table, chain, rule }) => table === "nat" ? leadingRule(chain, rule) : null)
    .filter((led) => led !== null);
  const keys = new Set(ours.map(({ key }) => key));
  const ports = new Set(ours.map(({ port }) => port));
  return once(leadingRules(saved).filter(({ key, port }) => keys.has(key) && !ports.has(port)));
}

function once(all: readonly LedTo[]): readonly LedTo[] {
  const found = new Map(all.map(({ protocol, port }) => [`${protocol} ${port}`, { protocol, port }]));
  return [...found.values()];
}

/** A rule of the firewall, and the port that it is about. */
export interface GuardedPort extends LedTo {
  /** Without the leading `-A CHAIN `. */
  readonly rule: string;
}

function guardedBy(rule: string): LedTo | null {
  const [, protocol, port] = /(?:^| )-p (tcp|udp) .*--dport (\d+) -j REJECT(?: |$)/.exec(rule) ?? [];
  return port === undefined ? null : { protocol: protocol === "udp" ? "UDP" : "TCP", port: Number(port) };
}

/** The rules of the firewall about ports that none of ours is about. */
export function othersGuarded(rules: readonly PortalRule[], saved: IptablesRuleset): readonly GuardedPort[] {
  const placeOf = (led: LedTo | null): string => `${led?.protocol} ${led?.port}`;
  const own = new Set(
    rules.filter(({ chain }) => chain === PORTALS_FIREWALL).map(({ rule }) => placeOf(guardedBy(rule))),
  );
  return (saved.get("filter")?.get(PORTALS_FIREWALL)?.rules ?? []).flatMap((rule) => {
    const guarded = guardedBy(rule);
    return guarded === null || own.has(placeOf(guarded)) ? [] : [{ ...guarded, rule }];
  });
}

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
  for (const [chain, line] of natRules(saved)) {
    const rule = line.includes("udp") ? readableRuleText(line) : null;
    if (rule !== null) before.set(`${chain} ${rule}`, { table: "nat", chain, rule });
  }
  const now = new Map(
    rules.filter(({ table, rule }) => table === "nat" && rule.includes("udp"))
      .map((rule) => [`${rule.chain} ${readableRuleText(rule.rule) ?? rule.rule}`, rule]),
  );
  const differing = [...before, ...now].filter(([key]) => before.has(key) !== now.has(key));
  return udpDestinations(differing.map(([, rule]) => rule));
}
