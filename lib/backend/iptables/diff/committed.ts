/**
 * What the kernel is known to hold after the last successful apply: enough to find out what a plan changes and what others did to it, in
 * little memory.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { PerTable, Table } from "../../../netfilter/iptables_jumps.ts";
import { hashBodies } from "./chain_bodies.ts";
import { dispatchChainKey, goneServices, isDispatchChain, sameDispatch } from "./diff_dispatch.ts";
import { inheritPrints, type PrintFinding, type PrintMemory } from "./seen_chains.ts";
import { SharedPrints } from "./shared_prints.ts";
import { SERVICES_CHAIN } from "../plan/chains.ts";
import type { BaseRules, DispatchRule, IptablesPlan, ServiceRules } from "../plan/ruleset.ts";

/** One Service as it is in the kernel. Names of chains are joined, because one string costs half of what a string each does. */
export interface CommittedService extends PrintMemory {
  /** How many rules each chain has, in the same order. */
  readonly counts: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  readonly ruleCounts: PerTable<number>;
}

/** The names of a Service's chains. */
export function chainNames({ chains }: CommittedService): readonly string[] {
  return chains === "" ? [] : chains.split(" ");
}

function commitService(rules: ServiceRules, before: CommittedService | undefined): CommittedService {
  const { chains, ruleText, dispatch, ruleCounts } = rules;
  const { hashes, counts } = hashBodies(ruleText, chains);
  return {
    chains: chains.join(" "),
    hashes,
    counts,
    dispatch,
    ruleCounts,
    ...inheritPrints(chains, hashes, before),
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
  readonly #dispatchPrints = new SharedPrints();

  private constructor(base: BaseRules) {
    this.#base = base;
  }

  /**
   * The kernel right after a full sync wrote `plan`.
   *
   * @param former of the sync before it: how iptables printed what it wrote
   * @throws {TypeError} if the plan is not one of all Services
   */
  static of(plan: IptablesPlan, former?: CommittedRules): CommittedRules {
    if (!plan.all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    const committed = new CommittedRules(plan.base);
    for (const [name, rules] of plan.services) committed.#setService(name, rules, former?.service(name));
    if (former !== undefined) committed.#dispatchPrints.inherit(former.#dispatchPrints);
    return committed;
  }

  /** Takes over what `diffIptables(plan, this)` led to. Call it only after that was written. */
  apply(plan: IptablesPlan): void {
    for (const name of goneServices(plan, this)) this.#setService(name, null);
    for (const [name, rules] of plan.services) this.#setService(name, rules, this.#services.get(name));
    if (plan.base.tail.nat.join("\n") !== this.#base.tail.nat.join("\n")) {
      this.#dispatchPrints.touched(dispatchChainKey("nat", SERVICES_CHAIN));
    }
    this.#dispatchPrints.written();
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

  get serviceCount(): number {
    return this.#services.size;
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  service(name: NamespacedName): CommittedService | undefined {
    return this.#services.get(name);
  }

  /** How many rules a shared chain has. */
  dispatchCount(table: Table, chain: string): number {
    return (this.#dispatchCounts.get(dispatchChainKey(table, chain)) ?? 0) +
      this.#ownRules(table, chain).length;
  }

  /** Rules of a shared chain that no Service has. */
  #ownRules(table: Table, chain: string): string[] {
    const { head, tail } = this.#base;
    return [...head[table], ...tail[table]].filter((line) => line.startsWith(`-A ${chain} `));
  }

  /** How many rules Services have in shared chains. */
  get dispatchRuleCount(): number {
    return this.#dispatchCounts.values().reduce((sum, count) => sum + count, 0);
  }

  /** Judges what iptables prints of a shared chain with as many rules as it should have, and remembers it. */
  lookAtDispatch(table: Table, chain: string, print: number): PrintFinding {
    return this.#dispatchPrints.look(dispatchChainKey(table, chain), this.#ownRules(table, chain), print);
  }

  /** Somebody damaged this shared chain, which is printed so: the next apply writes it anew. */
  dispatchDamaged(table: Table, chain: string, print: number): void {
    if (!isDispatchChain(table, chain)) throw new TypeError(`${chain} of ${table} is no shared chain`);
    this.#dispatchPrints.markDamaged(dispatchChainKey(table, chain), print);
  }

  isDispatchDamaged(table: Table, chain: string): boolean {
    return this.#dispatchPrints.isMarkedDamaged(dispatchChainKey(table, chain));
  }

  /** This Service is as it was before: the kernel refuses what it wants now. */
  keep(name: NamespacedName, service: CommittedService): void {
    this.#replace(name, service);
  }

  #setService(name: NamespacedName, rules: ServiceRules | null, before?: CommittedService): void {
    this.#replace(name, rules === null ? undefined : commitService(rules, before));
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
    for (const { table, chain, rule } of service?.dispatch ?? []) {
      const key = dispatchChainKey(table, chain);
      this.#dispatchCounts.set(key, (this.#dispatchCounts.get(key) ?? 0) + by);
      this.#dispatchPrints.changed(key, rule, by);
    }
  }
}
