/**
 * Looks at the rules in the kernel, in one start of a program.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Iptables } from "../../kernel/iptables.ts";
import { isLockBusy } from "../../kernel/iptables_lock.ts";
import type { IptablesVariant } from "../../kernel/iptables_version.ts";
import type { NamespacedName } from "../../model/objects.ts";
import { unreadableTables } from "../../netfilter/iptables_save.ts";
import { type Damage, damageOf } from "../damage.ts";
import { type LookByName, lookByName } from "./apply_by_name.ts";
import type { CommittedRules } from "./committed.ts";
import { dispatchChainKey } from "./diff_dispatch.ts";
import { sentinels } from "./observe_canary.ts";
import {
  type CheckLimits,
  CheckTurns,
  findDamage,
  type FoundDamage,
  listingText,
  type Look,
} from "./observe_damage.ts";
import { type PrintedRules, type PrintedTable, readPrinted } from "./observe_printed.ts";

/**
 * About 1 % of a CPU at the default sync period of 30 s. The legacy variant reads the whole table whatever it is asked for, so there
 * chains are not listed by name. README.md has what was measured.
 */
export const CHECK_LIMITS: Readonly<Record<IptablesVariant, CheckLimits>> = {
  nft: { wholeChains: 12_000, listedChains: 4_000 },
  legacy: { wholeChains: 40_000, listedChains: 0 },
};

/** Of a look that cannot tell what is missing. */
const EVERYTHING: FoundDamage = { base: ["jumps or chains"], dispatch: [], services: new Map() };

/** With more damaged Services than this a full sync, which is staged, is the better repair. */
const MANY_SERVICES = 100;

/** Looks at one family's rules, those of Services in turn if there are many. */
export class RuleLook {
  readonly #iptables: Iptables;
  readonly #turns: CheckTurns;
  /** Those that the last look found damaged: the next one tells whether the repair helped. */
  #again: Iterable<NamespacedName> = [];

  constructor(iptables: Iptables, limits: CheckLimits) {
    this.#iptables = iptables;
    this.#turns = new CheckTurns(limits);
  }

  /**
   * Null: nobody can tell, because a lock is held.
   *
   * @param withMangle false: the canary of table mangle could not be set
   * @throws {ExecError} if the rules cannot be listed
   */
  async look(committed: CommittedRules, withMangle: boolean): Promise<FoundDamage | null> {
    const wanted = sentinels(committed.base);
    const tables: readonly PrintedTable[] = withMangle ? ["mangle", "nat", "filter"] : ["nat", "filter"];
    const turn = this.#turns.next(committed, this.#again);
    const listed = turn.ask === "chains"
      ? await this.#list(listingText(wanted, turn, committed, tables), tables)
      : "incomplete";
    if (listed === null) return null;
    const all = { ask: turn.ask, services: new Set(committed.serviceNames) };
    const look = listed === "incomplete"
      ? await this.#readAll({ wanted, turn: all, tables }, committed)
      : { printed: listed, services: turn.services, wanted, tables };
    if (look === null) return EVERYTHING;
    const damage = findDamage(look, committed);
    this.#again = [...damage.services.keys()];
    return damage;
  }

  /** Null: something shared is missing, and more cannot be told. */
  async #readAll(look: Omit<LookByName, "unreadable">, committed: CommittedRules): Promise<Look | null> {
    const { services } = look.turn;
    const saved = await this.#iptables.saveReadable();
    const unreadable = unreadableTables(saved);
    if (!look.tables.some((table) => unreadable.has(table))) {
      return { printed: readPrinted(saved), services, wanted: look.wanted, tables: look.tables };
    }
    const found = await lookByName(this.#iptables, { ...look, unreadable }, committed);
    return found && { ...found, services };
  }

  /** What was asked for; `incomplete` if one of the chains is not there; null if somebody holds a lock. */
  async #list(text: string, tables: readonly PrintedTable[]): Promise<PrintedRules | "incomplete" | null> {
    try {
      return readPrinted(await this.#iptables.restore(text, { counters: false }), tables);
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
  const chains = [...services.values()].flat().map(([, chain]) => `nat ${chain}`);
  const found = [...base, ...dispatch.map(([table, chain]) => dispatchChainKey(table, chain)), ...chains];
  if (base.length > 0 || services.size > MANY_SERVICES) return damageOf("all", found);
  for (const [table, chain] of dispatch) committed.dispatchDamaged(table, chain);
  for (const [name, damaged] of services) {
    const service = committed.service(name);
    for (const [index] of damaged) service?.hashes.splice(index, 1, Number.NaN);
  }
  return damageOf(new Set(services.keys()), found);
}
