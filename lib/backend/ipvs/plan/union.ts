/**
 * The union of what all Services claim: what must be in the kernel. Changes of a few Services cost what those claim, not
 * what all do.
 *
 * @module
 */
import { compareBytes } from "../../../model/names.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Entry, IpvsPlan, ServiceClaims, WantedServer } from "./ruleset.ts";
import { setOfEntry } from "./sets.ts";

/** A virtual server before and after a change; null: it was not or will not be there. */
export interface ServerPair {
  readonly before: WantedServer | null;
  readonly after: WantedServer | null;
}

/** What the union becomes when the Services of a plan change; its parts that stay are not mentioned. */
export interface UnionChange {
  /** Servers that a changed Service claimed or claims, in the order of the plan. */
  readonly servers: ReadonlyMap<string, ServerPair>;
  readonly addedEntries: readonly Entry[];
  readonly removedEntries: readonly Entry[];
  /** By how many claims an entry's count changes, entries that neither come nor go included. */
  readonly counts: ReadonlyMap<Entry, number>;
}

/** What one Service wants of one server. */
interface Claim {
  readonly name: NamespacedName;
  readonly server: WantedServer;
}

/** Services that are in the union and that a plan of all Services does not mention. */
function goneServices(plan: IpvsPlan, union: ClaimUnion): NamespacedName[] {
  if (!plan.all) return [];
  return [...union.serviceNames].filter((name) => !plan.services.has(name));
}

/** The claims of a change, before and after. */
class Counter {
  readonly counts = new Map<Entry, number>();
  readonly #ipsSet: string;

  constructor(ipsSet: string) {
    this.#ipsSet = ipsSet;
  }

  server(server: WantedServer | null, by: 1 | -1): void {
    if (server === null) return;
    for (const entry of server.entries) this.entry(entry, by);
    if (server.bind) this.entry(`${this.#ipsSet} ${server.server.address}`, by);
  }

  entry(entry: Entry, by: 1 | -1): void {
    this.counts.set(entry, (this.counts.get(entry) ?? 0) + by);
  }
}

/** Changed in place as plans are taken over. */
export class ClaimUnion {
  readonly #services = new Map<NamespacedName, ServiceClaims>();
  /** Server key → who claims it, sorted by rank; a claim by itself where it is only one. */
  readonly #claims = new Map<string, Claim | readonly Claim[]>();
  readonly #entryCounts = new Map<Entry, number>();
  readonly #setSizes = new Map<string, number>();
  #realServerCount = 0;
  #outFilterCount = 0;
  readonly #ipsSet: string;

  /** `ipsSet` is the set of bound addresses, whose entries follow from the servers. */
  constructor(ipsSet: string) {
    this.#ipsSet = ipsSet;
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  /** How many entries the set has. */
  setSize(set: string): number {
    return this.#setSizes.get(set) ?? 0;
  }

  get serverCount(): number {
    return this.#claims.size;
  }

  get realServerCount(): number {
    return this.#realServerCount;
  }

  /** Rules of KUBE-IPVS-OUT-FILTER, in no order that means anything. */
  outFilters(): string[] {
    return [...this.servers()].map(({ outFilter }) => outFilter).filter((rule) => rule !== "");
  }

  /** How many rules the servers have in KUBE-IPVS-OUT-FILTER. */
  get outFilterCount(): number {
    return this.#outFilterCount;
  }

  get entries(): Iterable<Entry> {
    return this.#entryCounts.keys();
  }

  has(entry: Entry): boolean {
    return this.#entryCounts.has(entry);
  }

  /** All virtual servers, in the order in which they came to be. */
  *servers(): Generator<WantedServer, undefined> {
    for (const claims of this.#claims.values()) {
      const [winner] = listOf(claims);
      if (winner !== undefined) yield winner.server;
    }
  }

  /** What taking over `plan` would change. */
  change(plan: IpvsPlan): UnionChange {
    const changed = new Map<NamespacedName, ServiceClaims | null>(plan.services);
    for (const name of goneServices(plan, this)) changed.set(name, null);

    const counter = new Counter(this.#ipsSet);
    const newClaims = new Map<string, Claim[]>();
    const touched = new Set<string>();
    for (const [name, claims] of changed) {
      const before = this.#services.get(name);
      for (const { key } of before?.servers ?? []) touched.add(key);
      for (const entry of before?.entries ?? []) counter.entry(entry, -1);
      for (const server of claims?.servers ?? []) {
        touched.add(server.key);
        const others = newClaims.get(server.key);
        if (others === undefined) newClaims.set(server.key, [{ name, server }]);
        else others.push({ name, server });
      }
      for (const entry of claims?.entries ?? []) counter.entry(entry, 1);
    }

    const servers = new Map<string, ServerPair>();
    for (const key of touched) {
      const claims = listOf(this.#claims.get(key));
      const before = claims[0]?.server ?? null;
      const after = winnerOf(claims.filter(({ name }) => !changed.has(name)), newClaims.get(key));
      servers.set(key, { before, after });
      counter.server(before, -1);
      counter.server(after, 1);
    }
    return { servers, counts: counter.counts, ...this.#appearances(counter.counts) };
  }

  /** Takes over what `change(plan)` said. */
  apply(plan: IpvsPlan): void {
    const { counts, servers } = this.change(plan);
    for (const { before, after } of servers.values()) {
      this.#realServerCount += (after?.realServers.length ?? 0) - (before?.realServers.length ?? 0);
      this.#outFilterCount += outFilters(after) - outFilters(before);
    }
    for (const name of goneServices(plan, this)) this.#setService(name, null);
    for (const [name, claims] of plan.services) this.#setService(name, claims);
    for (const [entry, by] of counts) {
      if (by === 0) continue;
      const before = this.#entryCounts.get(entry) ?? 0;
      const after = before + by;
      if (after === 0) this.#entryCounts.delete(entry);
      else this.#entryCounts.set(entry, after);
      if (before !== 0 && after !== 0) continue;
      const set = setOfEntry(entry);
      this.#setSizes.set(set, this.setSize(set) + (before === 0 ? 1 : -1));
    }
  }

  #appearances(
    counts: ReadonlyMap<Entry, number>,
  ): { readonly addedEntries: readonly Entry[]; readonly removedEntries: readonly Entry[] } {
    const addedEntries: Entry[] = [];
    const removedEntries: Entry[] = [];
    for (const [entry, by] of counts) {
      if (by === 0) continue;
      const before = this.#entryCounts.get(entry) ?? 0;
      if (before === 0) addedEntries.push(entry);
      else if (before + by === 0) removedEntries.push(entry);
    }
    return { addedEntries, removedEntries };
  }

  #setService(name: NamespacedName, claims: ServiceClaims | null): void {
    for (const { key } of this.#services.get(name)?.servers ?? []) {
      this.#setClaims(key, listOf(this.#claims.get(key)).filter((claim) => claim.name !== name));
    }
    for (const server of claims?.servers ?? []) {
      this.#setClaims(server.key, [...listOf(this.#claims.get(server.key)), { name, server }].sort(byRank));
    }
    if (claims === null) this.#services.delete(name);
    else this.#services.set(name, claims);
  }

  #setClaims(key: string, claims: readonly Claim[]): void {
    const [only] = claims;
    if (only === undefined) this.#claims.delete(key);
    else this.#claims.set(key, claims.length === 1 ? only : claims);
  }
}

function outFilters(server: WantedServer | null): number {
  return server === null || server.outFilter === "" ? 0 : 1;
}

function listOf(claims: Claim | readonly Claim[] | undefined): readonly Claim[] {
  return claims === undefined ? [] : "name" in claims ? [claims] : claims;
}

/**
 * An address goes before a node port, as in the other modes, whose rules look for addresses first. All else is decided before
 * it comes here; the name only makes the outcome independent of which came first.
 */
function byRank(left: Claim, right: Claim): number {
  return Number(left.server.isNodePort) - Number(right.server.isNodePort) ||
    compareBytes(left.name, right.name);
}

function winnerOf(staying: readonly Claim[], changed: readonly Claim[] = []): WantedServer | null {
  return [...staying, ...changed].sort(byRank)[0]?.server ?? null;
}
