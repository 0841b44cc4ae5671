/**
 * Compares the table of nftables mode with a plan, by what a full sync would write.
 *
 * @module
 */
import { isAffinitySet } from "../../backend/nftables/plan/chains.ts";
import type { NftablesPlan } from "../../backend/nftables/plan/ruleset.ts";
import { FullSync } from "../../backend/nftables/store/full_sync.ts";
import type { NamespacedName } from "../../model/objects.ts";
import {
  type Element,
  elementText as nftElementText,
  type NftTransaction,
} from "../../netfilter/nft_objects.ts";
import type { ListedTable } from "../../netfilter/nft_listing.ts";
import type { Difference, DifferenceList } from "./difference.ts";
import { chainDifference } from "./rule_lists.ts";

/** Tells `list` of everything that differs. */
export function compareNftables(plan: NftablesPlan, listed: ListedTable, list: DifferenceList): void {
  const label = `nftables ${listed.name}`;
  const sync = new FullSync(plan, listed);
  const compare = (service: NamespacedName | null, transaction: NftTransaction): void => {
    for (const one of differencesOf(label, listed, transaction)) list.add(service, one);
  };
  compare(null, sync.base);
  for (const { name, transaction } of sync.services()) compare(name, transaction);
  compareLeftover(plan, label, listed, sync.leftover(), list);
}

function* differencesOf(
  label: string,
  { chains, containers }: ListedTable,
  transaction: NftTransaction,
): Generator<Difference> {
  for (const { name, timeoutSeconds } of transaction.containers) {
    const found = containers.get(name);
    const place = `${label} ${name}`;
    yield found === undefined ? goneDifference(place, isAffinitySet(name) ? "set" : "set or map") : {
      kind: "changed",
      place,
      cause: "clients stick to their endpoint for another time",
      wanted: [`timeout ${timeoutSeconds}s`],
      found: [`timeout ${found.timeoutSeconds}s`],
    };
  }
  for (const { name, hook, rules } of [...transaction.chains, ...transaction.baseChains]) {
    const place = `${label} ${name}`;
    const found = chains.get(name);
    if (found !== undefined && found.hook !== hook) {
      const cause = "the chain hangs elsewhere";
      yield { kind: "changed", place, cause, wanted: hookTexts(hook), found: hookTexts(found.hook) };
    }
    const difference = chainDifference({ place, wanted: rules, found: found?.rules });
    if (difference !== null) yield difference;
  }
  yield* elementDifferences(label, transaction.deletedElements, transaction.addedElements);
}

function hookTexts(hook: string | undefined): readonly string[] {
  return hook === undefined ? [] : [hook];
}

function goneDifference(place: string, what: string): Difference {
  return { kind: "missing", place, cause: `the ${what} is gone`, wanted: [], found: [] };
}

function elementText({ comment: _, ...element }: Element): string {
  return nftElementText(element);
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
  { chains: listed }: ListedTable,
  leftover: NftTransaction,
  list: DifferenceList,
): void {
  for (const name of leftover.deletedBaseChains) {
    const { hook, rules = [] } = listed.get(name) ?? {};
    list.add(null, {
      kind: "surplus",
      place: `${label} ${name}`,
      cause: "somebody hooked a chain into our table",
      wanted: [],
      found: [...hookTexts(hook), ...rules],
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
  const chains = leftover.flushedChains.filter((name) => listed.get(name)?.rules.length !== 0);
  for (const name of [...chains, ...leftover.deletedContainers]) {
    list.leftovers.push({
      kind: "leftover",
      place: `${label} ${name}`,
      cause: `a ${listed.has(name) ? "chain" : "set"} that nothing wants any more`,
      wanted: [],
      found: listed.get(name)?.rules ?? [],
    });
  }
}

/** Keys of destinations, and what those of endpoints begin with → whose they are. */
function ownersOf({ services }: NftablesPlan): ReadonlyMap<string, NamespacedName> {
  const owners = new Map<string, NamespacedName>();
  for (const [name, rules] of services) {
    for (const { key } of rules?.elements ?? []) owners.set(key, name);
    for (const { destinations } of rules?.lists ?? []) {
      for (const { prefix } of destinations) owners.set(prefix, name);
    }
  }
  return owners;
}
