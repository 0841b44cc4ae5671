/**
 * Drift check: compares the kernel's rules with those that were written: all of them as often as that is
 * cheap, and between the chains that packets cannot do without.
 *
 * @module
 */
import type { Iptables, IptablesVariant } from "../../../kernel/iptables.ts";
import { inTurns } from "../../../kernel/clock.ts";
import type { Logger } from "../../../observe/log.ts";
import { DriftSchedule } from "../../apply/drift_schedule.ts";
import { type Damage, damageOf } from "../../backend.ts";
import { type DriftScope, findDrift, type HeldTables } from "../store/full_sync.ts";
import { chainNames, type IptablesStore } from "../store/store.ts";
import { type OwnRules, readOwnChains, readTables } from "./table_reading.ts";

/**
 * With more chains of Services to list and compare all takes more than 1 % of a processor at the default sync period. The legacy
 * variant reads a whole table whatever it is asked for, so there a check of fewer chains is hardly cheaper.
 */
const LARGE_CHAINS: Readonly<Record<IptablesVariant, number>> = { nft: 4_000, legacy: 40_000 };
/** Most checks in a row that give way to changes; the next one runs to its end. */
const GIVEN_WAY = 3;
/** How many chains a log line names. */
const NAMED = 5;

/** Dependencies of a {@linkcode DriftCheck}. */
export interface DriftCheckOptions {
  readonly iptables: Iptables;
  readonly own: OwnRules;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly nowMs: () => number;
  /** With more chains of Services everything is checked once an hour. Default {@linkcode LARGE_CHAINS}. */
  readonly largeChains?: number | undefined;
}

/** Result of a check. */
export interface LookOutcome {
  readonly damage: false | Damage;
  /** The listed tables. */
  readonly held: HeldTables;
  /** Stale chains of Services in table nat, as far as they were listed. */
  readonly leftover: readonly string[];
}

/** Drift check of one family's rules. */
export class DriftCheck {
  readonly #options: DriftCheckOptions;
  readonly #schedule = new DriftSchedule();
  #looking: AbortController | null = null;
  #givenWay = 0;

  constructor(options: DriftCheckOptions) {
    this.#options = options;
  }

  /** A change waits: aborts a check of everything (a second at 1,000 Services on a busy node), to be repeated. */
  giveWay(): void {
    if (this.#givenWay < GIVEN_WAY) this.#looking?.abort();
  }

  /** Notes a full sync: it compared everything, and wrote the differences. */
  fullySynced(): void {
    this.#schedule.fullySynced();
  }

  /**
   * Finds rules that differ from the committed ones; null: unknown, because a lock is held, or the check gave way.
   *
   * @param scope of a check of everything
   * @throws {ExecError} if the rules cannot be listed
   */
  async look(
    store: IptablesStore,
    { plan, ...scope }: DriftScope,
  ): Promise<LookOutcome | null> {
    const { iptables, own, nowMs } = this.#options;
    const startMs = nowMs();
    const part = this.#schedule.begin(startMs)
      ? "incomplete"
      : await readOwnChains(iptables, own, scope.canaries);
    if (part === null) return null;
    const isAll = part === "incomplete";
    const held = isAll ? await this.#listAll(store) : part;
    if (held === null) return null;
    // Where table mangle cannot be read its canary is not looked for.
    const canaries = scope.canaries.filter((table) => table !== "mangle" || !held.unreadable.has(table));
    const listed = { ...scope, canaries, plan: isAll ? plan : undefined };
    const drift = await this.#unlessChanged((signal) => inTurns(findDrift(store, held, listed), { signal }));
    if (drift === null) return null;
    this.#givenWay = 0;
    const { missing, differing, leftover } = drift;
    this.#report(this.#schedule.sift(differing, isAll));
    const damage = damageOf([...missing, ...differing.keys()]);
    const isLarge = store.chainCount > this.#largeChains;
    this.#schedule.ended({ isAll, isLarge, isDamaged: damage !== false, startMs, endMs: nowMs() });
    return { damage, held, leftover };
  }

  get #largeChains(): number {
    const { iptables: { variant }, largeChains } = this.#options;
    return largeChains ?? LARGE_CHAINS[variant];
  }

  /** Lists all of our tables; null: the check gave way. */
  async #listAll(store: IptablesStore): Promise<HeldTables | null> {
    const { iptables, own } = this.#options;
    const serviceChains = (): string[] =>
      [...store.serviceNames].flatMap((name) => chainNames(store.service(name)!));
    return await this.#unlessChanged((signal) => readTables(iptables, own, { signal, serviceChains }));
  }

  /** Result of `work`; null: the check gave way to a change. */
  async #unlessChanged<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T | null> {
    const { signal } = this.#looking = new AbortController();
    try {
      return await work(signal);
    } catch (error) {
      if (error !== signal.reason) throw error;
      this.#givenWay++;
      this.#schedule.gaveWay();
      return null;
    } finally {
      this.#looking = null;
    }
  }

  /** Warns of chains that iptables prints otherwise: either in other words, or it wrote nothing and reported success. */
  #report(chains: readonly string[]): void {
    if (chains.length === 0) return;
    const { logger, iptables: { family } } = this.#options;
    logger.error(
      "Chains are printed as before although they were written again; they are left as they are until they change",
      "iptables-restore says that all is well and writes nothing, others undo it at once, or both rules are printed alike",
      { family, chains: chains.slice(0, NAMED), count: chains.length },
    );
  }
}
