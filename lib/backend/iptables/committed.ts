/**
 * What the kernel is known to hold after the last successful apply: enough to find out what a plan changes, in little
 * memory.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import { hashRules } from "../../netfilter/rules_hash.ts";
import { goneServices } from "./diff_dispatch.ts";
import type { BaseRules, DispatchRule, IptablesPlan, PerTable, ServiceRules } from "./ruleset.ts";

/** One Service as it is in the kernel. */
export interface CommittedService {
  /** Names of its chains, joined by blanks: one string costs half of what a string each does. */
  readonly chains: string;
  /** `hashRules` of each chain's rules, in the order of `chains`. */
  readonly hashes: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  readonly ruleCounts: PerTable<number>;
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

function commitService(rules: ServiceRules): CommittedService {
  const bodies = groupByChain(rules.rules);
  return {
    chains: rules.chains.join(" "),
    hashes: rules.chains.map((chain) => hashRules(bodies.get(chain) ?? NO_LINES)),
    dispatch: rules.dispatch,
    ruleCounts: rules.ruleCounts,
  };
}

/** What the kernel is known to hold of one family. It is changed in place as plans are applied. */
export class CommittedRules {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, CommittedService>();
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
    for (const [name, rules] of plan.services) committed.#setService(name, rules);
    return committed;
  }

  /** Takes over what `diffIptables(plan, this)` led to. Call it only after that was written. */
  apply(plan: IptablesPlan): void {
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

  #setService(name: NamespacedName, rules: ServiceRules | null): void {
    const before = this.#services.get(name);
    const after = rules === null ? undefined : commitService(rules);
    for (const table of ["filter", "nat"] as const) {
      this.#serviceRules[table] += (after?.ruleCounts[table] ?? 0) - (before?.ruleCounts[table] ?? 0);
    }
    if (after === undefined) this.#services.delete(name);
    else this.#services.set(name, after);
  }
}
