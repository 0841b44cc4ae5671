/**
 * What the kernel is known to hold after the last successful apply: enough to find out what a plan changes and what others did to it, in
 * little memory.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { groupByChain } from "../../../netfilter/iptables_chains.ts";
import type { PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { dispatchChainKey, goneServices, isDispatchChain, sameDispatch } from "./diff_dispatch.ts";
import type { BaseRules, DispatchRule, IptablesPlan, ServiceRules } from "../plan/ruleset.ts";

/** One Service as it is in the kernel. */
export interface CommittedService {
  /** Names of its chains, joined by blanks: one string costs half of what a string each does. */
  readonly chains: string;
  /** `hashRules` of each chain's rules, in the order of `chains`; NaN: somebody damaged it. */
  readonly hashes: number[];
  /** How many rules each chain has, in the same order. */
  readonly counts: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  readonly ruleCounts: PerTable<number>;
  /** What stands for the text that iptables printed of each chain when it was first looked at; null before. */
  prints: number[] | null;
}

/** The names of a Service's chains. */
export function chainNames({ chains }: CommittedService): readonly string[] {
  return chains === "" ? [] : chains.split(" ");
}

const NO_LINES: readonly string[] = [];

function commitService(rules: ServiceRules): CommittedService {
  const bodies = groupByChain(rules.rules);
  const bodiesOfChains = rules.chains.map((chain) => bodies.get(chain) ?? NO_LINES);
  return {
    chains: rules.chains.join(" "),
    hashes: bodiesOfChains.map(hashRules),
    counts: bodiesOfChains.map(({ length }) => length),
    dispatch: rules.dispatch,
    ruleCounts: rules.ruleCounts,
    prints: null,
  };
}

/** What the kernel is known to hold of one family. It is changed in place as plans are applied. */
export class CommittedRules {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, CommittedService>();
  readonly #serviceRules = { filter: 0, nat: 0 };
  #chainCount = 0;
  /** By `dispatchChainKey`: how many rules Services have in it. */
  readonly #dispatchCounts = new Map<string, number>();
  /** By `dispatchChainKey`: what stands for the text that iptables printed of it since its rules changed last. */
  readonly #dispatchPrints = new Map<string, number>();
  /** By `dispatchChainKey`: shared chains that somebody damaged. */
  readonly #damagedDispatch = new Set<string>();

  private constructor(base: BaseRules) {
    this.#base = base;
  }

  /**
   * The kernel right after a full sync wrote `plan`.
   *
   * @throws {TypeError} if the plan is not one of all Services
   */
  static of(plan: IptablesPlan): CommittedRules {
    if (!plan.all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    const committed = new CommittedRules(plan.base);
    for (const [name, rules] of plan.services) committed.#setService(name, rules);
    return committed;
  }

  /** Takes over what `diffIptables(plan, this)` led to. Call it only after that was written. */
  apply(plan: IptablesPlan): void {
    for (const name of goneServices(plan, this)) this.#setService(name, null);
    for (const [name, rules] of plan.services) this.#setService(name, rules);
    if (plan.base.tail.nat.join("\n") !== this.#base.tail.nat.join("\n")) this.#dispatchPrints.clear();
    for (const key of this.#damagedDispatch) this.#dispatchPrints.delete(key);
    this.#damagedDispatch.clear();
    this.#base = plan.base;
  }

  get base(): BaseRules {
    return this.#base;
  }

  /** Rules of all our chains, per table. */
  get ruleCounts(): PerTable<number> {
    const { ruleCounts } = this.#base;
    return {
      filter: ruleCounts.filter + this.#serviceRules.filter,
      nat: ruleCounts.nat + this.#serviceRules.nat,
    };
  }

  /** How many chains Services have of their own. */
  get chainCount(): number {
    return this.#chainCount;
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  service(name: NamespacedName): CommittedService | undefined {
    return this.#services.get(name);
  }

  /** How many rules a shared chain has. */
  dispatchCount(table: Table, chain: string): number {
    let count = this.#dispatchCounts.get(dispatchChainKey(table, chain)) ?? 0;
    for (const lines of [this.#base.head[table], this.#base.tail[table]]) {
      for (const line of lines) if (line.startsWith(`-A ${chain} `)) count++;
    }
    return count;
  }

  /** How many rules Services have in shared chains. */
  get dispatchRuleCount(): number {
    return this.#dispatchCounts.values().reduce((sum, count) => sum + count, 0);
  }

  /** Compares what iptables prints of a shared chain with the first time; remembers it if this is the first time. */
  dispatchPrintIsKnown(table: Table, chain: string, print: number): boolean {
    const key = dispatchChainKey(table, chain);
    const known = this.#dispatchPrints.get(key);
    if (known === undefined) this.#dispatchPrints.set(key, print);
    return known === undefined || known === print;
  }

  /** Somebody damaged this shared chain: the next apply writes it anew. */
  dispatchDamaged(table: Table, chain: string): void {
    if (!isDispatchChain(table, chain)) throw new TypeError(`${chain} of ${table} is no shared chain`);
    this.#damagedDispatch.add(dispatchChainKey(table, chain));
  }

  isDispatchDamaged(table: Table, chain: string): boolean {
    return this.#damagedDispatch.has(dispatchChainKey(table, chain));
  }

  /** This Service is as it was before: the kernel refuses what it wants now. */
  keep(name: NamespacedName, service: CommittedService): void {
    this.#replace(name, service);
  }

  #setService(name: NamespacedName, rules: ServiceRules | null): void {
    this.#replace(name, rules === null ? undefined : commitService(rules));
  }

  #replace(name: NamespacedName, after: CommittedService | undefined): void {
    const before = this.#services.get(name);
    for (const table of ["filter", "nat"] as const) {
      this.#serviceRules[table] += (after?.ruleCounts[table] ?? 0) - (before?.ruleCounts[table] ?? 0);
    }
    this.#chainCount += (after?.counts.length ?? 0) - (before?.counts.length ?? 0);
    if (!sameDispatch(before?.dispatch ?? [], after?.dispatch ?? [])) {
      this.#countDispatch(before, -1);
      this.#countDispatch(after, 1);
    }
    if (after === undefined) this.#services.delete(name);
    else this.#services.set(name, after);
  }

  #countDispatch(service: CommittedService | undefined, by: 1 | -1): void {
    for (const { table, chain } of service?.dispatch ?? []) {
      const key = dispatchChainKey(table, chain);
      this.#dispatchCounts.set(key, (this.#dispatchCounts.get(key) ?? 0) + by);
      this.#dispatchPrints.delete(key);
    }
  }
}
