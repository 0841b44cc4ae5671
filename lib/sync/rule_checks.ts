/**
 * Looks after a family's rules: what others did to them is repaired, and no repair is made again and again without success.
 *
 * @module
 */
import type { Damage } from "../backend/damage.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Changed } from "../model/state.ts";
import type { Logger } from "../observe/log.ts";

/** What {@linkcode RuleChecks} needs. */
export interface RuleChecksOptions {
  readonly family: IpFamily;
  /** As `FamilyProxier.checkCanary`. */
  readonly check: () => Promise<false | null | Damage>;
  /** Asks for a sync that writes these again; it is to be told with `syncBegins` and `synced`. */
  readonly repair: (services: Changed) => void;
  readonly log: Logger;
  readonly observer?: DriftObserver | undefined;
}

/** Hears of what others did to the rules. */
export interface DriftObserver {
  /** This is damaged, in the tools' names, and about to be written again. */
  found(family: IpFamily, damaged: readonly string[]): void;
  /** It was written again; `lasts` if it is damaged all the same. */
  repaired(family: IpFamily, lasts: boolean): void;
}

/** Of the wait after repairs that did not help, in checks: an hour at the default sync period. */
const MAX_SKIPPED_CHECKS = 120;

/**
 * One check at a time. After a repair it looks at once whether that helped: what others damage again later is repaired again, but
 * what is still "damaged" then is either in somebody's hands all the time or no damage at all, and writing it at every check would help
 * nobody. Then the checks are resumed after 1, 3, 7, … of them.
 */
export class RuleChecks {
  readonly #options: RuleChecksOptions;
  #isChecking = false;
  /** A repair was asked for and is not done yet. */
  #isRepairing = false;
  /** The sync under way began after that. */
  #isRepairUnderWay = false;
  #hasEnded = false;
  /** What it is about. */
  #repaired: readonly string[] = [];
  #failedRepairs = 0;
  #skipped = 0;
  #lastProblem = "";

  constructor(options: RuleChecksOptions) {
    this.#options = options;
  }

  /** To be called once each sync period. Rejects never: what goes wrong is logged. */
  async periodic(): Promise<void> {
    if (this.#isChecking || this.#isRepairing) return;
    if (this.#skipped > 0) {
      this.#skipped--;
      return;
    }
    const damage = await this.#look();
    if (damage === null) return;
    const { log, family, repair, observer } = this.#options;
    observer?.found(family, damage.found);
    if (this.#failedRepairs === 0) {
      log.warn("Rules were changed or removed by something else, writing them again", {
        family,
        damaged: damage.found,
      });
    }
    this.#isRepairing = true;
    this.#repaired = damage.found;
    repair(this.#failedRepairs === 0 ? damage.services : "all");
  }

  /** A sync begins, which does what was asked for until now. */
  syncBegins(): void {
    this.#isRepairUnderWay = this.#isRepairing;
  }

  /** To be called after each sync that succeeded. Rejects never. */
  async synced(): Promise<void> {
    if (!this.#isRepairUnderWay) return;
    this.#isRepairing = this.#isRepairUnderWay = false;
    const damage = await this.#look();
    const { log, family, observer } = this.#options;
    // What is damaged besides was damaged since: the next check is about that.
    const lasts = damage !== null && isAbout(this.#repaired, damage);
    observer?.repaired(family, lasts);
    if (!lasts) return;
    this.#failedRepairs++;
    this.#skipped = Math.min(2 ** (this.#failedRepairs - 1) - 1, MAX_SKIPPED_CHECKS);
    if (this.#failedRepairs > 1) return;
    log.error(
      "Rules differ from what was written right after they were written; checks of them become rare",
      "something else changes them all the time, or they are printed in a way that kproxy does not know",
      { family, damaged: damage.found },
    );
  }

  /** From now on it looks at nothing, and a failure that the end causes is no problem. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Null: all is well, or nobody can tell. */
  async #look(): Promise<Damage | null> {
    if (this.#hasEnded) return null;
    const { check, log, family } = this.#options;
    this.#isChecking = true;
    try {
      const damage = await check();
      this.#lastProblem = "";
      // Null says nothing of repairs that failed, either.
      if (damage !== false) return damage;
      if (this.#failedRepairs > 0) log.info("Rules stay as they were written again", { family });
      this.#failedRepairs = 0;
    } catch (error) {
      const problem = String(error);
      // Told once, not in every period.
      if (problem !== this.#lastProblem && !this.#hasEnded) {
        log.error("Cannot check whether the rules are still there", error, { family });
      }
      this.#lastProblem = problem;
    } finally {
      this.#isChecking = false;
    }
    return null;
  }
}

/** True if some of it is damaged again; also where nobody says what it was. */
function isAbout(repaired: readonly string[], { found }: Damage): boolean {
  return repaired.length === 0 || found.length === 0 || found.some((one) => repaired.includes(one));
}
