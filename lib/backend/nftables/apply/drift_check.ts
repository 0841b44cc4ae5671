/**
 * Drift check: compares the table in the kernel with the written one: all of it as often as that is cheap,
 * and between the objects that packets cannot do without.
 *
 * @module
 */
import { describeNftFailure } from "../../../kernel/nft.ts";
import { inTurns } from "../../../kernel/clock.ts";
import { diffObjects, type NftTransaction } from "../../../netfilter/nft_objects.ts";
import type { ListedTable } from "../../../netfilter/nft_listing.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import { DriftSchedule } from "../../apply/drift_schedule.ts";
import { type Damage, damageOf } from "../../backend.ts";
import { TABLE_NAME } from "../plan/chains.ts";
import { findDrift, ListedRest, tableOf } from "../store/full_sync.ts";
import type { NftablesProxierOptions } from "./proxier.ts";
import type { NftStore } from "../store/store.ts";
import { isRejected } from "./table_writer.ts";

/** A table of more elements is large: to list so many takes 0.6 % of the default sync period. */
const LARGE_ELEMENTS = 5_000;
/** Milliseconds that a list of all programs' rules may take at any time; slower lists get this share of the time. */
const SLOW_RULES_MS = 250;
const RULES_SHARE = 0.01;
/** How many chains a log line names. */
const NAMED = 5;

/** Drift check of one family's table. */
export class DriftCheck {
  readonly #options: NftablesProxierOptions;
  readonly #schedule = new DriftSchedule();
  #rulesDueMs = Number.NEGATIVE_INFINITY;

  constructor(options: NftablesProxierOptions) {
    this.#options = options;
  }

  /** Notes a full sync: it compared everything, and wrote the differences. */
  fullySynced(): void {
    this.#schedule.fullySynced();
  }

  /**
   * Finds what differs from the committed table; false if nothing does, as far as was checked.
   *
   * @throws {ExecError} if nft fails
   */
  async look(store: NftStore): Promise<false | Damage> {
    const { nowMs } = this.#options;
    const startMs = nowMs();
    const isAll = this.#schedule.begin(startMs);
    const damage = isAll ? await this.#lookAtAll(store) : await this.#lookAtPart(store);
    const isLarge = store.counts.elements > LARGE_ELEMENTS;
    this.#schedule.ended({ isAll, isLarge, isDamaged: damage !== false, startMs, endMs: nowMs() });
    return damage;
  }

  async #lookAtAll(store: NftStore): Promise<false | Damage> {
    const { nft, family } = this.#options;
    const { elements, chains } = store.counts;
    const listed = await nft.listTable(nftFamily(family), TABLE_NAME, elements + chains);
    if (listed === null) return noTable();
    return this.#damage(await inTurns(findDrift(store, listed)), listed);
  }

  /**
   * Checks base chains, shared chains, sets and maps by a list without elements, and one element of each set and map.
   * The dry run adds nothing: beside one that does, another process that lists rules sees some twice or not at all (Linux 6.18).
   */
  async #lookAtPart(store: NftStore): Promise<false | Damage> {
    const { nft, nowMs, family } = this.#options;
    const startMs = nowMs();
    if (startMs >= this.#rulesDueMs) {
      const listed = await nft.listRules(nftFamily(family), TABLE_NAME);
      const tookMs = nowMs() - startMs;
      this.#rulesDueMs = nowMs() + (tookMs <= SLOW_RULES_MS ? 0 : tookMs / RULES_SHARE);
      if (listed === null) return noTable();
      const base = { ...store.base, elements: [] };
      const damage = this.#damage([diffObjects(base, new ListedRest(listed).take(base))], listed, true);
      if (damage !== false) return damage;
    }
    const table = tableOf(family);
    const lines = [
      ...store.base.chains.map(({ name }) => `flush chain ${table} ${name}\n`),
      ...store.sample().map(({ container, key }) => `delete element ${table} ${container} { ${key} }\n`),
    ];
    try {
      await nft.check(lines.join(""));
      return false;
    } catch (error) {
      // Only an error of nft about a line says something of our rules.
      if (!isRejected(error)) throw error;
      return damageOf([describeNftFailure(error)]);
    }
  }

  /** The damage, without chains that this nft is known to print otherwise than they are written. */
  #damage(
    transactions: readonly NftTransaction[],
    { chains }: ListedTable,
    isPart = false,
  ): false | Damage {
    const found = new Set<string>();
    const differing = new Map<string, string>();
    for (const { deletedElements, containers, addedElements, ...transaction } of transactions) {
      for (const { container } of [...deletedElements, ...addedElements]) found.add(container);
      for (const { name } of containers) found.add(name);
      for (const name of transaction.deletedBaseChains) found.add(name);
      for (const { name, hook } of [...transaction.chains, ...transaction.baseChains]) {
        const printed = chains.get(name);
        const text = printed?.rules.join("\n") ?? "";
        if (printed === undefined || printed.hook !== hook) found.add(name);
        else differing.set(name, text);
      }
    }
    const news = this.#schedule.sift(differing, !isPart);
    if (news.length > 0) {
      this.#options.logger.warn("nft prints rules otherwise than they were written, taken for its way", {
        family: this.#options.family,
        chains: news.slice(0, NAMED),
      });
    }
    return damageOf([...differing.keys(), ...found]);
  }
}

function noTable(): false | Damage {
  return damageOf([`table ${TABLE_NAME}`]);
}
