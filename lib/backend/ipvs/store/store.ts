/**
 * What the kernel is known to hold of one family, by Service: after a full sync as it was written, and changed with every change since.
 *
 * Several Services may want one entry or address, which stays while one of them does, or one virtual server, which the first in rank gets.
 * A change of a few Services costs what those want, not what all do.
 *
 * @module
 */
import { compareBytes } from "../../../model/names.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { BaseRule, BaseRules, Entry, IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setDefinition, setName, setOfEntry } from "../plan/sets.ts";
import {
  asHeld,
  diffObjects,
  type HeldObjects,
  type HeldSet,
  TABLES,
  type WantedObjects,
  type WantedRule,
  type WantedSet,
} from "./objects.ts";
import type { IpvsTransaction } from "./transaction.ts";

/** How much of each kind the kernel holds. */
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

/** What a change may be about. */
interface Touched {
  /** Of virtual servers. */
  readonly keys: ReadonlySet<string>;
  readonly entries: ReadonlySet<Entry>;
}

/** See the module. */
export class IpvsStore {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, ServiceObjects>();
  /** Key of a virtual server → the Services that want it, the first in rank first. */
  readonly #servers = new Map<string, readonly ServerOwner[]>();
  /** Entry → how often it is wanted. */
  readonly #entries = new Map<Entry, number>();
  readonly #sizes = new Map<string, number>();
  /** Set → `maxelem`, where it is larger than usual. Sets grow and do not shrink. */
  readonly #capacities = new Map<string, number>();
  #realServers = 0;
  #outFilters = 0;

  private constructor(base: BaseRules) {
    this.#base = base;
  }

  /**
   * The kernel right after a full sync wrote `plan`.
   *
   * @throws {TypeError} if the plan is not one of all Services
   */
  static of(plan: IpvsPlan): IpvsStore {
    if (!plan.all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    const store = new IpvsStore(plan.base);
    store.#take(plan.base, plan.services);
    return store;
  }

  /** All virtual servers, in the order in which they came to be. */
  *servers(): Generator<WantedServer, undefined> {
    for (const [first] of this.#servers.values()) if (first !== undefined) yield first.server;
  }

  /** How many entries the set has. */
  setSize(set: string): number {
    return this.#sizes.get(set) ?? 0;
  }

  get counts(): KernelCounts {
    const { family } = this.#base;
    let entries = 0;
    for (const kind of SET_KINDS) entries += this.setSize(setName(kind, family));
    const rules = (table: Table): number => this.#rules(table).length;
    return {
      filter: rules("filter") + this.#outFilters,
      nat: rules("nat"),
      virtualServers: this.#servers.size,
      realServers: this.#realServers,
      entries,
      addresses: this.setSize(setName("KUBE-IPVS-IPS", family)),
    };
  }

  /** All of it. */
  get objects(): WantedObjects {
    const { family, chains, jumps } = this.#base;
    const entries = Map.groupBy(this.#entries.keys(), setOfEntry);
    const texts = (set: string): readonly string[] => entries.get(set)?.map(textOf) ?? [];
    return {
      family,
      sets: SET_KINDS.map((kind) => {
        const own = texts(setName(kind, family));
        return { kind, entries: own, all: () => own };
      }),
      chains,
      rules: {
        nat: this.#rules("nat"),
        filter: this.#rules(
          "filter",
          outFiltersOf(this.servers()).map((rule) => ({ chain: OUT_FILTER_CHAIN, rule })),
        ),
      },
      outFilters: [],
      jumps,
      servers: this.servers(),
      addresses: texts(setName("KUBE-IPVS-IPS", family)),
    };
  }

  /**
   * Takes a plan of some Services over, or of all of them.
   *
   * @returns what leads there from what was held. If that is not written, it is not known what the kernel holds
   */
  change(plan: IpvsPlan): IpvsTransaction {
    const services = new Map(plan.services);
    if (plan.all) {
      for (const name of this.#services.keys()) if (!plan.services.has(name)) services.set(name, null);
    }
    const touched = this.#touched(services);
    const before = this.#held(touched);
    this.#take(plan.base, services);
    return diffObjects(this.#wanted(touched), before, {
      family: plan.base.family,
      excludeCIDRs: [],
      hostIps: [],
      known: touched.keys,
    });
  }

  #touched(services: ReadonlyMap<NamespacedName, ServiceObjects | null>): Touched {
    const keys = new Set<string>();
    const entries = new Set<Entry>();
    const touch = ({ key, entries: own, bind, server }: WantedServer): void => {
      keys.add(key);
      for (const entry of own) entries.add(entry);
      if (bind) entries.add(this.#addressEntry(server.address));
    };
    for (const [name, after] of services) {
      for (const objects of [this.#services.get(name), after]) {
        for (const server of objects?.servers ?? []) {
          touch(server);
          // One that loses it gives it to the next in rank.
          for (const other of this.#servers.get(server.key) ?? []) touch(other.server);
        }
        for (const entry of objects?.entries ?? []) entries.add(entry);
      }
    }
    return { keys, entries };
  }

  /** What is wanted of these now. */
  #wanted({ keys, entries }: Touched): WantedObjects {
    const { family, chains } = this.#base;
    const bySet = this.#bySet(entries);
    const staticChains = (table: Table): readonly string[] =>
      chains[table].filter((chain) => chain !== OUT_FILTER_CHAIN);
    const servers = this.#serversOf(keys);
    return {
      family,
      sets: SET_KINDS.filter((kind) => bySet.has(setName(kind, family))).map((kind) => {
        const set = setName(kind, family);
        return { kind, entries: bySet.get(set) ?? [], all: () => this.#entriesOf(set) };
      }),
      chains: { nat: staticChains("nat"), filter: staticChains("filter") },
      rules: { nat: this.#rules("nat"), filter: this.#rules("filter") },
      outFilters: outFiltersOf(servers),
      jumps: [],
      servers,
      addresses: bySet.get(setName("KUBE-IPVS-IPS", family)) ?? [],
    };
  }

  /** What is held of these now. */
  #held(touched: Touched): HeldObjects {
    const { sets, rules, chains, outFilters, servers, addresses, family } = this.#wanted(touched);
    const bodies = (table: Table): ReadonlyMap<string, { readonly rules: readonly string[] }> => {
      const byChain = Map.groupBy(rules[table], ({ chain }) => chain);
      return new Map(chains[table].map((chain) => {
        return [chain, { rules: byChain.get(chain)?.map(({ rule }) => rule) ?? [] }];
      }));
    };
    const heldSet = ({ kind, entries }: WantedSet): readonly [string, HeldSet] => {
      const name = setName(kind, family);
      const definition = setDefinition(kind, family, this.#capacity(name));
      return [name, { name, definition, entries: new Set(entries), size: this.setSize(name) }];
    };
    return {
      addresses: new Set(addresses),
      virtualServers: new Map(Array.from(servers, (server) => [server.key, asHeld(server)])),
      sets: new Map(sets.map(heldSet)),
      tables: new Map(TABLES.map((table) => [table, bodies(table)])),
      outFilters,
    };
  }

  #serversOf(keys: Iterable<string>): readonly WantedServer[] {
    return Array.from(keys).flatMap((key) => this.#servers.get(key)?.[0]?.server ?? []);
  }

  /** Those that are wanted, by set; a set that none of them is wanted in has none. */
  #bySet(entries: Iterable<Entry>): ReadonlyMap<string, readonly string[]> {
    const bySet = new Map<string, string[]>();
    for (const entry of entries) {
      const set = setOfEntry(entry);
      const texts = bySet.get(set) ?? [];
      bySet.set(set, texts);
      if (this.#entries.has(entry)) texts.push(textOf(entry));
    }
    return bySet;
  }

  *#entriesOf(set: string): Generator<string> {
    for (const entry of this.#entries.keys()) if (setOfEntry(entry) === set) yield textOf(entry);
  }

  /** The rules of a table as its sets are filled, those of Services in their place. */
  #rules(table: Table, ofServices: readonly WantedRule[] = []): readonly WantedRule[] {
    const { head, tail } = this.#base;
    const isThere = ({ needs }: BaseRule): boolean => needs === "" || this.setSize(needs) > 0;
    return [...head[table].filter(isThere), ...ofServices, ...tail[table].filter(isThere)];
  }

  #capacity(set: string): number {
    return this.#capacities.get(set) ?? capacityFor(0);
  }

  #addressEntry(address: string): Entry {
    return `${setName("KUBE-IPVS-IPS", this.#base.family)} ${address}`;
  }

  #take(base: BaseRules, services: ReadonlyMap<NamespacedName, ServiceObjects | null>): void {
    this.#base = base;
    for (const [name, objects] of services) this.#setService(name, objects);
    for (const [set, size] of this.#sizes) {
      if (capacityFor(size) > this.#capacity(set)) this.#capacities.set(set, capacityFor(size));
    }
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
    this.#countServer(owners[0]?.server, 1);
    this.#countServer(this.#servers.get(key)?.[0]?.server, -1);
    if (owners.length === 0) this.#servers.delete(key);
    else this.#servers.set(key, owners);
  }

  #countServer(server: WantedServer | undefined, by: 1 | -1): void {
    if (server === undefined) return;
    this.#realServers += by * server.realServers.length;
    if (server.outFilter !== "") this.#outFilters += by;
    for (const entry of server.entries) this.#count(entry, by);
    if (server.bind) this.#count(this.#addressEntry(server.server.address), by);
  }

  #count(entry: Entry, by: 1 | -1): void {
    const count = (this.#entries.get(entry) ?? 0) + by;
    if (count === 0) this.#entries.delete(entry);
    else this.#entries.set(entry, count);
    // It came or went.
    if (count === 0 || (count === 1 && by === 1)) {
      this.#sizes.set(setOfEntry(entry), this.setSize(setOfEntry(entry)) + by);
    }
  }
}

function outFiltersOf(servers: Iterable<WantedServer>): readonly string[] {
  return Array.from(servers, ({ outFilter }) => outFilter).filter((rule) => rule !== "");
}

function textOf(entry: Entry): string {
  return entry.slice(entry.indexOf(" ") + 1);
}

/**
 * An address goes before a node port, as in the other modes, whose rules look for addresses first. All else is decided before
 * it comes here; the name only makes the outcome independent of which came first.
 */
function byRank(left: ServerOwner, right: ServerOwner): number {
  return Number(left.server.isNodePort) - Number(right.server.isNodePort) ||
    compareBytes(left.name, right.name);
}
