/**
 * What each look is about: everything as often as that is cheap, and between that what everybody depends on.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import type { CommittedRules } from "./committed.ts";

/** What one look asks iptables for. */
export interface CheckTurn {
  /** `whole`: iptables-save; `chains`: a list of those that are wanted. */
  readonly ask: "whole" | "chains";
  /** Whose chains are looked at, beside those that are always. */
  readonly services: ReadonlySet<NamespacedName>;
  /** True if the chains that Services share are looked at. */
  readonly shared: boolean;
}

/** What looks may cost on average. */
export interface CheckLimits {
  /** Chains of Services up to which each look is one at everything; with k times as many, each k-th is. */
  readonly savedChains: number;
  /** With more of them none is: iptables-save takes memory for each. */
  readonly mostSavedChains: number;
  /** How many a look then lists by name, in turn. */
  readonly listedChains: number;
  /** Rules of shared chains up to which each look lists them; with k times as many, each k-th does. */
  readonly sharedRules: number;
}

/** Chooses what each look is about. Canaries, jumps and static rules always are part of it. */
export class CheckTurns {
  readonly #limits: CheckLimits;
  #rest: Iterator<NamespacedName> | undefined;
  #of: CommittedRules | undefined;
  /** Looks since the last one at everything, and since the last one at the shared chains. */
  #sinceWhole = Infinity;
  #sinceShared = Infinity;

  constructor(limits: CheckLimits) {
    this.#limits = limits;
  }

  /**
   * The first one after everything was written is one at everything, which shows how iptables prints it.
   *
   * @param again Services that this look is to be about, too; `shared`: the chains they share as well
   */
  next(
    committed: CommittedRules,
    again: { readonly services: Iterable<NamespacedName>; readonly shared: boolean },
  ): CheckTurn {
    const { savedChains, mostSavedChains, listedChains, sharedRules } = this.#limits;
    if (this.#of !== committed) this.notSeen();
    this.#of = committed;
    this.#sinceWhole++;
    this.#sinceShared++;
    const { chainCount, dispatchRuleCount } = committed;
    if (chainCount <= mostSavedChains && this.#sinceWhole * savedChains >= chainCount) {
      this.#sinceWhole = this.#sinceShared = 0;
      return { ask: "whole", services: new Set(committed.serviceNames), shared: true };
    }
    const services = new Set([...again.services].filter((name) => committed.service(name) !== undefined));
    const inTurn = chainCount <= mostSavedChains ? new Set<string>() : this.#portion(committed, listedChains);
    const shared = again.shared || this.#sinceShared * sharedRules >= dispatchRuleCount;
    if (shared) this.#sinceShared = 0;
    return { ask: "chains", services: services.union(inTurn), shared };
  }

  /** What the last look was about is due again: it came to no end. */
  notSeen(): void {
    this.#rest = undefined;
    this.#sinceWhole = this.#sinceShared = Infinity;
  }

  /** The next Services in turn, as many as have so many chains; at least one unless that is none. */
  #portion(committed: CommittedRules, chains: number): ReadonlySet<NamespacedName> {
    const inTurn = new Set<NamespacedName>();
    for (let left = chains; left > 0 && inTurn.size < committed.serviceCount;) {
      this.#rest ??= committed.serviceNames[Symbol.iterator]();
      const next = this.#rest.next();
      if (next.done === true) {
        this.#rest = undefined;
        continue;
      }
      inTurn.add(next.value);
      left -= Math.max(1, committed.service(next.value)!.counts.length);
    }
    return inTurn;
  }
}
