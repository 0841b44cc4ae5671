/**
 * Looks at the rules in the kernel, in one start of a program.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import type { Iptables } from "../../../kernel/iptables.ts";
import { isLockBusy } from "../../../kernel/iptables_lock.ts";
import type { IptablesVariant } from "../../../kernel/iptables_version.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed } from "../../../model/state.ts";
import { PrintedReader, type PrintedRules, type PrintedTable } from "../../../netfilter/printed_chains.ts";
import { type Damage, damageOf } from "../../damage.ts";
import { type LookByName, lookByName } from "./apply_by_name.ts";
import type { CommittedRules } from "../diff/committed.ts";
import { dispatchChainKey } from "../diff/diff_dispatch.ts";
import { CANARY_CHAIN, type Sentinels, sentinels } from "../diff/observe_canary.ts";
import { findDamage, type FoundDamage, type Look, lookText } from "../diff/observe_damage.ts";
import { type CheckLimits, type CheckTurn, CheckTurns } from "../diff/observe_turns.ts";
import { markDamaged } from "../diff/seen_chains.ts";

/**
 * At most 0.7 % of a CPU at the default sync period of 30 s, which is the price of repairs within minutes at any size. The legacy variant
 * reads the whole table whatever it is asked for, so there a look at less is hardly cheaper. README.md has what was measured.
 */
export const CHECK_LIMITS: Readonly<Record<IptablesVariant, CheckLimits>> = {
  nft: { savedChains: 4_000, mostSavedChains: 24_000, listedChains: 400, sharedRules: 4_000 },
  legacy: { savedChains: 40_000, mostSavedChains: Infinity, listedChains: 0, sharedRules: Infinity },
};

const NOTHING = { services: [], shared: false };

/** Of a look that cannot tell what is missing. */
const EVERYTHING: FoundDamage = {
  base: ["jumps or chains"],
  dispatch: [],
  services: new Map(),
  unmoved: [],
  leftover: [],
};

/** With more damaged Services than this a full sync, which is staged, is the better repair. */
const MANY_SERVICES = 100;

/** So many looks in a row give way to changes, then one is taken to its end. */
const GIVEN_WAY = 3;

/** Looks at one family's rules, those of Services in turn if there are many. */
export class RuleLook {
  readonly #iptables: Iptables;
  readonly #turns: CheckTurns;
  /** What the last look found damaged: the next one tells whether the repair helped. */
  #again: { readonly services: Iterable<NamespacedName>; readonly shared: boolean } = NOTHING;
  /** Written, and not looked at since. */
  readonly #written = new Set<NamespacedName>();
  readonly #writtenChains: number;
  #whole: AbortController | null = null;
  #givenWay = 0;

  constructor(iptables: Iptables, limits: CheckLimits) {
    this.#iptables = iptables;
    this.#writtenChains = limits.listedChains / 2;
    this.#turns = new CheckTurns(limits);
  }

  /** Somebody waits: a look at everything, which takes a second at 1,000 Services on a busy node, is ended and comes again next time. */
  giveWay(): void {
    if (this.#givenWay < GIVEN_WAY) this.#whole?.abort();
  }

  /** These Services were written: the next looks are about them, too. */
  written(services: Changed): void {
    // After everything was written the next look is at everything.
    if (services === "all") this.#written.clear();
    else if (this.#writtenChains > 0) { for (const name of services) this.#written.add(name); }
  }

  /**
   * Null: nobody can tell, because a lock is held, or it gave way.
   *
   * @param withMangle false: the canary of table mangle could not be set
   * @throws {ExecError} if the rules cannot be listed
   */
  async look(committed: CommittedRules, withMangle: boolean): Promise<FoundDamage | null> {
    const wanted = sentinels(committed.base);
    const tables: readonly PrintedTable[] = withMangle ? ["mangle", "nat", "filter"] : ["nat", "filter"];
    const { services: again, shared } = this.#again;
    const turn = this.#turns.next(committed, {
      services: [...again, ...this.#someWritten(committed)],
      shared,
    });
    const listed = turn.ask === "chains"
      ? await this.#list(wanted, lookText(wanted, turn, committed, tables), tables)
      : "incomplete";
    if (listed === null) return null;
    const look = listed === "incomplete"
      ? await this.#tryReadAll({ wanted, tables }, turn, committed)
      : { printed: listed, services: turn.services, shared: turn.shared, isWhole: false, wanted, tables };
    if (look === "given way") return null;
    const damage = look === null ? EVERYTHING : findDamage(look, committed);
    for (const name of look?.services ?? []) this.#written.delete(name);
    const { base, dispatch, services } = damage;
    this.#again = { services: [...services.keys()], shared: base.length + dispatch.length > 0 };
    return damage;
  }

  /** Those with so many chains that others get a turn as well, the oldest first; at least one. */
  #someWritten(committed: CommittedRules): NamespacedName[] {
    const some: NamespacedName[] = [];
    let left = this.#writtenChains;
    for (const name of this.#written) {
      const service = committed.service(name);
      if (service === undefined) {
        this.#written.delete(name);
        continue;
      }
      if (left <= 0) break;
      left -= service.counts.length;
      some.push(name);
    }
    return some;
  }

  async #tryReadAll(
    look: Pick<LookByName, "wanted" | "tables">,
    { ask }: CheckTurn,
    committed: CommittedRules,
  ): Promise<Look | "given way" | null> {
    const turn = { ask, services: new Set(committed.serviceNames), shared: true };
    const end = this.#whole = new AbortController();
    try {
      const found = await this.#readAll({ ...look, turn }, committed, end.signal);
      this.#givenWay = 0;
      return found;
    } catch (error) {
      this.#turns.notSeen();
      if (error !== end.signal.reason) throw error;
      this.#givenWay++;
      return "given way";
    } finally {
      this.#whole = null;
    }
  }

  /** Null: something shared is missing, and more cannot be told. */
  async #readAll(
    look: Omit<LookByName, "unreadable">,
    committed: CommittedRules,
    signal: AbortSignal,
  ): Promise<Look | null> {
    const { services, shared } = look.turn;
    const reader = new PrintedReader(look.wanted);
    const unreadable = await this.#iptables.saveInto(reader, signal);
    if (!look.tables.some((table) => unreadable.has(table))) {
      const { wanted, tables } = look;
      return { printed: reader.take(), services, shared, isWhole: true, wanted, tables };
    }
    const found = await lookByName(this.#iptables, { ...look, unreadable }, committed);
    return found && { ...found, services, shared, isWhole: false };
  }

  /** What was asked for; `incomplete` if one of the chains is not there; null if somebody holds a lock. */
  async #list(
    wanted: Sentinels,
    text: string,
    tables: readonly PrintedTable[],
  ): Promise<PrintedRules | "incomplete" | null> {
    const reader = new PrintedReader(wanted, { tables, first: CANARY_CHAIN });
    try {
      await this.#iptables.listInto(reader, text);
      return reader.take();
    } catch (error) {
      if (!(error instanceof ExecError) || error.isMissing()) throw error;
      return isLockBusy(error) ? null : "incomplete";
    }
  }
}

/**
 * Makes the next sync of the right Services repair the damage: their chains and the shared ones that are damaged are written anew.
 *
 * @returns false if there is none
 */
export function noteDamage(
  { base, dispatch, services }: FoundDamage,
  committed: CommittedRules,
): false | Damage {
  const chains = [...dispatch, ...[...services.values()].flat()];
  const found = [...base, ...chains.map(({ table, chain }) => dispatchChainKey(table, chain))];
  for (const { table, chain, print } of dispatch) committed.dispatchDamaged(table, chain, print);
  for (const [name, damaged] of services) {
    const service = committed.service(name);
    if (service === undefined) continue;
    for (const { chain, print } of damaged) markDamaged(service, chain, print);
  }
  if (base.length > 0 || services.size > MANY_SERVICES) return damageOf("all", found);
  return damageOf(new Set(services.keys()), found);
}
