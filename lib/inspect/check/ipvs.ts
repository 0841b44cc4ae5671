/**
 * Compares IPVS mode with a plan: chains and jumps, sets, virtual servers, addresses of the device.
 *
 * @module
 */
import { CommittedIpvs } from "../../backend/ipvs/diff/committed.ts";
import { isOurs } from "../../backend/ipvs/diff/diff_observed.ts";
import {
  damagedAddresses,
  damagedServers,
  damagedSets,
  rulesProbe,
} from "../../backend/ipvs/diff/observe_damage.ts";
import {
  DEVICE,
  type IpvsOptions,
  type IpvsPlan,
  type WantedServer,
} from "../../backend/ipvs/plan/ruleset.ts";
import type { NamespacedName } from "../../model/objects.ts";
import { readableRuleText } from "../../netfilter/canonical_iptables_rule.ts";
import { chainHolds } from "../../netfilter/iptables_chains.ts";
import type { IptablesRuleset } from "../../netfilter/iptables_save.ts";
import {
  type RealServer,
  realServerKey,
  sameTreatment,
  type SavedVirtualServer,
} from "../../netfilter/ipvs.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import type { Difference, DifferenceList } from "./difference.ts";
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
  const { plan, options, live, isKernel } = pair;
  const committed = CommittedIpvs.of(plan);
  const owners = ownersOf(plan);
  compareRules(pair, committed, list);
  compareSets(pair, committed, owners, list);
  const servers = live.ipvs?.servers ??
    { virtualServers: new Map<string, SavedVirtualServer>(), otherLines: [] };
  const wanted = new Map<string, WantedServer>();
  for (const server of committed.union.servers()) wanted.set(server.key, server);
  const told = new Set(damagedServers(servers, committed, options.excludeCIDRs));
  for (const key of told) {
    compareServer(key, wanted.get(key), servers.virtualServers.get(key), owners.get(key) ?? null, list);
  }
  const addresses = live.ipvs === null ? null : new Set(live.ipvs.bound);
  const observed = { addresses, virtualServers: servers.virtualServers, sets: live.sets, tables: pair.rules };
  for (const [key, found] of servers.virtualServers) {
    if (wanted.has(key) || told.has(key) || !isOurs(found.server, observed, options)) continue;
    compareServer(key, undefined, found, null, list);
  }
  if (isKernel) compareAddresses(addresses, committed, owners, list);
}

/** Keys of servers, entries of sets and addresses → the first Service that claims them. */
function ownersOf({ services }: IpvsPlan): ReadonlyMap<string, NamespacedName> {
  const owners = new Map<string, NamespacedName>();
  const own = (key: string, name: NamespacedName): void => void (owners.has(key) || owners.set(key, name));
  for (const [name, claims] of services) {
    for (const { key, entries, server, bind } of claims?.servers ?? []) {
      own(key, name);
      for (const entry of entries) own(entry, name);
      if (bind) own(server.address, name);
    }
    for (const entry of claims?.entries ?? []) own(entry, name);
  }
  return owners;
}

function compareRules({ rules }: IpvsPair, committed: CommittedIpvs, list: DifferenceList): void {
  for (const { table, chain, rules: wanted, comparison } of rulesProbe(committed, true).wanted) {
    const raw = rules.get(table)?.get(chain)?.rules;
    const found = raw?.map((rule) => readableRuleText(rule) ?? "");
    const isShared = comparison === "among";
    if (found !== undefined && chainHolds(found, { rules: wanted, comparison })) continue;
    const isJumps = isShared && !chain.startsWith("KUBE-");
    const textOf = (rule: string): string => readableRuleText(rule) ?? rule;
    const difference = chainDifference({
      place: chainPlace(table, chain),
      wanted,
      found: isJumps ? raw ?? [] : raw,
      textOf,
      isShared,
    });
    list.add(
      null,
      difference === null || !isJumps ? difference : { ...difference, cause: "jumps are missing", found: [] },
    );
  }
}

function compareSets(
  { live: { sets } }: IpvsPair,
  committed: CommittedIpvs,
  owners: ReadonlyMap<string, NamespacedName>,
  list: DifferenceList,
): void {
  const damaged = new Set(damagedSets(sets, committed));
  if (damaged.size === 0) return;
  for (const entry of committed.union.entries) {
    const [set = "", text = ""] = halves(entry);
    if (!damaged.has(set) || sets.get(set)?.entries.has(text) === true) continue;
    const cause = sets.has(set) ? "an entry is missing" : "an entry is missing; the set is gone";
    const difference: Difference = {
      kind: "missing",
      place: `ipset ${set}`,
      cause,
      wanted: [text],
      found: [],
    };
    list.add(owners.get(entry) ?? owners.get(text) ?? null, difference);
  }
  for (const set of damaged) {
    const found = sets.get(set);
    if (found === undefined) {
      list.add(null, {
        kind: "missing",
        place: `ipset ${set}`,
        cause: "the set is gone",
        wanted: [],
        found: [],
      });
      continue;
    }
    for (const text of found.entries) {
      if (committed.union.has(`${set} ${text}`)) continue;
      const cause = "an entry that no Service wants";
      list.leftovers.push({ kind: "leftover", place: `ipset ${set}`, cause, wanted: [], found: [text] });
    }
  }
}

/** An entry's set, and what is in it. */
function halves(entry: string): readonly [set: string, text: string] {
  const blank = entry.indexOf(" ");
  return [entry.slice(0, blank), entry.slice(blank + 1)];
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
  addresses: ReadonlySet<string> | null,
  committed: CommittedIpvs,
  owners: ReadonlyMap<string, NamespacedName>,
  list: DifferenceList,
): void {
  for (const damaged of damagedAddresses(addresses, committed)) {
    const address = damaged.slice(DEVICE.length + 1);
    const at = `device ${DEVICE}`;
    if (address === "") {
      list.add(null, {
        kind: "missing",
        place: at,
        cause: "the device is gone",
        wanted: [DEVICE],
        found: [],
      });
    } else if (addresses?.has(address) === true) {
      const cause = "an address that no Service wants";
      list.leftovers.push({ kind: "leftover", place: at, cause, wanted: [], found: [address] });
    } else {
      const cause = "an address is missing";
      const difference: Difference = { kind: "missing", place: at, cause, wanted: [address], found: [] };
      list.add(owners.get(address) ?? null, difference);
    }
  }
}
