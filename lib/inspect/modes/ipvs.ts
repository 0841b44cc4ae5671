/**
 * Mode ipvs: desired objects of a family, and differences of the live ones from a full sync.
 *
 * @module
 */
import type { IptablesPlan } from "../../backend/iptables/plan/ruleset.ts";
import { sharedRules } from "../../backend/iptables/store/store.ts";
import { configuredIpvs, hostIps, nodePortIps, planIpvs } from "../../backend/ipvs/plan/plan.ts";
import {
  DEVICE,
  type IpvsOptions,
  type IpvsPlan,
  type WantedServer,
} from "../../backend/ipvs/plan/ruleset.ts";
import { setName } from "../../backend/ipvs/plan/sets.ts";
import { findDrift } from "../../backend/ipvs/store/objects.ts";
import { IpvsStore, planTexts, renderPlan } from "../../backend/ipvs/store/store.ts";
import type { IpvsTransaction } from "../../backend/ipvs/store/transaction.ts";
import { isLoopback, parseIp } from "../../model/ip.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import { parseSets } from "../../netfilter/ipset.ts";
import {
  parseIpvsTable,
  type RealServer,
  realServerKey,
  sameTreatment,
  type SavedVirtualServer,
  virtualServerKey,
} from "../../netfilter/ipvs.ts";
import { kernelTables, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { compareIptables, listDifference } from "../check/chains.ts";
import type { Comparison, DifferenceList } from "../check/check.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "../desired/desired.ts";

/** Options of the plan of one family, from configuration and node. */
function ipvsOptions(input: DesiredInput, family: IpFamily): IpvsOptions {
  const { config, node } = input;
  const options = warned(configuredIpvs(config, family, node), input, family);
  const own = ownHostIps(input, family, options.nodeIp);
  return {
    ...options,
    hostIps: own,
    nodePortIps: nodePortIps(options.nodePortAddresses, own),
    // The kernel here is not the node's.
    schedulers: [],
  };
}

/** Addresses that mode ipvs takes for the node's own, sorted. */
function ownHostIps(input: DesiredInput, family: IpFamily, nodeIp: string): readonly string[] {
  const { addresses } = input.machine;
  if (addresses !== null) return hostIps(family, addresses);
  const own = hostAddresses(input, nodeIp).map(parseIp)
    .filter((ip) => ip?.family === family && !isLoopback(ip)).map((ip) => ip?.text ?? "");
  return [...new Set(own)].sort();
}

/** The plan of all Services of one family. */
export function ipvsPlan(
  input: DesiredInput,
  family: IpFamily,
  options: IpvsOptions = ipvsOptions(input, family),
): IpvsPlan {
  return planIpvs(stateOf(input, family), "all", options);
}

/** Input of each tool. */
export function render(input: DesiredInput, family: IpFamily): string {
  return renderPlan(ipvsPlan(input, family));
}

/** State of an empty kernel after a full sync. */
export function rules(input: DesiredInput, family: IpFamily): RulesetSnapshot {
  const plan = ipvsPlan(input, family);
  const texts = planTexts(plan);
  const added = new RegExp(`^address add (\\S+)/\\d+ dev ${DEVICE}$`, "gm");
  const bound = Array.from(texts.ip.matchAll(added), ([, address = ""]) => address);
  return {
    family,
    iptables: [{ variant: "", tables: kernelTables(texts.iptables, plan.base.jumps) }],
    nftables: [],
    sets: parseSets(texts.ipset),
    ipvs: { servers: parseIpvsTable(texts.ipvsadm), bound },
  };
}

type Owners = ReadonlyMap<string, NamespacedName>;

/** Reports differences to `list`. */
export function compare(
  { desired, family, tables, live, isKernel }: Comparison,
  list: DifferenceList,
): void {
  const options = ipvsOptions(desired, family);
  const plan = ipvsPlan(desired, family, options);
  const { objects, rulesPlan } = new IpvsStore(plan);
  const { sets, ipvs } = live;
  const addresses = ipvs === null ? null : new Set(ipvs.bound);
  const virtualServers = ipvs?.servers.virtualServers ?? new Map<string, SavedVirtualServer>();
  // Sets are compared below, entry by entry.
  const drift = findDrift({ ...objects, sets: [] }, { addresses, virtualServers, sets }, options);
  const owners = ownersOf(plan);
  compareIptables(byService(rulesPlan, owners), tables, family, list);
  for (const { kind, entries } of objects.sets) {
    const set = setName(kind, family);
    compareSet(set, entries, sets.get(set)?.entries, owners, list);
  }
  const wantedServers = new Map(Array.from(objects.servers, (server) => [server.key, server]));
  for (const key of new Set(drift.servers.map(({ server }) => virtualServerKey(server)))) {
    compareServer(key, wantedServers.get(key), virtualServers.get(key), owners.get(key) ?? null, list);
  }
  // Files do not contain the device's addresses.
  if (isKernel) compareAddresses(drift, owners, list);
}

/** Keys of virtual servers, entries of sets, and addresses → the first Service that wants them. */
function ownersOf({ services }: IpvsPlan): Owners {
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

/** iptables rules about virtual servers → rules of the Services that own them. */
function byService(
  { base, services }: IptablesPlan,
  owners: Owners,
): Pick<IptablesPlan, "base" | "services"> {
  const grouped = Map.groupBy(services, ([server]) => owners.get(server) ?? server);
  return {
    base,
    services: new Map(
      [...grouped].map((
        [name, own],
      ) => [name, sharedRules(own.flatMap(([, rules]) => rules?.dispatch ?? []))]),
    ),
  };
}

/** @param found the live set; undefined: it does not exist */
function compareSet(
  set: string,
  wanted: Iterable<string>,
  found: ReadonlySet<string> | undefined,
  owners: Owners,
  list: DifferenceList,
): void {
  const place = `ipset ${set}`;
  const surplus = new Set(found);
  for (const text of wanted) {
    if (surplus.delete(text)) continue;
    const cause = `an entry is missing${found === undefined ? "; the set is gone" : ""}`;
    const service = owners.get(`${set} ${text}`) ?? owners.get(text) ?? null;
    list.add(service, { kind: "missing", place, cause, wanted: [text], found: [] });
  }
  if (found === undefined) {
    list.add(null, { kind: "missing", place, cause: "the set is gone", wanted: [], found: [] });
  }
  for (const text of surplus) {
    list.leave({ place, cause: "an entry that no Service wants", wanted: [], found: [text] });
  }
}

function compareServer(
  key: string,
  wanted: WantedServer | undefined,
  found: SavedVirtualServer | undefined,
  service: NamespacedName | null,
  list: DifferenceList,
): void {
  const place = `IPVS ${key}`;
  const reals = [...found?.realServers.values() ?? []];
  if (wanted === undefined) {
    const cause = "a virtual server that no Service wants";
    list.leave({ place, cause, wanted: [], found: reals.map(realText) });
    return;
  }
  const wantedTexts = wanted.realServers.map((real) => `${real} weight 1`);
  if (found === undefined) {
    const cause = "the virtual server is missing";
    list.add(service, { kind: "missing", place, cause, wanted: wantedTexts, found: [] });
    return;
  }
  if (!sameTreatment(found.server, wanted.server)) {
    list.add(service, {
      kind: "changed",
      place,
      cause: "the virtual server treats packets otherwise",
      wanted: [treatmentText(wanted.server)],
      found: [treatmentText(found.server)],
    });
  }
  const own = new Set(wanted.realServers);
  // Real servers with weight 0 are drained: no new connections.
  const there = reals.filter((real) => real.weight !== 0 || own.has(realServerKey(real))).map(realText);
  const missing = wantedTexts.filter((text) => !there.includes(text));
  const surplus = there.filter((text) => !wantedTexts.includes(text));
  if (missing.length + surplus.length === 0) return;
  const isWeight = missing.length > 0 && missing.length === surplus.length &&
    missing.every((text) => surplus.some((other) => addressOf(other) === addressOf(text)));
  const difference = listDifference(missing, surplus, "real server");
  const cause = isWeight ? "a real server has another weight or is reached in another way" : difference.cause;
  list.add(service, { ...difference, cause, place });
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
  owners: Owners,
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
    list.leave({ place, cause: "an address that no Service wants", wanted: [], found: [address] });
  }
}
