/**
 * A table of nftables mode on a fake nft. Each transaction is checked as though it were the last that succeeded: no verdict
 * leads to a chain that is empty or missing.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { FullSync, tableLine } from "../../lib/backend/nftables/store/full_sync.ts";
import type { NftStore } from "../../lib/backend/nftables/store/store.ts";
import type { NftablesPlan } from "../../lib/backend/nftables/plan/ruleset.ts";
import type { NftTransaction } from "../../lib/netfilter/nft_objects.ts";
import { type ListedTable, parseTable } from "../../lib/netfilter/nft_listing.ts";
import { FakeNft } from "./fake_nft.ts";
import { endStateOf, TABLE } from "./nftables_rig.ts";

/** Result of {@linkcode NftTable.normalized}. */
export interface NormalizedTable {
  readonly elements: Readonly<Record<string, readonly string[]>>;
  readonly chains: Readonly<Record<string, readonly string[]>>;
  readonly sets: Readonly<Record<string, number>>;
}

/** The table; see the module. */
export class NftTable {
  readonly #kernel = new FakeNft();

  listed(): ListedTable {
    return parseTable(this.#kernel.listed(TABLE));
  }

  /** Applies a transaction; flushed chains are deleted, too. */
  async apply(transaction: NftTransaction): Promise<void> {
    await this.run([
      tableLine(TABLE, ""),
      ...transaction.lines(TABLE),
      ...transaction.flushedChains.map((name) => `delete chain ${TABLE} ${name}`),
    ].join("\n"));
    const { chains, elements } = endStateOf(this.listed());
    const texts = [...Object.values(chains).flat(), ...Object.values(elements).flatMap(Object.values)];
    assertEquals(texts.flatMap(targetsOf).filter((target) => chains[target] === undefined), []);
  }

  /** Runs commands of another program. */
  async run(text: string): Promise<void> {
    await this.#kernel.others(text);
  }

  /** A full sync over the existing table; yields the resulting store. */
  async sync(plan: NftablesPlan): Promise<NftStore> {
    const sync = new FullSync(plan, this.listed());
    await this.apply(sync.base);
    for (const { transaction } of sync.services()) await this.apply(transaction);
    await this.apply(sync.leftover());
    return sync.store;
  }

  /** Everything that packets can reach, sorted; endpoints without their slots, which must be 0 to n - 1. */
  normalized(): NormalizedTable {
    const { elements, chains, hooks, affinitySets } = endStateOf(this.listed());
    const used = new Set<string>();
    const follow = (name: string): void => {
      if (used.has(name)) return;
      used.add(name);
      for (const target of chains[name]?.flatMap(targetsOf) ?? []) follow(target);
    };
    for (const name of Object.keys(hooks)) follow(name);
    for (const value of Object.values(elements).flatMap(Object.values)) targetsOf(value).forEach(follow);
    return {
      elements: Object.fromEntries(
        Object.entries(elements).map(([name, members]) => [name, slotless(name, Object.entries(members))]),
      ),
      chains: Object.fromEntries(Object.entries(chains).filter(([name]) => used.has(name))),
      sets: affinitySets,
    };
  }
}

function targetsOf(text: string): string[] {
  return Array.from(text.matchAll(/(?:goto|jump) ([^ ,"}]+)/g), ([, chain = ""]) => chain);
}

function slotless(container: string, members: readonly (readonly [string, string])[]): readonly string[] {
  if (!container.includes("endpoints-")) return members.map(([key, value]) => `${key} : ${value}`);
  const lists = new Map<string, { slot: number; value: string }[]>();
  for (const [key, value] of members) {
    const [, prefix = "", slot] = /^(.*) \. (\d+)$/.exec(key) ?? [];
    lists.set(prefix, [...lists.get(prefix) ?? [], { slot: Number(slot), value }]);
  }
  return [...lists].map(([prefix, slots]) => {
    assertEquals(slots.map(({ slot }) => slot).sort((a, b) => a - b), slots.map((_, slot) => slot), prefix);
    return `${prefix} : ${slots.map(({ value }) => value).sort().join(", ")}`;
  });
}
