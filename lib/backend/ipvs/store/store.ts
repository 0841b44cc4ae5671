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
import { sharedRules } from "../../iptables/store/dispatch.ts";
import { fullSync, type HeldTables, NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import type { IptablesStore } from "../../iptables/store/store.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { BaseRule, BaseRules, Entry, IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setDefinition, setName } from "../plan/sets.ts";
import {
  diffObjects,
  type HeldObjects,
  type Ownership,
  realServerOf,
  type WantedObjects,
  type WantedSet,
} from "./objects.ts";
import { type IpvsTransaction, stepText, TABLES } from "./transaction.ts";
import { planLines } from "../../iptables/plan/render.ts";

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
  /** Entry → how often it is wanted. */
  readonly entries: Map<string, number>;
  /** Sets grow and do not shrink. */
  maxElements: number;
}

/** Objects that a change may be about. */
interface Touched {
  /** Keys of virtual servers. */
  readonly keys: ReadonlySet<string>;
  readonly entries: ReadonlySet<Entry>;
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

  private constructor({ base, services }: IpvsPlan) {
    this.#base = base;
    this.#sets = new Map(
      SET_KINDS.map((
        kind,
      ) => [setName(kind, base.family), { entries: new Map(), maxElements: capacityFor(0) }]),
    );
    this.#take(base, services);
    this.#rules = fullSync(this.rulesPlan, NOTHING_HELD, base).store;
  }

  /**
   * A store of the kernel right after a full sync wrote `plan`.
   *
   * @throws {TypeError} if the plan is not one of all Services
   */
  static of(plan: IpvsPlan): IpvsStore {
    if (!plan.all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    return new IpvsStore(plan);
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
    const sets = SET_KINDS.map((kind): WantedSet => {
      const { entries } = this.#set(setName(kind, this.#base.family));
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
    const touched = this.#touched(services);
    const held = this.#held(this.#objectsOf(touched));
    this.#take(plan.base, services);
    const transaction = diffObjects(this.#objectsOf(touched), held, {
      family: plan.base.family,
      excludeCIDRs: [],
      hostIps: [],
      known: touched.keys,
    });
    const owners = Array.from(
      touched.keys,
      (key) => [key, rulesOf(this.#servers.get(key)?.[0]?.server)] as const,
    );
    const rules = this.#rules.change({ base: this.#baseRules, services: new Map(owners) });
    rules.commit();
    transaction.rules = rules.transaction;
    return transaction;
  }

  #touched(services: ReadonlyMap<NamespacedName, ServiceObjects | null>): Touched {
    const keys = new Set<string>();
    const entries = new Set<Entry>();
    const touch = (server: WantedServer): void => {
      keys.add(server.key);
      for (const entry of this.#entriesOf(server)) entries.add(entry);
    };
    for (const [name, after] of services) {
      for (const objects of [this.#services.get(name), after]) {
        for (const server of objects?.servers ?? []) {
          touch(server);
          // A Service that loses a server gives it to the next in rank.
          for (const other of this.#servers.get(server.key) ?? []) touch(other.server);
        }
        for (const entry of objects?.entries ?? []) entries.add(entry);
      }
    }
    return { keys, entries };
  }

  /** The wanted objects among these. */
  #objectsOf({ keys, entries }: Touched): WantedObjects {
    const bySet = Map.groupBy(entries, (entry) => splitEntry(entry)[0]);
    const sets = SET_KINDS.flatMap((kind): WantedSet[] => {
      const name = setName(kind, this.#base.family);
      const all = this.#set(name).entries;
      const own = bySet.get(name)?.map((entry) => splitEntry(entry)[1]);
      return own === undefined ? [] : [{ kind, entries: own.filter((entry) => all.has(entry)), all }];
    });
    return this.#objects(Array.from(keys).flatMap((key) => this.#servers.get(key)?.[0]?.server ?? []), sets);
  }

  #objects(servers: readonly WantedServer[], sets: readonly WantedSet[]): WantedObjects {
    const addresses = sets.find(({ kind }) => kind === "KUBE-IPVS-IPS")?.entries ?? [];
    return { family: this.#base.family, sets, servers, addresses };
  }

  /** A kernel that holds these objects. */
  #held({ family, sets, servers, addresses }: WantedObjects): HeldObjects {
    return {
      addresses: new Set(addresses),
      virtualServers: new Map(Array.from(servers, ({ key, server, realServers }) => {
        return [key, { server, realServers: new Map(realServers.map((real) => [real, realServerOf(real)])) }];
      })),
      sets: new Map(sets.map(({ kind, entries }) => {
        const name = setName(kind, family);
        const definition = setDefinition(kind, family, this.#set(name).maxElements);
        return [name, { name, definition, entries: new Set(entries) }];
      })),
    };
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
      ruleCounts: { nat: head.nat.length, filter: head.filter.length + tail.filter.length },
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

  #take(base: BaseRules, services: ReadonlyMap<NamespacedName, ServiceObjects | null>): void {
    this.#base = base;
    for (const [name, objects] of services) this.#setService(name, objects);
    for (const set of this.#sets.values()) {
      set.maxElements = Math.max(set.maxElements, capacityFor(set.entries.size));
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
    for (const entry of this.#entriesOf(server)) this.#count(entry, by);
  }

  #count(entry: Entry, by: 1 | -1): void {
    const [set, text] = splitEntry(entry);
    const { entries } = this.#set(set);
    const count = (entries.get(text) ?? 0) + by;
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
  return IpvsStore.of(plan).fullSync(NOTHING, ownershipOf(plan)).text;
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
  const { objects, rulesPlan } = IpvsStore.of(plan);
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
