/**
 * Reads our table, and puts one of another layout out of the way without a gap: a table of our layout by another name is
 * built beside it and let in, then the old one goes.
 *
 * Every step can be the last one before a crash. A table by the other name that packets reach is complete, because they are
 * let in last; one that they do not reach is what a crash left. Two tables that packets reach do no harm: both lead to
 * endpoints, and the first to translate an address is the only one.
 *
 * @module
 */
import type { Nft } from "../../../kernel/nft.ts";
import type { NftFamily } from "../../../netfilter/nft_words.ts";
import type { Refused } from "../../isolate.ts";
import { LAYOUT_SET, NEXT_TABLE_NAME, TABLE_NAME } from "../plan/chains.ts";
import { diffObserved, NO_TABLE } from "../diff/diff_observed.ts";
import { ownerProblem, parseTable } from "../diff/parse.ts";
import type { ServiceText } from "../diff/transactions.ts";
import type { NftablesPlan, ObservedTable } from "../plan/ruleset.ts";
import type { Writer } from "./apply_writer.ts";

/** What there is at the beginning of a full sync. */
export interface FoundTables {
  /** The table by our name; null if there is none. */
  readonly observed: ObservedTable | null;
  /** The table by the other name: packets reach it, they do not, or there is none. */
  readonly next: "live" | "leftover" | "absent";
  /** The table by the other name, in case that is the only one we may write; null if there is none. */
  readonly observedNext: ObservedTable | null;
  /** Why the table by our name is not ours to write; null if it is. */
  readonly problem: string | null;
}

/** A node without our tables. */
export const NO_TABLES: FoundTables = { observed: null, next: "absent", observedNext: null, problem: null };

/** Programs started by {@linkcode readTables} if there is nothing unusual. */
export const READ_COMMANDS = 2;

/**
 * @param entries about how many elements and rules there should be
 * @throws {ExecError} if nft cannot read
 */
export async function readTables(nft: Nft, family: NftFamily, entries: number): Promise<FoundTables> {
  // Side by side, and told in this order.
  const [list, look] = await Promise.allSettled([
    readTable(nft, family, TABLE_NAME, entries),
    nft.hasTable(family, NEXT_TABLE_NAME),
  ]);
  const read = settledValue(list);
  const hasNext = settledValue(look);
  const observedNext = hasNext
    ? (await readTable(nft, family, NEXT_TABLE_NAME, entries))?.observed ?? null
    : null;
  return {
    observed: read?.observed ?? null,
    next: observedNext === null ? "absent" : observedNext.hooks.size > 0 ? "live" : "leftover",
    observedNext,
    problem: read === null ? null : ownerProblem(read.text),
  };
}

/** How often a list is read that looks as if somebody's dry run had made it wrong. */
const MAX_READS = 3;

/** Null if it is not there. */
async function readTable(
  nft: Nft,
  family: NftFamily,
  name: string,
  entries: number,
): Promise<{ readonly text: string; readonly observed: ObservedTable } | null> {
  let before: string | null = null;
  for (let reads = 1;; reads++) {
    const text = await nft.listTable(family, name, entries);
    if (text === null) return null;
    const observed = parseTable(text);
    // What is damaged is so twice.
    if (!isDoubtful(observed) || text === before || reads === MAX_READS) return { text, observed };
    before = text;
  }
}

/**
 * True if rules may have been left out or told twice: Linux 6.18 does so, without a word, while others try rules or chains
 * (`nft -c`). Every chain of ours has rules, and no two rules of a table have one handle.
 */
function isDoubtful({ chains }: ObservedTable): boolean {
  const handles = new Set<number>();
  let ruleCount = 0;
  for (const rules of chains.values()) {
    if (rules.length === 0) return true;
    ruleCount += rules.length;
    for (const { handle } of rules) handles.add(handle);
  }
  return handles.size < ruleCount;
}

function settledValue<T>(outcome: PromiseSettledResult<T>): T {
  if (outcome.status === "rejected") throw outcome.reason;
  return outcome.value;
}

/** True if the table was made in another layout than ours. */
export function isOtherLayout(observed: ObservedTable | null): boolean {
  return observed !== null && !observed.elements.has(LAYOUT_SET);
}

/**
 * Builds the plan in a table by the other name unless one is live already, and removes the table by our name.
 *
 * @param writer for the table by the other name
 * @param remove removes a table by its name
 * @param carry carries clients over from the table by our name
 */
export async function moveAside(
  plan: NftablesPlan,
  { next }: FoundTables,
  writer: Writer,
  remove: (name: string) => Promise<void>,
  carry: (refused: readonly Refused<ServiceText>[]) => Promise<void>,
): Promise<void> {
  if (next === "leftover") await remove(NEXT_TABLE_NAME);
  if (next !== "live") {
    const { base, services } = diffObserved(plan, NO_TABLE).operations;
    await writer.writeBase(base, { comment: plan.base.comment, hooked: false });
    // Before the hooks: of two tables that packets reach, the newer one translates first.
    await carry(await writer.writeServices(services, plan.base));
    // Not together with the removal: a packet on its way could see the new chains before they lead anywhere and the old ones
    // after they are gone.
    await writer.writeHooks(plan.base);
  }
  await remove(TABLE_NAME);
}
