/**
 * Compares IPVS mode with a plan: chains and jumps, sets, virtual servers, addresses of the device.
 *
 * @module
 */
import {
  DEVICE,
  type IpvsOptions,
  type IpvsPlan,
  type WantedServer,
} from "../../backend/ipvs/plan/ruleset.ts";
import { setName } from "../../backend/ipvs/plan/sets.ts";
import { findDrift, KUBELETS_CHAINS, type WantedObjects } from "../../backend/ipvs/store/objects.ts";
import { IpvsStore } from "../../backend/ipvs/store/store.ts";
import { type IpvsTransaction, TABLES } from "../../backend/ipvs/store/transaction.ts";
import type { NamespacedName } from "../../model/objects.ts";
import { canonicalRuleText, readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import {
  type RealServer,
  realServerKey,
  sameTreatment,
  type SavedVirtualServer,
  virtualServerKey,
} from "../../netfilter/ipvs.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import type { DifferenceList } from "./difference.ts";
import { chainDifference, listDifference } from "./rule_lists.ts";
import { chainPlace } from "./rule_texts.ts";

/** What is looked at. */
export interface IpvsPair {
  readonly plan: IpvsPlan;
  readonly options: IpvsOptions;
  /** Rules of the variant in use. */
  readonly rules: IptablesRuleset;
  readonly live: HeldRules;
  /** False: read from files, which do not say what is on the device. */
  readonly isKernel: boolean;
}

/** Tells `list` of everything that differs. */
export function compareIpvs(pair: IpvsPair, list: DifferenceList): void {
  const { plan, options, rules, live, isKernel } = pair;
  const wanted = IpvsStore.of(plan).objects;
  const addresses = live.ipvs === null ? null : new Set(live.ipvs.bound);
  const virtualServers = live.ipvs?.servers.virtualServers ?? new Map<string, SavedVirtualServer>();
  const wantedServers = new Map<string, WantedServer>();
  const servers = [...wanted.servers];
  for (const server of servers) wantedServers.set(server.key, server);
  const held = { addresses, virtualServers, sets: live.sets, tables: rules };
  const drift = findDrift({ ...wanted, servers }, held, options);
  const owners = ownersOf(plan);
  compareRules(pair, wanted, drift, list);
  compareSets(pair, wanted, owners, list);
  for (const key of new Set(drift.servers.map(({ server }) => virtualServerKey(server)))) {
    compareServer(key, wantedServers.get(key), virtualServers.get(key), owners.get(key) ?? null, list);
  }
  if (isKernel) compareAddresses(drift, owners, list);
}

/** Keys of servers, entries of sets and addresses → the first Service that wants them. */
function ownersOf({ services }: IpvsPlan): ReadonlyMap<string, NamespacedName> {
  const owners = new Map<string, NamespacedName>();
  const own = (key: string, name: NamespacedName): void => void (owners.has(key) || owners.set(key, name));
  for (const [name, objects] of services) {
    for (const { key, entries, server, bind } of objects?.servers ?? []) {
      own(key, name);
      for (const entry of entries) own(entry, name);
      if (bind) own(server.address, name);
    }
    for (const entry of objects?.entries ?? []) own(entry, name);
  }
  return owners;
}

function compareRules(
  { rules: held }: IpvsPair,
  { rules, jumps }: WantedObjects,
  { chains }: IpvsTransaction,
  list: DifferenceList,
): void {
  for (const table of TABLES) {
    const ofJumps = Map.groupBy(jumps.filter((jump) => jump.table === table), ({ chain }) => chain);
    const bodies = Map.groupBy(rules[table], ({ chain }) => chain);
    for (const [chain, jumpsHere] of ofJumps) {
      if (!chains.has(`${table} ${chain}`)) continue;
      const found = held.get(table)?.get(chain)?.rules ?? [];
      const wanted = jumpsHere.map(({ args }) => canonicalRuleText(args));
      const there = new Set(found.map((rule) => readableRuleText(rule) ?? rule));
      const missing = wanted.filter((text) => !there.has(text));
      if (missing.length === 0) continue;
      const place = chainPlace(table, chain);
      list.add(null, { kind: "missing", place, cause: "jumps are missing", wanted: missing, found: [] });
    }
    for (const name of chains) {
      const chain = name.slice(table.length + 1);
      if (!name.startsWith(`${table} `) || ofJumps.has(chain)) continue;
      const difference = chainDifference({
        place: chainPlace(table, chain),
        wanted: (bodies.get(chain) ?? []).map(({ rule }) => canonicalRuleText(rule)),
        found: held.get(table)?.get(chain)?.rules,
        textOf: (rule) => readableRuleText(rule) ?? rule,
        isShared: KUBELETS_CHAINS.has(chain),
      });
      list.add(null, difference);
    }
  }
}

function compareSets(
  { plan, live }: IpvsPair,
  { sets }: WantedObjects,
  owners: ReadonlyMap<string, NamespacedName>,
  list: DifferenceList,
): void {
  for (const { kind, entries } of sets) {
    const set = setName(kind, plan.base.family);
    const place = `ipset ${set}`;
    const found = live.sets.get(set);
    const surplus = new Set(found?.entries);
    for (const text of entries) {
      if (surplus.delete(text)) continue;
      const cause = `an entry is missing${found === undefined ? "; the set is gone" : ""}`;
      const service = owners.get(`${set} ${text}`) ?? owners.get(text) ?? null;
      list.add(service, { kind: "missing", place, cause, wanted: [text], found: [] });
    }
    if (found === undefined) {
      list.add(null, { kind: "missing", place, cause: "the set is gone", wanted: [], found: [] });
    }
    for (const text of surplus) {
      const cause = "an entry that no Service wants";
      list.leftovers.push({ kind: "leftover", place, cause, wanted: [], found: [text] });
    }
  }
}

function compareServer(
  key: string,
  wanted: WantedServer | undefined,
  found: SavedVirtualServer | undefined,
  service: NamespacedName | null,
  list: DifferenceList,
): void {
  const at = `IPVS ${key}`;
  const reals = [...found?.realServers.values() ?? []];
  if (wanted === undefined) {
    const cause = "a virtual server that no Service wants";
    list.leftovers.push({ kind: "leftover", place: at, cause, wanted: [], found: reals.map(realText) });
    return;
  }
  const wantedTexts = wanted.realServers.map((real) => `${real} weight 1`);
  if (found === undefined) {
    list.add(service, {
      kind: "missing",
      place: at,
      cause: "the virtual server is missing",
      wanted: wantedTexts,
      found: [],
    });
    return;
  }
  if (!sameTreatment(found.server, wanted.server)) {
    list.add(service, {
      kind: "changed",
      place: at,
      cause: "the virtual server treats packets otherwise",
      wanted: [treatmentText(wanted.server)],
      found: [treatmentText(found.server)],
    });
  }
  const own = new Set(wanted.realServers);
  // Those on their way out get nothing new.
  const there = reals.filter((real) => real.weight !== 0 || own.has(realServerKey(real))).map(realText);
  const missing = wantedTexts.filter((text) => !there.includes(text));
  const surplus = there.filter((text) => !wantedTexts.includes(text));
  if (missing.length + surplus.length === 0) return;
  const isWeight = missing.length > 0 && missing.length === surplus.length &&
    missing.every((text) => surplus.some((other) => addressOf(other) === addressOf(text)));
  const difference = listDifference(missing, surplus, "real server");
  list.add(service, {
    ...difference,
    cause: isWeight ? "a real server has another weight or is reached in another way" : difference.cause,
    place: at,
  });
}

function treatmentText(server: SavedVirtualServer["server"]): string {
  return Object.entries(server).filter(([name]) => name !== "address" && name !== "port")
    .map(([name, value]) => `${name} ${String(value)}`).join(", ");
}

function realText(real: RealServer): string {
  const options = real.otherOptions === undefined ? "" : ` ${real.otherOptions}`;
  return `${realServerKey(real)} weight ${real.weight}${options}`;
}

function addressOf(text: string): string {
  return text.slice(0, text.indexOf(" "));
}

function compareAddresses(
  { makesDevice, bound, unbound }: IpvsTransaction,
  owners: ReadonlyMap<string, NamespacedName>,
  list: DifferenceList,
): void {
  const place = `device ${DEVICE}`;
  if (makesDevice) {
    list.add(null, { kind: "missing", place, cause: "the device is gone", wanted: [DEVICE], found: [] });
    return;
  }
  for (const address of bound) {
    const cause = "an address is missing";
    list.add(owners.get(address) ?? null, { kind: "missing", place, cause, wanted: [address], found: [] });
  }
  for (const address of unbound) {
    const cause = "an address that no Service wants";
    list.leftovers.push({ kind: "leftover", place, cause, wanted: [], found: [address] });
  }
}
