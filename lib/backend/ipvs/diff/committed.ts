/**
 * What the kernel is known to hold after the last successful apply.
 *
 * @module
 */
import type { PerTable } from "../../../netfilter/iptables_jumps.ts";
import type { BaseRules, IpvsPlan } from "../plan/ruleset.ts";
import { capacityFor, SET_KINDS, setName } from "../plan/sets.ts";
import { chainBodies } from "./table_text.ts";
import { ClaimUnion } from "../plan/union.ts";

/** How much of each kind the kernel holds. */
export interface KernelCounts extends PerTable<number> {
  readonly virtualServers: number;
  readonly realServers: number;
  readonly entries: number;
  readonly addresses: number;
}

/** What the kernel is known to hold of one family. It is changed in place as plans are applied. */
export class CommittedIpvs {
  #base: BaseRules;
  readonly union: ClaimUnion;
  /** Set → `maxelem`, where it is larger than usual. Sets grow and do not shrink. */
  readonly #capacities = new Map<string, number>();

  private constructor(base: BaseRules) {
    this.#base = base;
    this.union = new ClaimUnion(setName("KUBE-IPVS-IPS", base.family));
  }

  /**
   * The kernel right after a full sync wrote `plan`.
   *
   * @throws {TypeError} if the plan is not one of all Services
   */
  static of(plan: IpvsPlan): CommittedIpvs {
    if (!plan.all) throw new TypeError("Only a plan of all Services says what the kernel holds");
    const committed = new CommittedIpvs(plan.base);
    committed.apply(plan);
    return committed;
  }

  /** Takes over what `diffIpvs(plan, this)` led to. Call it only after that was written. */
  apply(plan: IpvsPlan): void {
    this.union.apply(plan);
    this.#base = plan.base;
    for (const kind of SET_KINDS) {
      const set = setName(kind, plan.base.family);
      const needed = capacityFor(this.union.setSize(set));
      if (needed > this.capacity(set)) this.#capacities.set(set, needed);
    }
  }

  get base(): BaseRules {
    return this.#base;
  }

  /** How many entries the set takes. */
  capacity(set: string): number {
    return this.#capacities.get(set) ?? capacityFor(0);
  }

  counts(): KernelCounts {
    let entries = 0;
    for (const kind of SET_KINDS) entries += this.union.setSize(setName(kind, this.#base.family));
    const filled = (set: string): boolean => this.union.setSize(set) > 0;
    const rules = (table: "filter" | "nat"): number =>
      [...chainBodies(this.#base, table, filled).values()].reduce((sum, body) => sum + body.length, 0);
    return {
      filter: rules("filter") + this.union.outFilterCount,
      nat: rules("nat"),
      virtualServers: this.union.serverCount,
      realServers: this.union.realServerCount,
      entries,
      addresses: this.union.setSize(setName("KUBE-IPVS-IPS", this.#base.family)),
    };
  }
}
