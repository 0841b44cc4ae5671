/**
 * The known rules of one family in the kernel, by Service, in little memory: after a full sync as they were
 * written, and changed with every change since.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { chainOf, groupByChain, type PerTable, type Table } from "../../../netfilter/iptables_jumps.ts";
import { serviceChainsInCallOrder, SERVICES_CHAIN } from "../plan/chains.ts";
import type { BaseRules, DispatchRule, IptablesPlan, ServiceRules } from "../plan/ruleset.ts";
import { type ChainBodies, IptablesTransaction } from "./transaction.ts";

/** Chains and rules of one Service in the kernel. */
export interface HeldService {
  /** Its chains, joined by blanks: one text costs half of what a text for each does. */
  readonly chains: string;
  /** Hashes of the rules of each chain, in the same order. */
  readonly hashes: readonly number[];
  readonly dispatch: readonly DispatchRule[];
  /** Number of rules of its chains. */
  readonly ruleCount: number;
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
export function holdRules({ chains, rules, dispatch, ruleCount }: ServiceRules): HeldService {
  const bodies = groupByChain(rules);
  const hashes = chains.map((chain) => hashText((bodies.get(chain) ?? []).join("\n")));
  return { chains: chains.join(" "), hashes, dispatch, ruleCount };
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
    const { head, tail } = this.#base;
    const count = (table: Table): number => head[table].length + tail[table].length + this.#ruleCounts[table];
    return { filter: count("filter"), nat: count("nat") };
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
    this.#count(this.#services.get(name), -1);
    this.#count(service, 1);
    if (service === undefined) this.#services.delete(name);
    else this.#services.set(name, service);
  }

  #count(service: HeldService | undefined, by: 1 | -1): void {
    if (service === undefined) return;
    this.#chainCount += by * service.hashes.length;
    this.#ruleCounts.nat += by * service.ruleCount;
    for (const { table } of service.dispatch) this.#ruleCounts[table] += by;
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
  transaction: IptablesTransaction,
): readonly string[] {
  const held = new Map(
    before === undefined ? [] : chainNames(before).map((chain, at) => [chain, before.hashes[at]!]),
  );
  if (rules !== null) {
    addChains(rules, transaction, (chain, at) => {
      const hash = held.get(chain);
      held.delete(chain);
      return hash === undefined ? null : hash === after?.hashes[at];
    });
  }
  return [...held.keys()];
}

/**
 * Adds the chains of a Service that are missing in the kernel, or differ.
 *
 * @param isHeld true if the chain holds its rules, null if there is no such chain
 */
export function addChains(
  rules: ServiceRules,
  { created, refilled }: IptablesTransaction,
  isHeld: (chain: string, at: number) => boolean | null,
): void {
  const { chains } = rules;
  const fresh: string[] = [];
  const changed: string[] = [];
  for (const [at, chain] of chains.entries()) {
    const held = isHeld(chain, at);
    if (held === null) fresh.push(chain);
    else if (!held) changed.push(chain);
  }
  for (const [some, bodies] of [[fresh, created], [changed, refilled]] as const) {
    if (some.length > 0) bodies.push(bodiesOf(rules, some, some.length === chains.length));
  }
}

/** Some chains of a Service with their rules. @param isAll true if these are all that it has */
function bodiesOf(service: ServiceRules, chains: readonly string[], isAll: boolean): ChainBodies {
  const dispatch = (): readonly string[] =>
    service.dispatch.flatMap(({ table, chain, rule }) => table === "nat" ? [`-A ${chain} ${rule}`] : []);
  if (isAll) {
    return { chains, text: service.ruleText, ruleCount: service.ruleCount, dispatch };
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

/** Rules by chain of our chains in which no Service has rules; none for empty chains. */
export function staticBodies(
  { dispatch, head, tail }: Pick<BaseRules, "dispatch" | "head" | "tail">,
  table: Table,
): Map<string, string[]> {
  const bodies = groupByChain([...head[table], ...tail[table]]);
  for (const chain of dispatch[table]) bodies.delete(chain);
  return bodies;
}

/** Rules of a Service without chains of its own. */
export function sharedRules(dispatch: readonly DispatchRule[]): ServiceRules {
  return { dispatch, chains: [], rules: [], ruleText: "", ruleCount: 0 };
}

/** True if both lists say the same in the same order. */
function sameDispatch(left: readonly DispatchRule[], right: readonly DispatchRule[]): boolean {
  return left.length === right.length && left.every((rule, at) => textOf(rule) === textOf(right[at]!));
}

const textOf = ({ table, chain, rule }: DispatchRule): string => `${table} ${chain} ${rule}`;

/** The match of a rule, whatever its target: two rules with equal matches must keep their order. */
function matchOf({ table, chain, rule }: DispatchRule): string {
  return `${table} ${chain}${rule.slice(rule.indexOf(" -m ", 3), rule.lastIndexOf(" -j "))}`;
}

/** The group that keeps its order where Services have no chains of their own. */
function orderOf(rule: DispatchRule): string {
  return rule.table === "nat" ? rule.chain : textOf(rule);
}

/** Takes from `rules` as many of each text as `others` has. */
function without(rules: readonly DispatchRule[], others: readonly DispatchRule[]): DispatchRule[] {
  const counts = new Map<string, number>();
  for (const other of others) counts.set(textOf(other), (counts.get(textOf(other)) ?? 0) + 1);
  return rules.filter((rule) => {
    const count = counts.get(textOf(rule)) ?? 0;
    if (count > 0) counts.set(textOf(rule), count - 1);
    return count === 0;
  });
}

/** Adds the edits that change the rules of one Service, as few as keep their order where it matters. */
function changeDispatch(
  before: readonly DispatchRule[],
  after: readonly DispatchRule[],
  { edits }: IptablesTransaction,
  { hasServiceChains }: Pick<BaseRules, "hasServiceChains">,
): void {
  if (sameDispatch(before, after)) return;
  // New rules are not inserted where the plan has them. An old rule for the same packets (an external IP that is a
  // load-balancer IP too) is therefore written again, behind or before the new one as planned.
  const groupOf = (rule: DispatchRule): string => hasServiceChains ? matchOf(rule) : orderOf(rule);
  const groups = new Set(without(after, before).map(groupOf));
  const isTouched = (rule: DispatchRule): boolean => groups.has(groupOf(rule));
  const removed = [...without(before.filter((rule) => !isTouched(rule)), after), ...before.filter(isTouched)];
  // By text, not by number: the tools read the whole chain for either, and a text that is not there is an error.
  for (const { table, chain, rule } of removed) edits[table].removed.push(`-D ${chain} ${rule}`);
  const inserted: string[] = [];
  for (const { table, chain, rule } of after.filter(isTouched)) {
    // Behind this chain's tail nothing would ever be reached. Each -I goes to the top, so the last one written ends up first.
    if (table === "nat" && chain === SERVICES_CHAIN) inserted.unshift(`-I ${chain} ${rule}`);
    else edits[table].added.push(`-A ${chain} ${rule}`);
  }
  edits.nat.added.push(...inserted);
}
