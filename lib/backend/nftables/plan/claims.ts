/**
 * Who has a destination (an address or a node port, with protocol and port) in the kernel, so that one that changes hands
 * does so in one transaction. The state gives each to one Service; but one whose new rules the kernel refuses keeps its former
 * ones, and then two may have the same: the first by name.
 *
 * @module
 */
import { Claims } from "../../../model/claims.ts";
import { compareBytes } from "../../../model/names.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { NftablesPlan, ServiceRules } from "./ruleset.ts";

/** None yet; the first by name has what several claim. */
export function claimsByName(): Claims<NamespacedName> {
  return new Claims<NamespacedName>(compareBytes);
}

/** The destinations that a Service wants, each once. */
function claimsOf(rules: ServiceRules | null): ReadonlySet<string> {
  return new Set(rules?.elements.map(({ key }) => key));
}

/** A destination that changes hands between two Services. */
export interface Handover {
  readonly from: NamespacedName;
  readonly to: NamespacedName;
}

/** Who has which destination once a plan is in the kernel. */
export class ClaimsAfter {
  readonly #services: ReadonlyMap<NamespacedName, ServiceRules | null>;
  readonly #before: Claims<NamespacedName>;
  readonly #first = new Map<string, NamespacedName>();

  /**
   * @param services the planned ones, with those that are gone
   * @param before of all Services that are not planned; what is said there of planned ones is ignored
   */
  constructor(services: NftablesPlan["services"], before: Claims<NamespacedName>) {
    this.#services = services;
    this.#before = before;
    for (const [name, rules] of services) {
      for (const { key: destination } of rules?.elements ?? []) {
        const first = this.#first.get(destination);
        if (first === undefined || compareBytes(name, first) < 0) this.#first.set(destination, name);
      }
    }
  }

  /** Null if nobody wants it any more. */
  winner(destination: string): NamespacedName | null {
    const planned = this.#first.get(destination) ?? null;
    if (this.#before.isEmpty) return planned;
    const other = this.#before.of(destination).find((name) => !this.#services.has(name)) ?? null;
    if (planned === null || other === null) return planned ?? other;
    return compareBytes(planned, other) < 0 ? planned : other;
  }

  /** The destinations of one planned Service that others have. */
  lostBy(name: NamespacedName, rules: ServiceRules): readonly string[] {
    // Nearly always all of them: this is asked of every Service at a start.
    if (rules.elements.every(({ key }) => this.winner(key) === name)) return [];
    return [...claimsOf(rules)].filter((destination) => this.winner(destination) !== name);
  }

  /** @param destinations what planned Services wanted before; what they want now is known */
  handovers(destinations: Iterable<string>): readonly Handover[] {
    const handovers: Handover[] = [];
    for (const destination of new Set([...destinations, ...this.#first.keys()])) {
      const from = this.#before.first(destination);
      const to = this.winner(destination);
      if (from !== undefined && to !== null && from !== to) handovers.push({ from, to });
    }
    return handovers;
  }
}

/** The rules without the elements of destinations that others have. */
export function withoutDestinations(rules: ServiceRules, lost: readonly string[]): ServiceRules {
  if (lost.length === 0) return rules;
  const without = new Set(lost);
  return {
    ...rules,
    elements: rules.elements.filter(({ key }) => !without.has(key)),
    lists: rules.lists
      .map((list) => ({
        ...list,
        destinations: list.destinations.filter(({ claim }) => !without.has(claim)),
      }))
      .filter(({ destinations }) => destinations.length > 0),
  };
}
