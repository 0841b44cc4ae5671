/**
 * What others did to our table: compares what nft listed with what is committed. The table is ours alone; what expires by itself
 * (clients of affinity sets), chains that nothing leads to (any more) and what packets count are no damage.
 *
 * @module
 */
import { hashRules } from "../../netfilter/rules_hash.ts";
import type { CommittedTable } from "./committed.ts";
import type { ObservedTable } from "./ruleset.ts";

/** What is not as it was committed. */
export interface FoundDamage {
  /** Chain → `hashRules` of its rules as they were printed; those that have not the rules that they should. */
  readonly chains: ReadonlyMap<string, number>;
  /** Chains that are gone or hang elsewhere, sets and maps with other elements; their names. */
  readonly others: readonly string[];
}

/** Compares. An empty table is one that is gone. */
export function findDamage(observed: ObservedTable, committed: CommittedTable): FoundDamage {
  const chains = new Map<string, number>();
  const others: string[] = [];
  for (const [name, hash] of committed.chainHashes()) {
    const rules = observed.chains.get(name);
    if (rules === undefined) others.push(name);
    else {
      const print = hashRules(rules.map(({ text }) => text));
      if (print !== hash) chains.set(name, print);
    }
  }
  others.push(...damagedHooks(observed, committed), ...damagedContainers(observed, committed));
  for (const { name, timeoutSeconds } of committed.affinitySets()) {
    if (observed.affinitySets.get(name) !== timeoutSeconds) others.push(name);
  }
  return { chains, others };
}

/** Ours that hang elsewhere, and those of others, which packets come through without any rule of ours that leads there. */
function damagedHooks({ hooks }: ObservedTable, { base: { hookedChains } }: CommittedTable): string[] {
  const own = new Set(hookedChains.map(({ name }) => name));
  return [
    ...hookedChains.filter(({ name, hook }) => hooks.get(name) !== hook).map(({ name }) => name),
    ...[...hooks.keys()].filter((name) => !own.has(name)),
  ];
}

function damagedContainers({ elements }: ObservedTable, committed: CommittedTable): string[] {
  const damaged = new Set<string>();
  const counts = new Map(committed.base.containers.map(({ name }) => [name, 0]));
  for (const { container, key, value } of committed.allElements()) {
    if (elements.get(container)?.get(key) !== value) damaged.add(container);
    counts.set(container, (counts.get(container) ?? 0) + 1);
  }
  for (const [container, count] of counts) {
    if (elements.get(container)?.size !== count) damaged.add(container);
  }
  return [...damaged];
}
