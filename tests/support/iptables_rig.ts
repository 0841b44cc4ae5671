/**
 * A proxier of iptables mode on a fake iptables, and the rules it reaches.
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

/** What of an applier a test sets itself; all else is the default, without other addresses of the node. */
export interface IptablesChoice {
  readonly family?: IpFamily;
  readonly variant?: IptablesVariant;
  readonly settings?: Partial<IptablesSettings>;
  readonly interfaceIps?: () => readonly string[];
  readonly largeChains?: number;
  readonly nowMs?: () => number;
  readonly logger?: Logger;
}

/** An applier that starts its programs here, IPv4 and variant nft unless it is said. */
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

/** A request to sync the Services named, which are in `shop` (all without names). */
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

/** An applier on a fake iptables. */
export interface IptablesRig {
  readonly fake: FakeIptables;
  readonly proxier: IptablesProxier;
  /** Syncs the Services named (all without names) to these sizes. */
  sync(sizes: ServiceSizes, changed?: readonly string[]): Promise<ApplyReport>;
}

/** An applier on this kernel. */
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

/** Chains that all Services share: their order is that of the changes, and means nothing. */
const SHARED_CHAIN = /^KUBE-(?:SERVICES|NODEPORTS|EXTERNAL-SERVICES|PROXY-FIREWALL)$/;

/** Chains and rules of what `iptables-save` prints, free of how rules are spelt and of the order of the shared chains. */
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

/** As {@linkcode iptablesLines}, of a fake. */
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

/** A chain of the fake, found by what a rule that leads to it says. */
export function chainOf(fake: FakeIptables, words: string, variant: IptablesVariant): string {
  const line = fake.saved("IPv4", "nat", variant).split("\n").find((line) => line.includes(words));
  return line?.split(" ").at(-1) ?? `nothing leads to ${words}`;
}
