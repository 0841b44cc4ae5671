/**
 * What others did to our rules: compares what iptables prints with what is committed. Only what is ours counts. In the kernel's own
 * chains that is our jumps; KUBE-POSTROUTING, KUBE-MARK-MASQ and KUBE-FORWARD must hold our rules, beside which older kubelets write
 * theirs; the chains of Services and those that they share hold ours and nothing else.
 *
 * Rules of Services are compared by number and with what was printed of them before (`seen_chains`), not with how they were written,
 * because each version prints them in its own way.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { chainHolds, listingText, ruleOf } from "../../../netfilter/iptables_chains.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import type { PrintedRules, PrintedTable } from "../../../netfilter/printed_chains.ts";
import { chainNames, type CommittedRules, type CommittedService } from "./committed.ts";
import { DISPATCH_CHAINS, dispatchChainKey } from "./diff_dispatch.ts";
import { CANARY_CHAIN, type Sentinels } from "./observe_canary.ts";
import type { CheckTurn } from "./observe_turns.ts";
import {
  confirmPrint,
  expectedPrint,
  isMarkedDamaged,
  judgePrint,
  learnPrint,
  leavePrint,
} from "./seen_chains.ts";
import { isServiceChain } from "../plan/chains.ts";

/**
 * A text for iptables-restore that lists what a look is about. It lists chains instead of checking rules, because a check of a jump
 * reads the whole chain it leads to, and because ip6tables-legacy-restore passes every check.
 */
export function lookText(
  wanted: Sentinels,
  { services, shared }: CheckTurn,
  committed: CommittedRules,
  tables: readonly PrintedTable[],
): string {
  function* chains(table: PrintedTable): Generator<string> {
    yield CANARY_CHAIN;
    if (table === "mangle") return;
    yield* wanted.get(table)!.keys();
    if (shared) yield* DISPATCH_CHAINS[table];
    if (table !== "nat") return;
    for (const name of services) yield* chainNames(committed.service(name)!);
  }
  return listingText(tables.map((table) => [table, chains(table)]));
}

/** A chain that is to be written anew. */
export interface DamagedChain {
  readonly table: Table;
  readonly chain: string;
  /** Stands for what was printed of it; NaN: it may be as it should. */
  readonly print: number;
}

/** What is not as it was committed. */
export interface FoundDamage {
  /** Canaries, jumps and chains that are always there; e.g. `nat PREROUTING`. */
  readonly base: readonly string[];
  readonly dispatch: readonly DamagedChain[];
  /** Service → its damaged chains. */
  readonly services: ReadonlyMap<NamespacedName, readonly DamagedChain[]>;
  /** Chains that are printed as before although they were written again, found for the first time; e.g. `nat KUBE-SERVICES`. */
  readonly unmoved: readonly string[];
  /** Chains of table nat with names of Services' that no Service has; known only where everything was printed. */
  readonly leftover: readonly string[];
}

/** What was looked at, and for whom. */
export interface Look {
  readonly printed: PrintedRules;
  readonly wanted: Sentinels;
  /** Those whose chains were printed. */
  readonly services: ReadonlySet<NamespacedName>;
  /** True if the chains that Services share were printed. */
  readonly shared: boolean;
  /** True if every chain of everybody was printed. */
  readonly isWhole: boolean;
  /** Those in which the canary must be. */
  readonly tables: readonly PrintedTable[];
}

/** Compares; what is printed of a chain for the first time is remembered. */
export function findDamage(look: Look, committed: CommittedRules): FoundDamage {
  const { printed, services } = look;
  const unmoved: string[] = [];
  const damaged = new Map<NamespacedName, readonly DamagedChain[]>();
  for (const name of services) {
    const service = committed.service(name);
    const chains = service === undefined ? [] : damagedChains(service, printed, unmoved);
    if (chains.length > 0) damaged.set(name, chains);
  }
  const dispatch = look.shared ? damagedDispatch(printed, committed, unmoved) : [];
  const leftover = look.isWhole ? leftoverChains(printed, committed) : [];
  return { base: damagedBase(look), dispatch, services: damaged, unmoved, leftover };
}

/** Such as a program leaves that did not delete them and said that all is well. */
function leftoverChains(printed: PrintedRules, committed: CommittedRules): string[] {
  const left = new Set<string>();
  for (const chain of printed.chainNames("nat")) if (isServiceChain(chain)) left.add(chain);
  for (const name of committed.serviceNames) {
    for (const chain of chainNames(committed.service(name)!)) left.delete(chain);
  }
  return [...left];
}

function damagedDispatch(
  printed: PrintedRules,
  committed: CommittedRules,
  unmoved: string[],
): DamagedChain[] {
  const damaged: DamagedChain[] = [];
  for (const table of ["nat", "filter"] as const) {
    for (const chain of DISPATCH_CHAINS[table]) {
      const print = printed.print(table, chain);
      const finding = printed.count(table, chain) === committed.dispatchCount(table, chain)
        ? committed.lookAtDispatch(table, chain, print)
        : "damaged";
      if (finding === "damaged") damaged.push({ table, chain, print });
      if (finding === "stays") unmoved.push(dispatchChainKey(table, chain));
    }
  }
  return damaged;
}

function damagedChains(service: CommittedService, printed: PrintedRules, unmoved: string[]): DamagedChain[] {
  const { counts } = service;
  const damaged: DamagedChain[] = [];
  /** Nobody has seen them as they were written. */
  const unseen: (readonly [index: number, chain: string])[] = [];
  for (const [index, chain] of chainNames(service).entries()) {
    const print = printed.print("nat", chain);
    const expected = expectedPrint(service, index, chain);
    const finding = printed.count("nat", chain) === counts[index] ? judgePrint(print, expected) : "damaged";
    if (finding === "known") confirmPrint(service, chain);
    else if (finding === "damaged" || isMarkedDamaged(service, chain)) {
      damaged.push({ table: "nat", chain, print });
    } else if (finding === "stays") {
      unmoved.push(dispatchChainKey("nat", chain));
      leavePrint(service, index, chain, print);
    } else if (expected.other === undefined) unseen.push([index, chain]);
    else learnPrint(service, index, chain, print);
  }
  if (damaged.length === 0) {
    for (const [index, chain] of unseen) learnPrint(service, index, chain, printed.print("nat", chain));
    return damaged;
  }
  // The program may have done nothing and said that all is well.
  return [...damaged, ...unseen.map(([, chain]) => ({ table: "nat" as const, chain, print: Number.NaN }))];
}

function damagedBase({ printed, wanted, tables }: Look): string[] {
  const damaged = tables.filter((table) => printed.count(table, CANARY_CHAIN) === null)
    .map((table) => `${table} ${CANARY_CHAIN}`);
  for (const [table, chains] of wanted) {
    for (const [chain, rules] of chains) {
      const found = printed.lines(table, chain).map((line) => ruleOf(line, chain));
      if (!chainHolds(found, { rules, comparison: "among" })) damaged.push(dispatchChainKey(table, chain));
    }
  }
  return damaged;
}
