/**
 * A proxier of iptables mode on a fake iptables, and its resulting rules.
 *
 * @module
 */
import type { ApplyReport, SyncRequest } from "../../lib/backend/backend.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { Iptables, type IptablesVariant } from "../../lib/kernel/iptables.ts";
import { probeIptables } from "../../lib/kernel/iptables_variant.ts";
import type { IpFamily, NamespacedName } from "../../lib/model/objects.ts";
import { type Logger, silentLogger } from "../../lib/observe/log.ts";
import { parseIptablesSave } from "../../lib/netfilter/iptables_save.ts";
import { canonicalRule } from "./canonical_rule.ts";
import { FakeIptables } from "./fake_iptables.ts";
import { defaultSettings, type ServiceSizes, stateOf } from "./fake_iptables_state.ts";
import { IptablesProxier, type IptablesSettings } from "../../lib/backend/iptables/apply/proxier.ts";

/** Options of a proxier that a test sets; others have defaults, without further node addresses. */
export interface IptablesChoice {
  readonly family?: IpFamily;
  readonly variant?: IptablesVariant;
  readonly settings?: Partial<IptablesSettings>;
  readonly interfaceIps?: () => readonly string[];
  readonly largeChains?: number;
  readonly nowMs?: () => number;
  readonly logger?: Logger;
}

/** A proxier that starts its programs by `exec`, by default for IPv4 and variant nft. */
export async function iptablesProxier(exec: Exec, choice: IptablesChoice = {}): Promise<IptablesProxier> {
  const { family = "IPv4", variant = "nft", settings, ...rest } = choice;
  const clock = { nowMs: () => 0, sleep: () => Promise.resolve() };
  const found = await probeIptables(exec, family, variant);
  return new IptablesProxier({
    iptables: new Iptables(exec, { ...found, clock, random: () => 0.5, lockDeadlineMs: 50 }),
    settings: { ...defaultSettings(family), ...settings },
    interfaceIps: () => [],
    logger: silentLogger,
    nowMs: () => 0,
    ...rest,
  });
}

/** A request to sync the named Services of `shop` (all without names). */
export function syncRequest(
  family: IpFamily,
  sizes: ServiceSizes,
  changed?: readonly string[],
): SyncRequest {
  return {
    state: stateOf(family, sizes),
    changed: changed === undefined ? "all" : new Set(changed.map((name): NamespacedName => `shop/${name}`)),
  };
}

/** A proxier on a fake iptables. */
export interface IptablesRig {
  readonly fake: FakeIptables;
  readonly proxier: IptablesProxier;
  /** Syncs the named Services (all without names) to these sizes. */
  sync(sizes: ServiceSizes, changed?: readonly string[]): Promise<ApplyReport>;
}

/** A proxier on a fake kernel. */
export async function iptablesRig(
  { fake = new FakeIptables(), ...choice }: IptablesChoice & { readonly fake?: FakeIptables } = {},
): Promise<IptablesRig> {
  const proxier = await iptablesProxier(fake, choice);
  fake.runs.length = 0;
  return {
    fake,
    proxier,
    sync: (sizes, changed) => proxier.sync(syncRequest(proxier.family, sizes, changed)),
  };
}

/** Chains that all Services share: their order is that of changes, and means nothing. */
const SHARED_CHAIN = /^KUBE-(?:SERVICES|NODEPORTS|EXTERNAL-SERVICES|PROXY-FIREWALL)$/;

/** Comparable chains and rules of `iptables-save`, whatever the rules' spelling and the order of shared chains. */
export function iptablesLines(saved: string): string[] {
  const lines: string[] = [];
  for (const [table, chains] of parseIptablesSave(saved)) {
    for (const [name, { rules }] of chains) {
      const texts = rules.map((rule) => `${table} ${name} ${canonicalRule(rule)}`);
      const last = name === "KUBE-SERVICES" && table === "nat" ? texts.splice(-1) : [];
      lines.push(`${table} ${name}`, ...SHARED_CHAIN.test(name) ? texts.sort() : texts, ...last);
    }
  }
  return lines;
}

/** {@linkcode iptablesLines} of a fake. */
export function endState(
  fake: FakeIptables,
  variant: IptablesVariant = "nft",
  family: IpFamily = "IPv4",
): string[] {
  return iptablesLines(fake.saved(family, undefined, variant));
}

/** The rules that a first sync of these Services makes. */
export async function freshEndState(
  sizes: ServiceSizes,
  variant: IptablesVariant = "nft",
): Promise<string[]> {
  const other = await iptablesRig({ variant });
  await other.sync(sizes);
  return endState(other.fake, variant);
}

/** Target of the fake's rule that contains `words`. */
export function chainOf(fake: FakeIptables, words: string, variant: IptablesVariant): string {
  const line = fake.saved("IPv4", "nat", variant).split("\n").find((line) => line.includes(words));
  return line?.split(" ").at(-1) ?? `nothing leads to ${words}`;
}
