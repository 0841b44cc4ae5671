/**
 * From what the kernel holds to what a plan wants, in as few lines as possible.
 *
 * @module
 */
import { groupByChain } from "../../../netfilter/iptables_chains.ts";
import { chainLine, type Table } from "../../../netfilter/iptables_jumps.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { chainNames, type CommittedRules, type CommittedService } from "./committed.ts";
import { damagedDispatch, dispatchEdits, goneServices, staticBodies } from "./diff_dispatch.ts";
import { isMarkedDamaged } from "./seen_chains.ts";
import type { BaseRules, IptablesPlan, Operations, ServiceRules, Transaction } from "../plan/ruleset.ts";

/** The parts of one table's transaction, in the order in which they are written. */
class TransactionDraft {
  /** Chains of endpoints that the kernel does not have yet. */
  readonly fresh: ChainBody[] = [];
  /** New chains that choose among endpoints. */
  readonly choosing: ChainBody[] = [];
  /** Chains of endpoints that are not wanted any more. */
  readonly gone: string[] = [];
  readonly chainLines: string[] = [];
  readonly rules: string[] = [];
  readonly deletions: string[] = [];
  readonly additions: string[] = [];
  readonly removedChains: string[] = [];

  rewrite(chain: string, body: readonly string[]): void {
    this.chainLines.push(chainLine(chain));
    for (const line of body) this.rules.push(line);
  }

  remove(chain: string): void {
    (isEndpointChain(chain) ? this.gone : this.removedChains).push(chain);
  }

  /**
   * Takes out, if they are more than so many, the chains of endpoints that are new, with the new chains that choose among them, and
   * those that go: to be written before and after the rest, when nothing leads to them yet, or any more.
   */
  divide(most: number): { readonly before: Transaction[]; readonly after: Transaction[] } {
    const isMuch = this.fresh.length > most;
    const chosen = this.choosing.splice(0, isMuch ? Infinity : 0);
    const before = [
      ...portions(this.fresh.splice(0, isMuch ? Infinity : 0), most, () => 1),
      ...portions(chosen, most, ({ body }) => body.length),
    ].map((some): Transaction => ({
      table: "nat",
      lines: [...some.map(({ chain }) => chainLine(chain)), ...some.flatMap(({ body }) => body)],
    }));
    for (const { chain, body } of [...this.choosing, ...this.fresh]) this.rewrite(chain, body);
    const after = portions(this.gone.splice(most), most, () => 1).map((some): Transaction => ({
      table: "nat",
      lines: [...some.map(chainLine), ...some.map((chain) => `-X ${chain}`)],
    }));
    this.removedChains.push(...this.gone);
    return { before, after };
  }

  lines(): string[] {
    return [
      ...this.chainLines,
      ...this.removedChains.map(chainLine),
      ...this.rules,
      ...this.deletions,
      ...this.additions,
      ...this.removedChains.map((chain) => `-X ${chain}`),
    ];
  }
}

function isEndpointChain(chain: string): boolean {
  return chain.startsWith("KUBE-SEP-");
}

interface ChainBody {
  readonly chain: string;
  readonly body: readonly string[];
}

/** In order, as many together as do not weigh more than `most`, but at least one. */
function portions<T>(
  list: readonly T[],
  most: number,
  weigh: (item: T) => number,
): readonly (readonly T[])[] {
  const found: T[][] = [];
  let weight = Infinity;
  for (const item of list) {
    weight += weigh(item);
    if (weight > most) {
      found.push([]);
      weight = weigh(item);
    }
    found.at(-1)?.push(item);
  }
  return found;
}

/**
 * What must be written so that a kernel holding `committed` holds `plan` too. Chains that do not change are not
 * mentioned; nothing changed yields no transaction. Each transaction is all or nothing, and at no moment between two of
 * them does traffic find less than before or after: a verdict of filter about a Service that nat serves is
 * harmless, so those appear before nat changes and disappear after it.
 *
 * @param chainsPerTransaction with more new chains of endpoints, or chains that go, these have transactions of their own
 */
export function diffIptables(
  plan: IptablesPlan,
  committed: CommittedRules,
  chainsPerTransaction: number = Infinity,
): Operations {
  const nat = new TransactionDraft();
  const filter = new TransactionDraft();
  const filterAfter: string[] = [];
  diffBase(plan.base, committed.base, "nat", nat);
  diffBase(plan.base, committed.base, "filter", filter);
  for (const name of goneServices(plan, committed)) diffChains(null, committed.service(name), nat);
  for (const [name, rules] of plan.services) diffChains(rules, committed.service(name), nat);
  for (const { table, chain, lines } of damagedDispatch(plan, committed)) {
    (table === "nat" ? nat : filter).rewrite(chain, lines);
  }
  for (const edit of dispatchEdits(plan, committed)) {
    const draft = edit.table === "nat" ? nat : filter;
    const deletions = edit.table === "nat" ? nat.deletions : filterAfter;
    // By text, not by number: the tools read the whole chain for either, and a text that is not there is an error.
    for (const rule of edit.removed) deletions.push(`-D ${edit.chain} ${rule}`);
    // Each -I goes to the top, so the last one written ends up first.
    for (const rule of edit.inserted.toReversed()) draft.additions.push(`-I ${edit.chain} ${rule}`);
    for (const rule of edit.appended) draft.additions.push(`-A ${edit.chain} ${rule}`);
  }
  const { before, after } = nat.divide(chainsPerTransaction);
  const natLines = nat.lines();
  const filterLines = filter.lines();
  const transactions: Transaction[] = natLines.length > 0
    ? [
      { table: "filter", lines: filterLines },
      ...before,
      { table: "nat", lines: natLines },
      ...after,
      { table: "filter", lines: filterAfter },
    ]
    : [{ table: "filter", lines: [...filterLines, ...filterAfter] }];
  return { transactions: transactions.filter(({ lines }) => lines.length > 0) };
}

/** Static chains that changed. One that the plan no longer fills is kubelet's, and stays as it is. */
function diffBase(base: BaseRules, before: BaseRules, table: Table, draft: TransactionDraft): void {
  const bodiesBefore = staticBodies(before, table);
  for (const [chain, body] of staticBodies(base, table)) {
    if (bodiesBefore.get(chain)?.join("\n") !== body.join("\n")) draft.rewrite(chain, body);
  }
}

/** Chains of one Service that changed, appeared or disappeared. */
function diffChains(
  rules: ServiceRules | null,
  before: CommittedService | undefined,
  draft: TransactionDraft,
): void {
  const hashesBefore = new Map<string, number>();
  if (before !== undefined) {
    chainNames(before).forEach((chain, index) => {
      hashesBefore.set(chain, isMarkedDamaged(before, chain) ? Number.NaN : before.hashes[index]!);
    });
  }
  const bodies = groupByChain(rules?.rules ?? []);
  for (const chain of rules?.chains ?? []) {
    const body = bodies.get(chain)!;
    const hashBefore = hashesBefore.get(chain);
    hashesBefore.delete(chain);
    if (hashBefore === undefined && isEndpointChain(chain)) draft.fresh.push({ chain, body });
    else if (hashBefore === undefined && /^KUBE-SV[CL]-/.test(chain)) draft.choosing.push({ chain, body });
    else if (hashBefore !== hashRules(body)) draft.rewrite(chain, body);
  }
  for (const chain of hashesBefore.keys()) draft.remove(chain);
}
