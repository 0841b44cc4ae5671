/**
 * The known rules of one family in the kernel, by Service, in little memory: after a full sync as they were
 * written, and changed with every change since.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { chainOf, groupByChain, type PerTable } from "../../../netfilter/iptables_jumps.ts";
import { serviceChainsInCallOrder } from "../plan/chains.ts";
import type { BaseRules, DispatchRule, IptablesPlan, ServiceRules } from "../plan/ruleset.ts";
import { changeDispatch, staticBodies } from "./dispatch.ts";
import { type ChainBodies, IptablesTransaction } from "./transaction.ts";

/** Chains and rules of one Service in the kernel. */
export interface HeldService {
  /** Its chains, joined by blanks: one text costs half of what a text for each does. */
  readonly chains: string;
  /** Hashes of the rules of each chain, in the same order. */
  readonly hashes: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  readonly ruleCounts: PerTable<number>;
}

/** A change from the stored rules to a plan. */
export interface Change {
  readonly transaction: IptablesTransaction;
  /** Takes the plan over. Call it only after the transaction was written. */
  readonly commit: () => void;
}

/** The names of a Service's chains. */
export function chainNames({ chains }: Pick<HeldService, "chains">): readonly string[] {
  return chains === "" ? [] : chains.split(" ");
}

/** A Service right after these rules were written. */
export function holdRules({ chains, rules, dispatch, ruleCounts }: ServiceRules): HeldService {
  const bodies = groupByChain(rules);
  const hashes = chains.map((chain) => hashText((bodies.get(chain) ?? []).join("\n")));
  return { chains: chains.join(" "), hashes, dispatch, ruleCounts };
}

/** Store of known rules; see the module. */
export class IptablesStore {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, HeldService>();
  readonly #ruleCounts = { filter: 0, nat: 0 };
  #chainCount = 0;

  constructor(base: BaseRules) {
    this.#base = base;
  }

  /** Rules that do not depend on Services. */
  get base(): BaseRules {
    return this.#base;
  }

  /** Rules of all our chains, per table. */
  get ruleCounts(): PerTable<number> {
    const { filter, nat } = this.#base.ruleCounts;
    return { filter: filter + this.#ruleCounts.filter, nat: nat + this.#ruleCounts.nat };
  }

  /** Number of chains that Services have of their own. */
  get chainCount(): number {
    return this.#chainCount;
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  service(name: NamespacedName): HeldService | undefined {
    return this.#services.get(name);
  }

  /** Records the rules of the Service; undefined: it is gone. */
  set(name: NamespacedName, service: HeldService | undefined): void {
    const before = this.#services.get(name);
    for (const table of ["filter", "nat"] as const) {
      this.#ruleCounts[table] += (service?.ruleCounts[table] ?? 0) - (before?.ruleCounts[table] ?? 0);
    }
    this.#chainCount += (service?.hashes.length ?? 0) - (before?.hashes.length ?? 0);
    if (service === undefined) this.#services.delete(name);
    else this.#services.set(name, service);
  }

  /** The change to a plan of some Services. */
  change(plan: Pick<IptablesPlan, "base" | "services">): Change {
    const transaction = new IptablesTransaction();
    for (const table of ["filter", "nat"] as const) {
      const before = staticBodies(this.#base, table);
      const after = staticBodies(plan.base, table);
      // A chain that the plan no longer has is the kubelet's, and stays as it is.
      for (const chain of plan.base.chains[table]) {
        const lines = after.get(chain) ?? [];
        if ((before.get(chain) ?? []).join("\n") === lines.join("\n")) continue;
        transaction.edits[table].chains.push(chain);
        transaction.edits[table].rules.push(...lines);
      }
    }
    const services = new Map<NamespacedName, HeldService | undefined>();
    const gone: string[] = [];
    for (const [name, rules] of plan.services) {
      const before = this.#services.get(name);
      const after = rules === null ? undefined : holdRules(rules);
      services.set(name, after);
      changeDispatch(before?.dispatch ?? [], after?.dispatch ?? [], transaction, plan.base);
      gone.push(...changeChains(before, rules, after, transaction));
    }
    transaction.deleted.push(...serviceChainsInCallOrder(gone));
    this.#changeTail(plan.base, transaction);
    return {
      transaction,
      commit: () => {
        for (const [name, service] of services) this.set(name, service);
        this.#base = plan.base;
      },
    };
  }

  /** Replaces the node-port tail of `KUBE-SERVICES` in nat. */
  #changeTail({ tail: { nat: after } }: BaseRules, { edits: { nat } }: IptablesTransaction): void {
    const before = this.#base.tail.nat;
    if (before.join("\n") === after.join("\n")) return;
    nat.removed.push(...before.map((line) => line.replace("-A", "-D")));
    nat.added.push(...after);
  }
}

/** Adds chains of one Service that changed or appeared. @returns the chains that disappeared */
function changeChains(
  before: HeldService | undefined,
  rules: ServiceRules | null,
  after: HeldService | undefined,
  { created, refilled }: IptablesTransaction,
): readonly string[] {
  const held = new Map(
    before === undefined ? [] : chainNames(before).map((chain, at) => [chain, before.hashes[at]!]),
  );
  const fresh: string[] = [];
  const changed: string[] = [];
  for (const [at, chain] of (rules?.chains ?? []).entries()) {
    const hash = held.get(chain);
    held.delete(chain);
    if (hash === undefined) fresh.push(chain);
    else if (hash !== after?.hashes[at]) changed.push(chain);
  }
  if (rules !== null) {
    if (fresh.length > 0) created.push(bodiesOf(rules, fresh));
    if (changed.length > 0) refilled.push(bodiesOf(rules, changed));
  }
  return [...held.keys()];
}

/** Some chains of a Service with their rules. */
export function bodiesOf(service: ServiceRules, chains: readonly string[]): ChainBodies {
  const dispatch = (): readonly string[] =>
    service.dispatch.flatMap(({ table, chain, rule }) => table === "nat" ? [`-A ${chain} ${rule}`] : []);
  if (chains.length === service.chainCount) {
    let ruleCount = service.ruleCounts.nat;
    for (const { table } of service.dispatch) if (table === "nat") ruleCount--;
    return { chains, text: service.ruleText, ruleCount, dispatch };
  }
  const wanted = new Set(chains);
  const lines = service.rules.filter((line) => wanted.has(chainOf(line)));
  return { chains, text: lines.join("\n"), ruleCount: lines.length, dispatch };
}

/** A hash of 53 bits: two lanes of multiply-and-xor, so that two texts collide with a probability of 2^-53. */
function hashText(text: string): number {
  let high = 0x6d2b79f5, low = 0x1b873593;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    high = Math.imul(high ^ code, 0x9e3779b1);
    low = Math.imul(low ^ code, 0x85ebca6b);
    low = (low << 13) | (low >>> 19);
  }
  high = Math.imul(high, 0xc2b2ae35) ^ (low >>> 15);
  low = Math.imul(low, 0x27d4eb2f) ^ (high >>> 13);
  return ((high >>> 0) & 0x1f_ffff) * 0x1_0000_0000 + (low >>> 0);
}
