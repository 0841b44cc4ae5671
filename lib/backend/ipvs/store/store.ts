/**
 * The known objects of one family in the kernel, by Service: as a full sync wrote them, and changed with every change.
 *
 * Several Services may want one entry or address, which stays while one of them does, or one virtual server, which the first in rank gets.
 * A change of a few Services costs what those want, not what all do.
 *
 * @module
 */
import { compareBytes } from "../../../model/names.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { leadToServiceChains, type PerTable, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import type {
  BaseRules as IptablesBaseRules,
  IptablesPlan,
  ServiceRules,
} from "../../iptables/plan/ruleset.ts";
import { type IptablesStore, sharedRules } from "../../iptables/store/store.ts";
import { fullSync, type HeldTables, NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { BaseRule, BaseRules, Entry, IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import type { SavedSet, SetEntry } from "../../../netfilter/ipset.ts";
import { capacityFor, SET_KINDS, setDefinition, type SetKind, setName } from "../plan/sets.ts";
import {
  diffObjects,
  type HeldObjects,
  type Ownership,
  realServerOf,
  type WantedObjects,
  type WantedSet,
} from "./objects.ts";
import { type IpvsTransaction, stepText, TABLES } from "./transaction.ts";
import { planLines } from "../../iptables/plan/plan.ts";

/** Numbers of objects in the kernel, by kind. */
export interface KernelCounts extends PerTable<number> {
  readonly virtualServers: number;
  readonly realServers: number;
  readonly entries: number;
  readonly addresses: number;
}

/** A Service that wants a virtual server. */
interface ServerOwner {
  readonly name: NamespacedName;
  readonly server: WantedServer;
}

/** Content of one set. */
interface StoredSet {
  readonly kind: SetKind;
  /** Entry → how often it is wanted. */
  readonly entries: Map<SetEntry, number>;
  /** Capacity; it grows and never shrinks. */
  maxElements: number;
}

/** Objects that a change has touched, as they were before. */
interface Before {
  /** Former virtual server by key; undefined: there was none. */
  readonly servers: Map<string, WantedServer | undefined>;
  /** Set entry → whether it existed. */
  readonly entries: Map<Entry, boolean>;
}

/** Store of known objects; see the module. */
export class IpvsStore {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, ServiceObjects>();
  /** Key of a virtual server → the Services that want it, the first in rank first. */
  readonly #servers = new Map<string, readonly ServerOwner[]>();
  readonly #sets: ReadonlyMap<string, StoredSet>;
  #realServers = 0;
  readonly #rules: IptablesStore;
  /** Former objects of the change under way. */
  #before: Before | undefined;

  /**
   * A store of the kernel right after a full sync wrote `plan`.
   *
   * @throws {TypeError} if the plan is not one of all Services
   */
  constructor({ all, base, services }: IpvsPlan) {
    if (!all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    this.#base = base;
    this.#sets = new Map(
      SET_KINDS.map((kind) => {
        return [setName(kind, base.family), { kind, entries: new Map(), maxElements: capacityFor(0) }];
      }),
    );
    for (const [name, objects] of services) this.#setService(name, objects);
    this.#grow();
    this.#rules = fullSync(this.rulesPlan, NOTHING_HELD, base).store;
  }

  /** All virtual servers, in the order in which they came to be. */
  *servers(): Generator<WantedServer, undefined> {
    for (const [first] of this.#servers.values()) if (first !== undefined) yield first.server;
  }

  /** Number of entries of the set. */
  setSize(set: string): number {
    return this.#set(set).entries.size;
  }

  /** Rules of iptables. */
  get rules(): IptablesStore {
    return this.#rules;
  }

  get counts(): KernelCounts {
    let entries = 0;
    for (const set of this.#sets.values()) entries += set.entries.size;
    return {
      ...this.#rules.ruleCounts,
      virtualServers: this.#servers.size,
      realServers: this.#realServers,
      entries,
      addresses: this.setSize(this.#addressSet),
    };
  }

  /** All known objects but the rules of iptables. */
  get objects(): WantedObjects {
    const sets = Array.from(this.#sets.values(), ({ kind, entries }): WantedSet => {
      return { kind, entries: [...entries.keys()], all: entries };
    });
    return this.#objects([...this.servers()], sets);
  }

  /** Transaction of a full sync over `held`. */
  fullSync(held: HeldObjects & HeldTables, ownership: Ownership): IpvsTransaction {
    const transaction = diffObjects(this.objects, held, ownership);
    transaction.rules = fullSync(this.rulesPlan, held, this.#base).transaction;
    const services = held.tables.get("nat")?.get("KUBE-SERVICES")?.rules ?? [];
    transaction.replacesIptablesMode = leadToServiceChains(services);
    return transaction;
  }

  /** All rules of iptables, those of each virtual server by its key. */
  get rulesPlan(): IptablesPlan {
    const services = new Map(this.servers().map((server) => [server.key, rulesOf(server)]));
    return { all: true, base: this.#baseRules, services };
  }

  /**
   * Takes a plan of some Services over, or of all of them.
   *
   * @returns the transaction to write. If that is not written, the content of the kernel is unknown
   */
  change(plan: IpvsPlan): IpvsTransaction {
    const services = new Map(plan.services);
    if (plan.all) {
      for (const name of this.#services.keys()) if (!plan.services.has(name)) services.set(name, null);
    }
    this.#base = plan.base;
    const before: Before = this.#before = { servers: new Map(), entries: new Map() };
    for (const [name, objects] of services) this.#setService(name, objects);
    this.#before = undefined;
    const { wanted, held } = this.#changed(before);
    this.#grow();
    const known = new Set(before.servers.keys());
    const transaction = diffObjects(wanted, held, { ...ownershipOf(plan), known });
    const owners = Array.from(known, (key) => [key, rulesOf(this.#server(key))] as const);
    const rules = this.#rules.change({ base: this.#baseRules, services: new Map(owners) });
    rules.commit();
    transaction.rules = rules.transaction;
    return transaction;
  }

  /** The touched objects: as they are wanted now, and as the kernel still holds them. */
  #changed({ servers, entries }: Before): { readonly wanted: WantedObjects; readonly held: HeldObjects } {
    const family = this.#base.family;
    const sets: WantedSet[] = [];
    const heldSets = new Map<string, SavedSet>();
    const bySet = Map.groupBy(entries, ([entry]) => splitEntry(entry)[0]);
    for (const [name, { kind, entries: all, maxElements }] of this.#sets) {
      const touched = bySet.get(name)?.map(([entry, wasThere]) => [splitEntry(entry)[1], wasThere] as const);
      if (touched === undefined) continue;
      sets.push({ kind, entries: touched.map(([text]) => text).filter((text) => all.has(text)), all });
      const held = touched.filter(([, wasThere]) => wasThere).map(([text]) => text);
      const definition = setDefinition(kind, family, maxElements);
      heldSets.set(name, { name, definition, entries: new Set(held) });
    }
    const virtualServers = Array.from(servers).flatMap(([key, before]) =>
      before === undefined ? [] : [
        [key, {
          server: before.server,
          realServers: new Map(before.realServers.map((real) => [real, realServerOf(real)])),
        }] as const,
      ]
    );
    return {
      wanted: this.#objects(Array.from(servers.keys()).flatMap((key) => this.#server(key) ?? []), sets),
      held: {
        addresses: heldSets.get(this.#addressSet)?.entries ?? new Set(),
        virtualServers: new Map(virtualServers),
        sets: heldSets,
      },
    };
  }

  #objects(servers: readonly WantedServer[], sets: readonly WantedSet[]): WantedObjects {
    const addresses = sets.find(({ kind }) => kind === "KUBE-IPVS-IPS")?.entries ?? [];
    return { family: this.#base.family, sets, servers, addresses };
  }

  /** Base rules for the sets as they are filled; rules of Services are where kube-proxy has them. */
  get #baseRules(): IptablesBaseRules {
    const { chains, rules, jumps } = this.#base;
    const lines = (some: readonly BaseRule[]): string[] =>
      some.filter(({ needs }) => needs === "" || this.setSize(needs) > 0)
        .map(({ chain, rule }) => `-A ${chain} ${rule}`);
    const at = rules.filter.findIndex(({ chain }) => chain === OUT_FILTER_CHAIN);
    const head = { nat: lines(rules.nat), filter: lines(rules.filter.slice(0, at)) };
    const tail = { nat: [], filter: lines(rules.filter.slice(at + 1)) };
    return {
      chains,
      dispatch: { nat: [], filter: [OUT_FILTER_CHAIN] },
      ensured: { nat: [], filter: [] },
      hasServiceChains: false,
      head,
      tail,
      jumps,
    };
  }

  #set(name: string): StoredSet {
    const set = this.#sets.get(name);
    if (set === undefined) throw new RangeError(`"${name}" is no set of this family`);
    return set;
  }

  get #addressSet(): string {
    return setName("KUBE-IPVS-IPS", this.#base.family);
  }

  /** Entries that come and go with a server. */
  #entriesOf({ entries, bind, server }: WantedServer): readonly Entry[] {
    return bind ? [...entries, `${this.#addressSet} ${server.address}`] : entries;
  }

  #grow(): void {
    for (const set of this.#sets.values()) {
      set.maxElements = Math.max(set.maxElements, capacityFor(set.entries.size));
    }
  }

  /** The virtual server of the Service that is first in rank. */
  #server(key: string): WantedServer | undefined {
    return this.#servers.get(key)?.[0]?.server;
  }

  #setService(name: NamespacedName, objects: ServiceObjects | null): void {
    const before = this.#services.get(name);
    // What stays is counted in between, so that nothing is made anew.
    for (const entry of objects?.entries ?? []) this.#count(entry, 1);
    for (const entry of before?.entries ?? []) this.#count(entry, -1);
    const others = (key: string): readonly ServerOwner[] =>
      this.#servers.get(key)?.filter((owner) => owner.name !== name) ?? [];
    const after = new Map(objects?.servers.map((server) => [server.key, server]));
    for (const { key } of before?.servers ?? []) if (!after.has(key)) this.#setOwners(key, others(key));
    for (const [key, server] of after) {
      this.#setOwners(key, [...others(key), { name, server }].sort(byRank));
    }
    if (objects === null) this.#services.delete(name);
    else this.#services.set(name, objects);
  }

  #setOwners(key: string, owners: readonly ServerOwner[]): void {
    const before = this.#server(key);
    if (this.#before?.servers.has(key) === false) this.#before.servers.set(key, before);
    this.#countServer(owners[0]?.server, 1);
    this.#countServer(before, -1);
    if (owners.length === 0) this.#servers.delete(key);
    else this.#servers.set(key, owners);
  }

  #countServer(server: WantedServer | undefined, by: 1 | -1): void {
    if (server === undefined) return;
    this.#realServers += by * server.realServers.length;
    for (const entry of this.#entriesOf(server)) this.#count(entry, by);
  }

  #count(entry: Entry, by: 1 | -1): void {
    const [set, text] = splitEntry(entry);
    const { entries } = this.#set(set);
    const before = entries.get(text) ?? 0;
    if (this.#before?.entries.has(entry) === false) this.#before.entries.set(entry, before > 0);
    const count = before + by;
    if (count === 0) entries.delete(text);
    else entries.set(text, count);
  }
}

/** Rules of the server in the chain that all share; null: none. */
function rulesOf(server: WantedServer | undefined): ServiceRules | null {
  return server === undefined || server.outFilter === ""
    ? null
    : sharedRules([{ table: "filter", chain: OUT_FILTER_CHAIN, rule: server.outFilter }]);
}

function splitEntry(entry: Entry): readonly [set: string, text: string] {
  const blank = entry.indexOf(" ");
  return [entry.slice(0, blank), entry.slice(blank + 1)];
}

/**
 * An address goes before a node port, as in the other modes, whose rules look for addresses first. All else is decided before
 * it comes here; the name only makes the outcome independent of which came first.
 */
function byRank(left: ServerOwner, right: ServerOwner): number {
  return Number(left.server.isNodePort) - Number(right.server.isNodePort) ||
    compareBytes(left.name, right.name);
}

/** A kernel without anything of ours. */
const NOTHING = { ...NOTHING_HELD, addresses: null, virtualServers: new Map(), sets: new Map() };

/**
 * A plan of all Services as one text, in the order of loading; each part is under the program that reads it. It
 * contains the jumps from the kernel's own chains.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function renderPlan(plan: IpvsPlan): string {
  return new IpvsStore(plan).fullSync(NOTHING, ownershipOf(plan)).text;
}

/** The four texts that make an empty kernel hold a plan, each loadable by its tool. */
export interface PlanTexts {
  /** For `ipset restore`. */
  readonly ipset: string;
  /** For `iptables-restore --noflush` (`ip6tables-restore`). */
  readonly iptables: string;
  /** For `ipvsadm -R`. */
  readonly ipvsadm: string;
  /** For `ip -batch -`. */
  readonly ip: string;
}

/**
 * The texts of a plan of all Services. The jumps from the kernel's own chains are not in them.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function planTexts(plan: IpvsPlan): PlanTexts {
  const { objects, rulesPlan } = new IpvsStore(plan);
  const iptables = TABLES.map((table) => tableBlock(table, planLines(rulesPlan, table))).join("");
  const texts = { ipset: "", iptables, ipvsadm: "", ip: "" };
  for (const step of diffObjects(objects, NOTHING, ownershipOf(plan)).steps) {
    texts[step.program] = stepText(step);
  }
  return texts;
}

function ownershipOf({ base: { family } }: IpvsPlan): Ownership {
  return { family, excludeCIDRs: [], hostIps: [] };
}
