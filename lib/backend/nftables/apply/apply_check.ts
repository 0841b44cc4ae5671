/**
 * Looks at the table in the kernel: at all of it as often as that is cheap, and between at a part that costs the same at any size.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Nft } from "../../../kernel/nft.ts";
import { nftFamily } from "../../../netfilter/nft_words.ts";
import { nftComplaints, nftFailureKind } from "../../../kernel/nft_failure.ts";
import { inTurns } from "../../../kernel/turns.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { Changed } from "../../../model/state.ts";
import type { Logger } from "../../../observe/log.ts";
import { type Damage, damageOf } from "../../damage.ts";
import { canaryDamage, canaryOf, CanarySampler, DeepChecks } from "../diff/canary.ts";
import { FAMILY_WORDS, TABLE_NAME } from "../plan/chains.ts";
import type { CommittedTable } from "../diff/committed.ts";
import { ElementDigest, findDamage, type FoundDamage } from "../diff/observe_damage.ts";
import { TableStream } from "../diff/parse.ts";

/** What a look at everything in a small table may take at any time, in milliseconds: more than it does on a machine with much to do. */
const CHEAP_MS = 600;
/** One that takes longer, and each at a large table, may take this part of the time. */
const WHOLE_SHARE = 0.0015;
/** A table printed with more than so many bytes is large: about 5,000 elements, which take 0.6 % of the default sync period. */
const LARGE_BYTES = 300_000;
/**
 * At a smaller one the rules of others may take it, or the machine had no time, or nft hung: so many looks must have been slow, one after
 * another.
 */
const SLOW_LOOKS = 5;
/** How many chains a log line names. */
const NAMED = 5;

/** What a {@linkcode TableLook} needs. */
export interface TableLookOptions {
  readonly nft: Nft;
  readonly family: IpFamily;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
}

/** Looks at one family's table. */
export class TableLook {
  readonly #options: TableLookOptions;
  readonly #sampler = new CanarySampler();
  readonly #deepChecks = new DeepChecks();
  #wholeDueMs = Number.NEGATIVE_INFINITY;
  /** What the last looks at everything took, {@linkcode SLOW_LOOKS} at most, and what the last one has read. */
  #tookMs: readonly number[] = [];
  #printedBytes = 0;
  /** The last look at everything did. */
  #hasFailed = false;
  /** Chains with other rules than they should have, as they were printed by the last look: before the repair. */
  #before: ReadonlyMap<string, number> = new Map();
  /** Chains that this nft prints otherwise than they are written; how. */
  readonly #ways = new Map<string, number>();
  /** Everything was compared and written again since the last look at all. */
  #isWritten = false;

  constructor(options: TableLookOptions) {
    this.#options = options;
  }

  /** These Services were written. */
  written(services: Changed, committed: CommittedTable): void {
    this.#sampler.written(services, committed);
    if (services === "all") this.#isWritten = true;
  }

  /**
   * What is not as it was committed; false if all is, as far as was looked.
   *
   * @throws {ExecError} if nft fails
   */
  async look(committed: CommittedTable): Promise<false | Damage> {
    const { nowMs } = this.#options;
    const startMs = nowMs();
    if (startMs < this.#wholeDueMs) return await this.#lookAtPart(committed);
    let damage: false | Damage;
    try {
      damage = await this.#lookAtAll(committed);
    } catch (error) {
      // Those that do not come to their end must not be all that the machine does from now on; a single one says little.
      const failedMs = nowMs();
      this.#wholeDueMs = failedMs + (this.#hasFailed ? (failedMs - startMs) / WHOLE_SHARE : 0);
      this.#hasFailed = true;
      throw error;
    }
    this.#hasFailed = false;
    const endMs = nowMs();
    const restMs = this.#restMs(endMs - startMs);
    // After damage the next look, which tells whether the repair helped, is at everything, too.
    this.#wholeDueMs = damage === false ? endMs + restMs : endMs;
    return damage;
  }

  /** How long no other look is at everything, as far as this one and those before it tell: a single slow one says little. */
  #restMs(tookMs: number): number {
    this.#tookMs = [...this.#tookMs, tookMs].slice(-SLOW_LOOKS);
    if (this.#printedBytes > LARGE_BYTES) return tookMs / WHOLE_SHARE;
    const usualMs = this.#tookMs.length < SLOW_LOOKS ? 0 : Math.min(...this.#tookMs);
    return usualMs <= CHEAP_MS ? 0 : usualMs / WHOLE_SHARE;
  }

  async #lookAtAll(committed: CommittedTable): Promise<false | Damage> {
    const { nft, family } = this.#options;
    const listed = new TableStream(() => new ElementDigest());
    const { counts } = committed;
    const entries = counts.elements + counts.chains;
    const isThere = await nft.listTableInto(listed, nftFamily(family), TABLE_NAME, entries);
    this.#printedBytes = listed.bytes;
    if (!isThere) return damageOf("all", [`table ${TABLE_NAME}`]);
    const { chains, others } = this.#withoutWays(await inTurns(findDamage(listed.end(), committed)));
    return damageOf("all", [...chains.keys(), ...others]);
  }

  /**
   * Without chains that are printed, right after they were written again, just as before: others would have to do the same to them in
   * the same moment.
   */
  #withoutWays({ chains, others }: FoundDamage): FoundDamage {
    const damaged = new Map<string, number>();
    const news: string[] = [];
    for (const [name, print] of chains) {
      if (this.#ways.get(name) === print) continue;
      if (this.#isWritten && this.#before.get(name) === print) {
        this.#ways.set(name, print);
        news.push(name);
      } else damaged.set(name, print);
    }
    this.#before = damaged;
    this.#isWritten = false;
    if (news.length > 0) {
      this.#options.logger.warn("nft prints rules otherwise than they were written, taken for its way", {
        family: this.#options.family,
        chains: news.slice(0, NAMED),
      });
    }
    return { chains: damaged, others };
  }

  /** One dry run, of which the kernel refuses what it should not if something is not there: see canary.ts. */
  async #lookAtPart(committed: CommittedTable): Promise<false | Damage> {
    const { nft, family, nowMs } = this.#options;
    const { ip } = FAMILY_WORDS[family];
    const startMs = nowMs();
    const deep = this.#deepChecks.isDue(startMs);
    const canary = canaryOf(`${ip} ${TABLE_NAME}`, this.#sampler.next(committed), deep);
    try {
      await nft.check(canary.text);
      return false;
    } catch (error) {
      // Only what nft says of a line says something of our rules.
      const isRejected = error instanceof ExecError && nftFailureKind(error) === "rejected";
      const damage = isRejected ? canaryDamage(canary, nftComplaints(error.stderr)) : undefined;
      if (damage === undefined) throw error;
      if (damage === null) return false;
      // The next look, which tells whether the repair helped, is at everything.
      this.#wholeDueMs = Number.NEGATIVE_INFINITY;
      return damageOf("all", [damage]);
    } finally {
      if (deep) this.#deepChecks.done(startMs, nowMs());
    }
  }
}
