/**
 * The difference between the plan and the store, as objects, and its text for `iptables-restore --noflush`.
 *
 * After each block of the text every packet takes the old path or the new one. New chains come first, while nothing leads to them; then
 * the verdicts of table filter, harmless for addresses that nat serves; then the chains that packets go through; then the shared chains
 * of nat, all at once; then chains that nothing leads to any more go, and last the verdicts of filter that are not wanted any more.
 *
 * @module
 */
import { chainLine, type PerTable, type Table, tableBlock } from "../../../netfilter/iptables_jumps.ts";
import { POSTROUTING_CHAIN, SERVICE_CHAIN_PREFIXES } from "../plan/chains.ts";

/** Chains with all of their rules. */
export interface ChainBodies {
  readonly chains: readonly string[];
  /** `-A CHAIN …` lines with line ends between them. */
  readonly text: string;
  readonly ruleCount: number;
  /** Dispatch rules that jump to these chains, where they may serve before the others are there. */
  readonly dispatch?: () => readonly string[];
}

/** Edits of one table in chains other than those of Services. Rules are complete lines. */
export interface TableEdit {
  /** Static chains to be declared, which empties them. */
  readonly chains: string[];
  /** `-A` lines of these chains. */
  readonly rules: string[];
  /** Shared chains to be written anew. */
  readonly sharedChains: string[];
  readonly sharedRules: string[];
  /** Rules behind those of all Services. */
  readonly sharedTail: string[];
  /** Rules of shared chains to delete (`-D`) and to add (`-I`, `-A`). */
  readonly removed: string[];
  readonly added: string[];
  /** Jumps of built-in chains to delete and to add; those to `KUBE-POSTROUTING` are apart. */
  readonly jumps: string[];
  readonly masqueradeJumps: string[];
}

/** How many rules are written, less the chains that are deleted (the meaning of kube-proxy's `…_last` gauges). */
export type WrittenRules = Record<Table, number>;

const APPEND = /^-[AI] /;

/** All edits of one sync. */
export class IptablesTransaction {
  /** Chains of Services that the kernel does not have yet. */
  readonly created: ChainBodies[] = [];
  /** Chains of Services that the kernel has with other rules. */
  readonly refilled: ChainBodies[] = [];
  /** Chains of nat to delete, callers before callees. */
  readonly deleted: string[] = [];
  readonly edits: PerTable<TableEdit> = { filter: newEdit(), nat: newEdit() };
  /** True: no packet is dispatched to any Service yet, so that the first ones need not wait for the others. */
  isFirst = false;

  get isEmpty(): boolean {
    return this.#isNatEmpty && Object.values(this.edits.filter).every(({ length }) => length === 0);
  }

  get counts(): WrittenRules {
    const counts = { filter: 0, nat: -this.deleted.length };
    for (const { ruleCount } of [...this.created, ...this.refilled]) counts.nat += ruleCount;
    for (const table of ["filter", "nat"] as const) {
      const { rules, sharedRules, sharedTail, added, jumps, masqueradeJumps } = this.edits[table];
      counts[table] += rules.length + sharedRules.length + sharedTail.length;
      for (const line of [...added, ...jumps, ...masqueradeJumps]) if (APPEND.test(line)) counts[table]++;
    }
    return counts;
  }

  /**
   * `*table … COMMIT` blocks, each of which is taken as a whole or not at all. Made as they are asked for: all of them are tens of megabytes.
   *
   * @param mostChains with more chains of Services these are written in blocks of so many
   */
  *blocks(mostChains: number): Generator<string> {
    const { filter } = this.edits;
    const isFew = chainCount([...this.created, ...this.refilled]) + this.deleted.length <= mostChains;
    const filterLines = this.#filterLines();
    // Where nat stays as it is, one block is enough.
    const isFilterAlone = this.#isNatEmpty;
    const removed = isFilterAlone ? [] : filter.removed;
    if (isFilterAlone) filterLines.push(...filter.removed);
    if (isFew) {
      yield* block("filter", filterLines);
      yield* block("nat", this.#wholeNat());
    } else {
      yield* this.#natInPortions(mostChains, filterLines);
    }
    yield* block("filter", removed);
  }

  /** All lines of a table, for one block. */
  lines(table: Table): readonly string[] {
    return table === "nat" ? this.#wholeNat() : [...this.#filterLines(), ...this.edits.filter.removed];
  }

  #filterLines(): string[] {
    const { filter } = this.edits;
    return [
      ...[...filter.chains, ...filter.sharedChains].map(chainLine),
      ...filter.rules,
      ...filter.sharedRules,
      ...filter.sharedTail,
      ...filter.added,
      ...filter.jumps,
    ];
  }

  get #isNatEmpty(): boolean {
    return [this.created, this.refilled, this.deleted, ...Object.values(this.edits.nat)]
      .every(({ length }) => length === 0);
  }

  #wholeNat(): string[] {
    const { nat } = this.edits;
    const bodies = [...this.refilled, ...this.created];
    return [
      ...[...nat.chains, ...nat.sharedChains].map(chainLine),
      ...bodies.flatMap(({ chains }) => chains.map(chainLine)),
      ...this.deleted.map(chainLine),
      ...nat.rules,
      ...nat.sharedRules,
      ...nat.sharedTail,
      ...bodies.map(({ text }) => text).filter((text) => text !== ""),
      ...nat.removed,
      ...nat.added,
      ...this.deleted.map(deletion),
      ...nat.masqueradeJumps,
      ...nat.jumps,
    ];
  }

  *#natInPortions(mostChains: number, filterLines: readonly string[]): Generator<string> {
    const { nat } = this.edits;
    const shared = [
      ...nat.sharedChains.map(chainLine),
      ...[...nat.sharedRules, ...nat.sharedTail, ...nat.removed, ...nat.added],
    ];
    const statics = [...nat.chains.map(chainLine), ...nat.rules, ...nat.masqueradeJumps];
    let created: readonly ChainBodies[] = this.created;
    if (this.isFirst) {
      yield* block("filter", filterLines);
      const first = firstOf(created, mostChains);
      created = this.created.slice(first.length);
      yield* block("nat", [
        ...[...nat.chains, ...nat.sharedChains].map(chainLine),
        ...first.flatMap(({ chains }) => chains.map(chainLine)),
        ...nat.rules,
        ...first.flatMap(({ dispatch, text }) => [...dispatch?.() ?? [], text]),
        ...nat.sharedTail,
        ...nat.masqueradeJumps,
        ...nat.jumps,
      ]);
    } else yield* block("nat", statics);
    yield* portions(created, mostChains);
    if (!this.isFirst) yield* block("filter", filterLines);
    yield* portions(this.refilled, mostChains);
    // Where all are served already there is nothing to switch.
    if (!this.isFirst || created.length > 0) {
      yield* block("nat", this.isFirst ? shared : [...shared, ...nat.jumps]);
    }
    for (let at = 0; at < this.deleted.length; at += mostChains) {
      const chains = this.deleted.slice(at, at + mostChains);
      yield* block("nat", [...chains.map(chainLine), ...chains.map(deletion)]);
    }
  }
}

/** True if masquerading needs the jump, which must work before any DNAT. */
export function isMasqueradeJump(target: string): boolean {
  return target === POSTROUTING_CHAIN;
}

function newEdit(): TableEdit {
  return {
    chains: [],
    rules: [],
    sharedChains: [],
    sharedRules: [],
    sharedTail: [],
    removed: [],
    added: [],
    jumps: [],
    masqueradeJumps: [],
  };
}

function* block(table: Table, lines: readonly string[]): Generator<string> {
  if (lines.length > 0) yield tableBlock(table, lines);
}

function deletion(chain: string): string {
  return `-X ${chain}`;
}

function chainCount(bodies: readonly ChainBodies[]): number {
  return bodies.reduce((sum, { chains }) => sum + chains.length, 0);
}

/** The first bodies, as many as one block takes. */
function firstOf(bodies: readonly ChainBodies[], mostChains: number): readonly ChainBodies[] {
  let [chains, end] = [0, 0];
  while (end < bodies.length && (chains += bodies[end]!.chains.length) <= mostChains) end++;
  return bodies.slice(0, end);
}

/** Bodies that share a block as long as their chains fit into it. */
function* portions(bodies: readonly ChainBodies[], mostChains: number): Generator<string> {
  let some: ChainBodies[] = [];
  let count = 0;
  const take = (): readonly string[] => {
    const lines = some.flatMap(({ chains }) => chains.map(chainLine));
    for (const { text } of some) lines.push(text);
    some = [];
    count = 0;
    return lines;
  };
  for (const whole of bodies) {
    for (const body of whole.chains.length <= mostChains ? [whole] : divided(whole, mostChains)) {
      if (count + body.chains.length > mostChains) yield* block("nat", take());
      some.push(body);
      count += body.chains.length;
    }
  }
  yield* block("nat", take());
}

/** A Service of very many endpoints: chains of endpoints in portions, then chains that choose one, then their callers. */
function divided(body: ChainBodies, mostChains: number): readonly ChainBodies[] {
  const lines = Map.groupBy(body.text.split("\n"), (line) => line.slice(3, line.indexOf(" ", 3)));
  const rank = (chain: string): number =>
    SERVICE_CHAIN_PREFIXES.findIndex((prefix) => chain.startsWith(prefix));
  const ordered = body.chains.toSorted((a, b) => rank(b) - rank(a));
  const parts: ChainBodies[] = [];
  for (let at = 0; at < ordered.length; at += mostChains) {
    const chains = ordered.slice(at, at + mostChains);
    const rules = chains.flatMap((chain) => lines.get(chain) ?? []);
    parts.push({ chains, text: rules.join("\n"), ruleCount: rules.length });
  }
  return parts;
}
