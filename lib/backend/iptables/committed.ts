/**
 * What the kernel is known to hold after the last successful apply: enough to find out what a plan changes and to
 * delete single rules, in little memory.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import {
  applyDispatchEdit,
  dispatchEdits,
  goneServices,
  isDispatchChain,
  ruleOf,
  sameDispatch,
} from "./diff_dispatch.ts";
import type { BaseRules, DispatchRule, IptablesPlan, PerTable, ServiceRules, Table } from "./ruleset.ts";

/** One Service as it is in the kernel. */
export interface CommittedService {
  /** Names of its chains, joined by blanks: one string costs half of what a string each does. */
  readonly chains: string;
  /** `hashLines` of each chain's rules, in the order of `chains`. */
  readonly hashes: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  readonly ruleCounts: PerTable<number>;
}

/** 53 bits that stand for the rules of one chain. */
export function hashLines(lines: readonly string[]): number {
  // Two lanes of multiply-and-xor; two different bodies of one chain meet with a probability of 2^-53.
  let high = 0x6d2b79f5, low = 0x1b873593;
  for (const line of lines) {
    for (let at = 0; at < line.length; at++) {
      const code = line.charCodeAt(at);
      high = Math.imul(high ^ code, 0x9e3779b1);
      low = Math.imul(low ^ code, 0x85ebca6b);
      low = (low << 13) | (low >>> 19);
    }
    high = Math.imul(high ^ 10, 0xc2b2ae35) ^ (low >>> 15);
    low = Math.imul(low ^ 10, 0x27d4eb2f) ^ (high >>> 13);
  }
  return ((high >>> 0) & 0x1f_ffff) * 0x1_0000_0000 + (low >>> 0);
}

/** Chain → its `-A` lines, in the order given. */
export function groupByChain(lines: Iterable<string>): Map<string, string[]> {
  const bodies = new Map<string, string[]>();
  for (const line of lines) {
    const chain = line.slice(3, line.indexOf(" ", 3));
    const body = bodies.get(chain);
    if (body === undefined) bodies.set(chain, [line]);
    else body.push(line);
  }
  return bodies;
}

const NO_LINES: readonly string[] = [];

function commitService(rules: ServiceRules, before: CommittedService | undefined): CommittedService {
  const bodies = groupByChain(rules.rules);
  return {
    chains: rules.chains.join(" "),
    hashes: rules.chains.map((chain) => hashLines(bodies.get(chain) ?? NO_LINES)),
    // The same texts are already held by the order of the shared chain: do not keep a second copy.
    dispatch: before !== undefined && sameDispatch(before.dispatch, rules.dispatch)
      ? before.dispatch
      : rules.dispatch,
    ruleCounts: rules.ruleCounts,
  };
}

/** What the kernel is known to hold of one family. It is changed in place as plans are applied. */
export class CommittedRules {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, CommittedService>();
  /** `table chain` → rules of that shared chain in kernel order, each without `-A CHAIN `. */
  readonly #order = new Map<string, string[]>();
  readonly #serviceRules = { filter: 0, nat: 0 };

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
    for (const [name, rules] of plan.services) {
      if (rules === null) continue;
      committed.#setService(name, rules);
      for (const { table, chain, rule } of rules.dispatch) committed.#mutableOrder(table, chain).push(rule);
    }
    for (const table of ["filter", "nat"] as const) {
      for (const [chain, body] of groupByChain(plan.base.tail[table])) {
        if (!isDispatchChain(table, chain)) continue;
        for (const line of body) committed.#mutableOrder(table, chain).push(ruleOf(line, chain));
      }
    }
    return committed;
  }

  /** Takes over what `diffIptables(plan, this)` led to. Call it only after that was written. */
  apply(plan: IptablesPlan): void {
    for (const edit of dispatchEdits(plan, this)) {
      this.#order.set(
        `${edit.table} ${edit.chain}`,
        applyDispatchEdit(this.order(edit.table, edit.chain), edit),
      );
    }
    for (const name of goneServices(plan, this)) this.#setService(name, null);
    for (const [name, rules] of plan.services) this.#setService(name, rules);
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

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  service(name: NamespacedName): CommittedService | undefined {
    return this.#services.get(name);
  }

  /** The rules of a chain shared by all Services, in kernel order, each without `-A CHAIN `. */
  order(table: Table, chain: string): readonly string[] {
    return this.#order.get(`${table} ${chain}`) ?? NO_LINES;
  }

  #mutableOrder(table: Table, chain: string): string[] {
    const key = `${table} ${chain}`;
    let order = this.#order.get(key);
    if (order === undefined) this.#order.set(key, order = []);
    return order;
  }

  #setService(name: NamespacedName, rules: ServiceRules | null): void {
    const before = this.#services.get(name);
    const after = rules === null ? undefined : commitService(rules, before);
    for (const table of ["filter", "nat"] as const) {
      this.#serviceRules[table] += (after?.ruleCounts[table] ?? 0) - (before?.ruleCounts[table] ?? 0);
    }
    if (after === undefined) this.#services.delete(name);
    else this.#services.set(name, after);
  }
}
