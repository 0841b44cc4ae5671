/**
 * Compares the table of nftables mode with a plan, by what a full sync would write.
 *
 * @module
 */
import { diffObserved } from "../../backend/nftables/diff/diff_observed.ts";
import { isAffinitySet } from "../../backend/nftables/plan/chains.ts";
import type { Element, NftablesPlan, ObservedTable } from "../../backend/nftables/plan/ruleset.ts";
import type { NamespacedName } from "../../model/objects.ts";
import type { NftTable } from "../../netfilter/nft_tables.ts";
import { nftFamily, NftWords } from "../../netfilter/nft_words.ts";
import { type NftBase, takeBase } from "../../netfilter/parse_nft_spec.ts";
import type { Difference, DifferenceList } from "./difference.ts";
import { chainDifference } from "./rule_lists.ts";

/** Tells `list` of everything that differs. */
export function compareNftables(plan: NftablesPlan, live: NftTable, list: DifferenceList): void {
  const label = `nftables ${live.label ?? `${nftFamily(live.family)} ${live.name}`}`;
  const observed = observedOf(live, plan);
  const { operations: { base, services, leftover } } = diffObserved(plan, observed);
  const rulesOf = (name: string): readonly string[] | undefined =>
    observed.chains.get(name)?.map(({ text }) => text);
  for (const { name } of base.containers) list.add(null, goneDifference(`${label} ${name}`, "set or map"));
  for (const { name, rules } of [...base.chains, ...base.sharedChains]) {
    list.add(null, chainDifference({ place: `${label} ${name}`, wanted: rules, found: rulesOf(name) }));
  }
  for (const { name, rules, hook } of base.hookedChains) {
    const place = `${label} ${name}`;
    const found = observed.hooks.get(name);
    if (rulesOf(name) !== undefined && found !== hook) {
      const cause = "the chain hangs elsewhere";
      list.add(null, {
        kind: "changed",
        place,
        cause,
        wanted: [hook],
        found: found === undefined ? [] : [found],
      });
    }
    list.add(null, chainDifference({ place, wanted: rules, found: rulesOf(name) }));
  }
  for (const one of elementDifferences(label, base.deletedElements, base.addedElements)) list.add(null, one);
  for (const service of services) {
    for (const { name, timeoutSeconds } of service.writtenSets) {
      const found = observed.affinitySets.get(name);
      const place = `${label} ${name}`;
      list.add(
        service.name,
        found === undefined ? goneDifference(place, "set") : {
          kind: "changed",
          place,
          cause: "clients stick to their endpoint for another time",
          wanted: [`timeout ${timeoutSeconds}s`],
          found: [`timeout ${found}s`],
        },
      );
    }
    for (const { name, rules } of service.writtenChains) {
      list.add(
        service.name,
        chainDifference({ place: `${label} ${name}`, wanted: rules, found: rulesOf(name) }),
      );
    }
    for (const one of elementDifferences(label, service.deletedElements, service.addedElements)) {
      list.add(service.name, one);
    }
  }
  compareLeftover(plan, label, observed, leftover, list);
}

function goneDifference(place: string, what: string): Difference {
  return { kind: "missing", place, cause: `the ${what} is gone`, wanted: [], found: [] };
}

function elementText({ key, value }: Element): string {
  return value === "" ? key : `${key} : ${value}`;
}

/** An element that is written again with another value is changed; comments alone are for people. */
function elementDifferences(
  label: string,
  deleted: readonly Element[],
  added: readonly Element[],
): readonly Difference[] {
  const idOf = ({ container, key }: Element): string => `${container} ${key}`;
  const former = new Map(deleted.map((element) => [idOf(element), element]));
  const differences = added.flatMap((element): Difference[] => {
    const place = `${label} ${element.container}`;
    const before = former.get(idOf(element));
    former.delete(idOf(element));
    const wanted = [elementText(element)];
    if (before === undefined) {
      return [{ kind: "missing", place, cause: "an element is missing", wanted, found: [] }];
    }
    if (before.value === element.value) return [];
    const cause = "an element leads elsewhere";
    return [{ kind: "changed", place, cause, wanted, found: [elementText(before)] }];
  });
  const surplus = [...former.values()].map((element): Difference => ({
    kind: "surplus",
    place: `${label} ${element.container}`,
    cause: "an element is too much",
    wanted: [],
    found: [elementText(element)],
  }));
  return [...differences, ...surplus];
}

/** What no Service wants: too much of one that has the address, or left by one that is gone. */
function compareLeftover(
  plan: NftablesPlan,
  label: string,
  observed: ObservedTable,
  leftover: ReturnType<typeof diffObserved>["operations"]["leftover"],
  list: DifferenceList,
): void {
  const textsOf = (name: string): readonly string[] =>
    observed.chains.get(name)?.map(({ text }) => text) ?? [];
  for (const name of leftover.foreignHooks) {
    list.add(null, {
      kind: "surplus",
      place: `${label} ${name}`,
      cause: "somebody hooked a chain into our table",
      wanted: [],
      found: [observed.hooks.get(name) ?? "", ...textsOf(name)],
    });
  }
  if (leftover.deletedElements.length > 0) {
    const owners = ownersOf(plan);
    for (const element of leftover.deletedElements) {
      const owner = owners.get(element.key) ?? owners.get(element.key.replace(/ \. \d+$/, "")) ?? null;
      const surplus: Difference = {
        kind: owner === null ? "leftover" : "surplus",
        place: `${label} ${element.container}`,
        cause: owner === null ? "an element that no Service wants" : "an element is too much",
        wanted: [],
        found: [elementText(element)],
      };
      if (owner === null) list.leftovers.push(surplus);
      else list.add(owner, surplus);
    }
  }
  // Empty ones are on their way out: the kernel lets go of them a second after what went to them.
  const chains = leftover.staleChains.filter((name) => textsOf(name).length > 0);
  for (const name of [...chains, ...leftover.staleSets]) {
    list.leftovers.push({
      kind: "leftover",
      place: `${label} ${name}`,
      cause: `a ${observed.chains.has(name) ? "chain" : "set"} that nothing wants any more`,
      wanted: [],
      found: textsOf(name),
    });
  }
}

/** Keys of destinations, and what those of endpoints begin with → whose they are. */
function ownersOf({ services }: NftablesPlan): ReadonlyMap<string, NamespacedName> {
  const owners = new Map<string, NamespacedName>();
  for (const [name, rules] of services) {
    for (const { key } of rules?.elements ?? []) owners.set(key, name);
    for (const { destinations } of rules?.lists ?? []) {
      for (const { prefix, claim } of destinations) owners.set(prefix, name).set(claim, name);
    }
  }
  return owners;
}

/** The table in the words of the mode's own diff. */
function observedOf({ chains, containers }: NftTable, plan: NftablesPlan): ObservedTable {
  const hooks = new Map<string, string>();
  const wantedHooks = new Map(plan.base.hookedChains.map(({ name, hook }) => [name, hook]));
  for (const { name, base } of chains.values()) {
    if (base === null) continue;
    const wanted = wantedHooks.get(name);
    hooks.set(name, wanted !== undefined && isBase(base, wanted) ? wanted : baseText(base));
  }
  const own = [...containers.values()];
  return {
    comment: "",
    chains: new Map(
      [...chains].map(([name, { rules }]) => [name, rules.map(({ text }) => ({ text, handle: 0 }))]),
    ),
    hooks,
    elements: new Map(
      own.filter(({ name }) => !isAffinitySet(name)).map(({ name, elements }) => [name, elements]),
    ),
    elementComments: new Map(),
    affinitySets: new Map(
      own.filter(({ name }) => isAffinitySet(name)).map((set) => [set.name, set.timeoutSeconds ?? 0]),
    ),
  };
}

function isBase(found: NftBase, hook: string): boolean {
  const wanted = takeBase(new NftWords(`{ ${hook} }`));
  return wanted !== null && baseText(wanted) === baseText(found);
}

function baseText({ type, hook, priority, policy }: NftBase): string {
  return `type ${type} hook ${hook} priority ${priority}; policy ${policy};`;
}
