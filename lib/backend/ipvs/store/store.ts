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
import { sameTexts } from "../../../model/service_port.ts";
import type { PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import { sameTreatment, type SavedVirtualServer } from "../../../netfilter/ipvs.ts";
import { OUT_FILTER_CHAIN } from "../plan/base_rules.ts";
import type { BaseRules, Entry, IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setDefinition, setName } from "../plan/sets.ts";
import {
  asHeld,
  diffObjects,
  type HeldObjects,
  type HeldSet,
  TABLES,
  type WantedObjects,
  type WantedRule,
} from "./objects.ts";
import type { IpvsTransaction } from "../../../netfilter/ipvs_transaction.ts";

/** How much of each kind the kernel holds. */
export interface KernelCounts extends PerTable<number> {
  readonly virtualServers: number;
  readonly realServers: number;
  readonly entries: number;
  readonly addresses: number;
}

/** What leads from what is held to a plan. */
export interface Change {
  readonly transaction: IpvsTransaction;
  /** Takes it over. Call it only after the transaction was written. */
  readonly commit: () => void;
}

/** A virtual server before and after a change; null: it was not or will not be there. */
interface ServerPair {
  readonly before: WantedServer | null;
  readonly after: WantedServer | null;
}

/** What becomes of what is held. */
interface Difference {
  readonly services: ReadonlyMap<NamespacedName, ServiceObjects | null>;
  /** Servers that a changed Service wanted or wants, by key. */
  readonly servers: ReadonlyMap<string, ServerPair>;
  /** By how much more often an entry is wanted. */
  readonly entries: ReadonlyMap<Entry, number>;
}

/** A Service that wants a virtual server. */
interface ServerOwner {
  readonly name: NamespacedName;
  readonly server: WantedServer;
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
    store.#take(plan.base, store.#difference(plan));
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
    const rules = (table: Table): number => rulesOf(this.#base, table, this.#isFilled).length;
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
    const entries = Map.groupBy(this.#entries.keys(), setOf);
    const texts = (set: string): readonly string[] => entries.get(set)?.map(textOf) ?? [];
    const outFilters: WantedRule[] = [];
    for (const { outFilter } of this.servers()) {
      if (outFilter !== "") outFilters.push({ chain: OUT_FILTER_CHAIN, rule: outFilter });
    }
    return {
      family,
      sets: SET_KINDS.map((kind) => {
        const own = texts(setName(kind, family));
        return { kind, entries: own, all: () => own };
      }),
      chains,
      rules: {
        nat: rulesOf(this.#base, "nat", this.#isFilled),
        filter: rulesOf(this.#base, "filter", this.#isFilled, outFilters),
      },
      outFilters: [],
      jumps,
      servers: this.servers(),
      addresses: texts(setName("KUBE-IPVS-IPS", family)),
    };
  }

  /** What leads to a plan of some Services, or of all of them. */
  change(plan: IpvsPlan): Change {
    const difference = this.#difference(plan);
    const servers: WantedServer[] = [];
    const virtualServers = new Map<string, SavedVirtualServer>();
    for (const [key, { before, after }] of difference.servers) {
      if (before !== null && after !== null && isSame(before, after)) continue;
      if (before !== null) virtualServers.set(key, asHeld(before));
      if (after !== null) servers.push(after);
    }
    const pairs = [...difference.servers.values()];
    const outFilters = (server: WantedServer | null): readonly string[] =>
      server === null || server.outFilter === "" ? [] : [server.outFilter];
    const { wanted, held, ips } = this.#changedSets(plan.base, difference.entries);
    // Addresses that stay tell whose their servers are.
    const bound = pairs.flatMap(({ before }) => before?.bind === true ? [before.server.address] : []);
    const transaction = diffObjects({
      ...wanted,
      addresses: new Set(ips.added).union(new Set(bound).difference(ips.removed)),
      outFilters: pairs.flatMap(({ after }) => outFilters(after)),
      jumps: [],
      servers,
    }, {
      ...held,
      addresses: ips.removed.union(new Set(bound)),
      outFilters: pairs.flatMap(({ before }) => outFilters(before)),
      virtualServers,
    }, {
      family: plan.base.family,
      excludeCIDRs: [],
      hostIps: [],
      known: new Set(virtualServers.keys()),
    });
    return { transaction, commit: () => this.#take(plan.base, difference) };
  }

  /** Sets, and chains in which a rule comes or goes with the first or last entry of its set, or with the options. */
  #changedSets(
    base: BaseRules,
    counts: ReadonlyMap<Entry, number>,
  ): {
    readonly wanted: Pick<WantedObjects, "family" | "sets" | "chains" | "rules">;
    readonly held: Pick<HeldObjects, "sets" | "tables">;
    /** Addresses that come to the device and go from it. */
    readonly ips: { readonly added: readonly string[]; readonly removed: ReadonlySet<string> };
  } {
    const { family } = base;
    const added = new Map<string, string[]>();
    const removed = new Map<string, string[]>();
    for (const [entry, by] of counts) {
      const before = this.#entries.get(entry) ?? 0;
      if (by === 0 || (before !== 0 && before + by !== 0)) continue;
      const of = before === 0 ? added : removed;
      const set = setOf(entry);
      const texts = of.get(set);
      if (texts === undefined) of.set(set, [textOf(entry)]);
      else texts.push(textOf(entry));
    }
    const ips = setName("KUBE-IPVS-IPS", family);
    const kinds = SET_KINDS.filter((kind) =>
      added.has(setName(kind, family)) || removed.has(setName(kind, family))
    );
    const isFilled = (set: string): boolean =>
      this.setSize(set) + (added.get(set)?.length ?? 0) - (removed.get(set)?.length ?? 0) > 0;
    const chains = (table: Table): readonly string[] =>
      base.chains[table].filter((chain) => chain !== OUT_FILTER_CHAIN);
    return {
      wanted: {
        family,
        sets: kinds.map((kind) => {
          const set = setName(kind, family);
          const entries = added.get(set) ?? [];
          return { kind, entries, all: () => this.#entriesAfter(set, entries, removed.get(set)) };
        }),
        chains: { nat: chains("nat"), filter: chains("filter") },
        rules: { nat: rulesOf(base, "nat", isFilled), filter: rulesOf(base, "filter", isFilled) },
      },
      held: {
        sets: new Map(kinds.map((kind) => {
          const set = setName(kind, family);
          return [
            set,
            this.#heldSet(set, setDefinition(kind, family, this.#capacity(set)), removed.get(set)),
          ];
        })),
        tables: new Map(TABLES.map((table) => [table, this.#heldChains(table)])),
      },
      ips: { added: added.get(ips) ?? [], removed: new Set(removed.get(ips)) },
    };
  }

  #heldSet(name: string, definition: HeldSet["definition"], entries: readonly string[] = []): HeldSet {
    return { name, definition, entries: new Set(entries), size: this.setSize(name) };
  }

  #heldChains(table: Table): ReadonlyMap<string, { readonly rules: readonly string[] }> {
    const rules = Map.groupBy(rulesOf(this.#base, table, this.#isFilled), ({ chain }) => chain);
    return new Map(
      this.#base.chains[table].map((chain) => [chain, {
        rules: rules.get(chain)?.map(({ rule }) => rule) ?? [],
      }]),
    );
  }

  *#entriesAfter(set: string, added: readonly string[], removed: readonly string[] = []): Generator<string> {
    const gone = new Set(removed);
    for (const entry of this.#entries.keys()) {
      if (setOf(entry) === set && !gone.has(textOf(entry))) yield textOf(entry);
    }
    yield* added;
  }

  readonly #isFilled = (set: string): boolean => this.setSize(set) > 0;

  #capacity(set: string): number {
    return this.#capacities.get(set) ?? capacityFor(0);
  }

  #difference(plan: IpvsPlan): Difference {
    const services = new Map(plan.services);
    if (plan.all) {
      for (const name of this.#services.keys()) if (!plan.services.has(name)) services.set(name, null);
    }
    const ips = setName("KUBE-IPVS-IPS", plan.base.family);
    const entries = new Map<Entry, number>();
    const count = (entry: Entry, by: 1 | -1): void => {
      entries.set(entry, (entries.get(entry) ?? 0) + by);
    };
    const countServer = (server: WantedServer | null, by: 1 | -1): void => {
      for (const entry of server?.entries ?? []) count(entry, by);
      if (server?.bind === true) count(`${ips} ${server.server.address}`, by);
    };
    const owners = new Map<string, ServerOwner[]>();
    for (const [name, objects] of services) {
      const before = this.#services.get(name);
      for (const { key } of before?.servers ?? []) if (!owners.has(key)) owners.set(key, []);
      for (const entry of before?.entries ?? []) count(entry, -1);
      for (const server of objects?.servers ?? []) {
        const others = owners.get(server.key);
        if (others === undefined) owners.set(server.key, [{ name, server }]);
        else others.push({ name, server });
      }
      for (const entry of objects?.entries ?? []) count(entry, 1);
    }
    const servers = new Map<string, ServerPair>();
    for (const [key, changed] of owners) {
      const held = this.#servers.get(key) ?? [];
      const staying = held.filter(({ name }) => !services.has(name));
      const before = held[0]?.server ?? null;
      const after = [...staying, ...changed].sort(byRank)[0]?.server ?? null;
      servers.set(key, { before, after });
      countServer(before, -1);
      countServer(after, 1);
    }
    return { services, servers, entries };
  }

  #take(base: BaseRules, { services, servers, entries }: Difference): void {
    this.#base = base;
    for (const { before, after } of servers.values()) {
      this.#realServers += (after?.realServers.length ?? 0) - (before?.realServers.length ?? 0);
      this.#outFilters += countOutFilter(after) - countOutFilter(before);
    }
    for (const [name, objects] of services) this.#setService(name, objects);
    for (const [entry, by] of entries) {
      const before = this.#entries.get(entry) ?? 0;
      if (by === 0) continue;
      if (before + by === 0) this.#entries.delete(entry);
      else this.#entries.set(entry, before + by);
      if (before !== 0 && before + by !== 0) continue;
      const set = setOf(entry);
      this.#sizes.set(set, this.setSize(set) + (before === 0 ? 1 : -1));
    }
    for (const [set, size] of this.#sizes) {
      if (capacityFor(size) > this.#capacity(set)) this.#capacities.set(set, capacityFor(size));
    }
  }

  #setService(name: NamespacedName, objects: ServiceObjects | null): void {
    for (const { key } of this.#services.get(name)?.servers ?? []) {
      const others = this.#servers.get(key)?.filter((owner) => owner.name !== name) ?? [];
      if (others.length === 0) this.#servers.delete(key);
      else this.#servers.set(key, others);
    }
    for (const server of objects?.servers ?? []) {
      const others = this.#servers.get(server.key);
      const owner: ServerOwner = { name, server };
      this.#servers.set(server.key, others === undefined ? [owner] : [...others, owner].sort(byRank));
    }
    if (objects === null) this.#services.delete(name);
    else this.#services.set(name, objects);
  }
}

/** The rules of a table while certain sets have entries, those of Services in their place. */
function rulesOf(
  { head, tail }: BaseRules,
  table: Table,
  isFilled: (set: string) => boolean,
  ofServices: readonly WantedRule[] = [],
): readonly WantedRule[] {
  const isThere = ({ needs }: { readonly needs: string }): boolean => needs === "" || isFilled(needs);
  return [...head[table].filter(isThere), ...ofServices, ...tail[table].filter(isThere)];
}

function isSame(before: WantedServer, after: WantedServer): boolean {
  return sameTreatment(before.server, after.server) && sameTexts(before.realServers, after.realServers);
}

function countOutFilter(server: WantedServer | null): number {
  return server === null || server.outFilter === "" ? 0 : 1;
}

/** The set of an entry. */
function setOf(entry: Entry): string {
  return entry.slice(0, entry.indexOf(" "));
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
