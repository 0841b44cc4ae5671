/**
 * Compares the listed tables with the plan: the transaction of a full sync, and the findings of a drift check.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import {
  bodyRules,
  editJumps,
  groupByChain,
  holdsAmongOthers,
  type JumpRule,
  jumpRules,
  jumpsByChain,
  type PerTable,
  ruleOf,
  type Table,
} from "../../../netfilter/iptables_jumps.ts";
import type { IptablesRuleset, SavedChain, SavedTable } from "../../../netfilter/iptables_save.ts";
import { holdsInAnyOrder, holdsLines } from "../../../netfilter/printed_iptables_rule.ts";
import { atOnce, type Steps } from "../../planning.ts";
import {
  CANARY_CHAIN,
  isServiceChain,
  KUBELET_FIREWALL_CHAIN,
  KUBELETS_CHAINS,
  NODE_PORTS_CHAIN,
  serviceChainsInCallOrder,
  SERVICES_CHAIN,
} from "../plan/chains.ts";
import type { BaseRules, IptablesPlan, ServiceRules } from "../plan/ruleset.ts";
import { addChains, chainNames, type HeldService, holdRules, IptablesStore, staticBodies } from "./store.ts";
import { IptablesTransaction, isMasqueradeJump } from "./transaction.ts";

const TABLES: readonly Table[] = ["nat", "filter"];
const NO_CHAINS: SavedTable = new Map();

/** Tables of one family that iptables listed. */
export interface HeldTables {
  readonly tables: IptablesRuleset;
  /**
   * Tables that iptables cannot read as a whole, because nft added rules to them that it cannot print: of
   * filter and nat the chains that were asked for by name are in `tables`.
   */
  readonly unreadable: ReadonlySet<string>;
  /** Built-in chains of which only our jumps are known, each once and not in their order. Default: none. */
  readonly jumpsOnly?: PerTable<ReadonlySet<string>>;
}

/** Options of a full sync beside the plan. */
export interface FullSyncOptions {
  readonly family: IpFamily;
  /** Store of the last sync of this process. */
  readonly former?: IptablesStore | undefined;
  /** Services whose rules are refused: they keep their rules of `former`, if all of their chains are still there. */
  readonly refused?: ReadonlySet<NamespacedName>;
}

/** Transaction of a full sync, and the kernel's content after it. */
export interface FullSync {
  readonly transaction: IptablesTransaction;
  readonly store: IptablesStore;
}

/** A kernel without any rule. */
export const NOTHING_HELD: HeldTables = { tables: new Map(), unreadable: new Set() };

/** As {@linkcode fullSyncInSteps}, at once. */
export function fullSync(plan: IptablesPlan, held: HeldTables, options: FullSyncOptions): FullSync {
  return atOnce(fullSyncInSteps(plan, held, options));
}

/**
 * The transaction that leads from any state of the kernel to exactly the plan: nothing of ours that is not planned stays, nothing that is
 * not ours is touched. A step after each Service.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function* fullSyncInSteps(
  plan: IptablesPlan,
  held: HeldTables,
  { family, former, refused = new Set() }: FullSyncOptions,
): Steps<FullSync> {
  if (!plan.all) throw new TypeError("A full sync needs a plan of all Services");
  const nat = held.tables.get("nat") ?? NO_CHAINS;
  const transaction = new IptablesTransaction();
  const store = new IptablesStore(plan.base);
  for (const [name, rules] of plan.services) {
    if (refused.has(name)) {
      const kept = former?.service(name);
      if (kept === undefined || !chainNames(kept).every((chain) => nat.has(chain))) continue;
      store.set(name, kept);
    } else if (rules !== null) {
      store.set(name, holdRules(rules));
      compareService(rules, nat, family, transaction);
    }
    yield;
  }
  transaction.deleted.push(...serviceChainsInCallOrder(leftoverChains(store, nat).toSorted()));
  transaction.isFirst = !held.unreadable.has("nat") && !nat.has(SERVICES_CHAIN) && !nat.has(NODE_PORTS_CHAIN);
  const shared = sharedChains(store);
  for (const table of TABLES) {
    const chains = held.tables.get(table) ?? NO_CHAINS;
    const edit = transaction.edits[table];
    const bodies = staticBodies(plan.base, table);
    for (const chain of plan.base.chains[table]) {
      const body = shared.get(chainKey(table, chain));
      if (body === undefined) {
        const lines = bodies.get(chain) ?? [];
        if (holdsLines(chains.get(chain), lines, family)) continue;
        edit.chains.push(chain);
        edit.rules.push(...lines);
      } else if (!holdsShared(chains.get(chain), body, family)) {
        edit.sharedChains.push(chain);
        for (const rule of body.rules) edit.sharedRules.push(`-A ${chain} ${rule}`);
        for (const rule of body.tail) edit.sharedTail.push(`-A ${chain} ${rule}`);
      }
    }
    edit.chains.push(...plan.base.ensured[table].filter((chain) => !chains.has(chain)));
    for (const { line, target } of jumpLines(plan.base.jumps, table, chains, held.jumpsOnly?.[table])) {
      (isMasqueradeJump(target) ? edit.masqueradeJumps : edit.jumps).push(line);
    }
  }
  return { transaction, store };
}

function compareService(
  rules: ServiceRules,
  nat: SavedTable,
  family: IpFamily,
  transaction: IptablesTransaction,
): void {
  let bodies: Map<string, string[]> | undefined;
  addChains(rules, transaction, (chain) => {
    const found = nat.get(chain);
    if (found === undefined) return null;
    bodies ??= groupByChain(rules.rules);
    return holdsLines(found, bodies.get(chain) ?? [], family);
  });
}

/** A chain that Services share; rules without `-A CHAIN `. */
interface SharedBody {
  readonly rules: string[];
  /** Rules behind all others. */
  readonly tail: string[];
}

/** All shared chains, by {@linkcode chainKey}. */
function sharedChains(store: IptablesStore): ReadonlyMap<string, SharedBody> {
  const { dispatch, head, tail } = store.base;
  const bodies = new Map<string, SharedBody>();
  for (const table of TABLES) {
    for (const chain of dispatch[table]) {
      const own = (lines: readonly string[]): string[] =>
        lines.filter((line) => line.startsWith(`-A ${chain} `)).map((line) => ruleOf(line, chain));
      bodies.set(chainKey(table, chain), { rules: own(head[table]), tail: own(tail[table]) });
    }
  }
  for (const name of store.serviceNames) {
    for (const { table, chain, rule } of store.service(name)!.dispatch) {
      bodies.get(chainKey(table, chain))!.rules.push(rule);
    }
  }
  return bodies;
}

/** True if the chain holds these rules, in any order: each change puts them where there is room. */
function holdsShared(found: SavedChain | undefined, { rules, tail }: SharedBody, family: IpFamily): boolean {
  if (found === undefined) return false;
  const end = found.rules.length - tail.length;
  return holdsInAnyOrder(found.rules.slice(0, Math.max(0, end)), rules, family) &&
    holdsInAnyOrder(found.rules.slice(Math.max(0, end)), tail, family);
}

/** Edits that bring the jumps of one table in order. */
function* jumpLines(
  all: readonly JumpRule[],
  table: Table,
  chains: SavedTable,
  jumpsOnly: ReadonlySet<string> | undefined,
): Generator<{ readonly line: string; readonly target: string }> {
  // The kubelet puts its jump where it likes, so ours are not put behind it unless it is the first.
  const isInPlace = ({ target }: JumpRule, at: number): boolean =>
    target !== KUBELET_FIREWALL_CHAIN || at === 0;
  for (const [chain, jumps] of jumpsByChain(all, table)) {
    const targets = new Map(jumps.map(({ args, target }) => [args, target]));
    const there = chains.get(chain)?.rules ?? [];
    const [last, first] = [jumps.filter(({ isLast }) => isLast), jumps.filter(({ isLast }) => !isLast)];
    const isThere = ({ args }: JumpRule): boolean => there.includes(args);
    const areUnplaced = jumpsOnly?.has(chain) === true;
    if (areUnplaced && jumps.every(isThere)) continue;
    // Where one is missing the others, whose places are unknown, are made anew with it.
    const { surplus, missing } = areUnplaced
      ? {
        surplus: first.filter(isThere).map(({ args }) => args),
        missing: first.map(({ args }) => ({ place: 1, args })),
      }
      : editJumps(there, first, isInPlace);
    for (const args of surplus) yield { line: `-D ${chain} ${args}`, target: targets.get(args)! };
    for (const { place, args } of missing) {
      yield { line: `-I ${chain} ${place === 1 ? "" : `${place} `}${args}`, target: targets.get(args)! };
    }
    for (const { args, target } of last) {
      if (!there.includes(args)) yield { line: `-A ${chain} ${args}`, target };
    }
  }
}

/** Differences from the written rules; chains with their tables, e.g. `nat KUBE-SERVICES`. */
export interface Drift {
  /** Canaries, jumps, and chains that are gone or lack required rules. */
  readonly missing: readonly string[];
  /** Chains with other rules than they should have → those rules, as they were printed. */
  readonly differing: Map<string, string>;
  /** Stale chains of Services in table nat; none where not all was listed. */
  readonly leftover: readonly string[];
}

/** Scope of a drift check. */
export interface DriftScope {
  readonly family: IpFamily;
  /** Tables in which the canary must be. */
  readonly canaries: readonly string[];
  /** Plans these Services anew, where their chains were listed, too. */
  readonly plan?: ((names: ReadonlySet<NamespacedName>) => Pick<IptablesPlan, "services">) | undefined;
}

/** Services that are compared before other work may go first. */
const SERVICES_AT_ONCE = 100;

/**
 * Compares the store with the listed tables. Only our rules count: in built-in chains our jumps; in chains that
 * older kubelets fill, too, at least our rules; all others hold ours and nothing else. Of a Service that has
 * changed since it was written, or keeps its former rules because the new ones are refused, no chain may be empty.
 */
export function* findDrift(store: IptablesStore, held: HeldTables, scope: DriftScope): Steps<Drift> {
  const missing = scope.canaries.filter((table) => held.tables.get(table)?.has(CANARY_CHAIN) !== true)
    .map((table) => chainKey(table, CANARY_CHAIN));
  const differing = new Map<string, string>();
  const check: ChainCheck = (table, chain, isRight) => {
    const found = held.tables.get(table)?.get(chain);
    if (found === undefined) missing.push(chainKey(table, chain));
    else if (!isRight(found)) differing.set(chainKey(table, chain), [...found.rules, ""].join("\n"));
  };
  const shared = sharedChains(store);
  for (const table of TABLES) {
    for (const chain of store.base.dispatch[table]) {
      const body = shared.get(chainKey(table, chain))!;
      check(table, chain, (found) => holdsShared(found, body, scope.family));
      yield;
    }
    const bodies = staticBodies(store.base, table);
    const own = ownChains(store.base, table);
    for (const chain of own) {
      check(table, chain, (found) => holdsLines(found, bodies.get(chain) ?? [], scope.family));
    }
    for (const [chain, rules] of baseChains(store, table)) {
      if (own.includes(chain)) continue;
      const found = held.tables.get(table)?.get(chain)?.rules ?? [];
      if (!holdsAmongOthers(found, rules)) missing.push(chainKey(table, chain));
    }
  }
  if (scope.plan === undefined) return { missing, differing, leftover: [] };
  yield* compareServices(store, scope.family, scope.plan, check);
  const leftover = held.unreadable.has("nat")
    ? []
    : leftoverChains(store, held.tables.get("nat") ?? NO_CHAINS);
  return { missing, differing, leftover };
}

/** Chains in which neither Services nor kubelets have rules. */
function ownChains({ chains, dispatch }: BaseRules, table: Table): readonly string[] {
  return chains[table].filter((chain) => !dispatch[table].includes(chain) && !KUBELETS_CHAINS.has(chain));
}

/** Records the chain unless it exists and is right. */
type ChainCheck = (table: Table, chain: string, isRight: (found: SavedChain) => boolean) => void;

function* compareServices(
  store: IptablesStore,
  family: IpFamily,
  plan: NonNullable<DriftScope["plan"]>,
  check: ChainCheck,
): Steps<void> {
  const names = [...store.serviceNames];
  for (let at = 0; at < names.length; at += SERVICES_AT_ONCE) {
    for (const [name, rules] of plan(new Set(names.slice(at, at + SERVICES_AT_ONCE))).services) {
      const service = store.service(name)!;
      if (rules === null || !isHeld(service, rules)) {
        // Its rules are not the planned ones, or not yet; but none of its chains is empty.
        for (const chain of chainNames(service)) check("nat", chain, ({ rules }) => rules.length > 0);
        continue;
      }
      for (const [chain, lines] of groupByChain(rules.rules)) {
        check("nat", chain, (found) => holdsLines(found, lines, family));
      }
    }
    yield;
  }
}

/** The jumps, and the rules of the chains without rules of Services, canonical; e.g. `KUBE-FORWARD` → its rules. */
function* baseChains(
  { base }: Pick<IptablesPlan, "base">,
  table: Table,
): Generator<readonly [chain: string, rules: readonly string[]]> {
  yield* bodyRules(staticBodies(base, table));
  yield* jumpRules(base.jumps, table);
}

function isHeld({ chains, hashes }: HeldService, rules: ServiceRules): boolean {
  const now = holdRules(rules);
  return now.chains === chains && now.hashes.every((hash, at) => hash === hashes[at]);
}

/** Stale chains of Services: no Service has them. */
function leftoverChains(store: IptablesStore, nat: SavedTable): readonly string[] {
  if (!store.base.hasServiceChains) return [];
  const left = new Set([...nat.keys()].filter(isServiceChain));
  for (const name of left.size === 0 ? [] : store.serviceNames) {
    for (const chain of chainNames(store.service(name)!)) left.delete(chain);
  }
  // A copy: a part of a text keeps the whole of it in memory.
  return JSON.parse(JSON.stringify([...left]));
}

function chainKey(table: string, chain: string): string {
  return `${table} ${chain}`;
}
