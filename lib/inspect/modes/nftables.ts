/**
 * Mode nftables: desired table of a family, and differences of the live one from a full sync.
 *
 * @module
 */
import { isAffinitySet } from "../../backend/nftables/plan/chains.ts";
import { configuredNftables, networksOfFamily, planNftables } from "../../backend/nftables/plan/plan.ts";
import type { NftablesPlan } from "../../backend/nftables/plan/ruleset.ts";
import { FullSync, renderPlan, tableOf } from "../../backend/nftables/store/full_sync.ts";
import { matchingNodeIps } from "../../model/node.ts";
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import { type ListedTable, NO_TABLE, OpenContainer, OpenTable } from "../../netfilter/nft_listing.ts";
import { type Element, elementText, type NftTransaction } from "../../netfilter/nft_objects.ts";
import { nftFamily } from "../../netfilter/nft_words.ts";
import { emptySnapshot, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { chainDifference } from "../check/chains.ts";
import type { Comparison, Difference, DifferenceList } from "../check/check.ts";
import { differencesByPackets } from "../check/packets.ts";
import { type DesiredInput, hostAddresses, stateOf, warned } from "../desired/desired.ts";

/** The plan of all Services of one family. */
export function nftablesPlan(input: DesiredInput, family: IpFamily): NftablesPlan {
  const { config, node, serviceCidrs } = input;
  const options = warned(configuredNftables(config, family, node), input, family);
  return planNftables(stateOf(input, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, hostAddresses(input, options.nodeIp)),
    serviceCidrs: networksOfFamily(serviceCidrs, family),
    objectComments: true,
  });
}

/** Input of `nft -f -`. */
export function render(input: DesiredInput, family: IpFamily): string {
  return renderPlan(nftablesPlan(input, family));
}

/** Rules in an empty kernel after a full sync. */
export function rules(input: DesiredInput, family: IpFamily): RulesetSnapshot {
  return rulesOf(nftablesPlan(input, family));
}

function rulesOf(plan: NftablesPlan): RulesetSnapshot {
  const sync = new FullSync(plan, NO_TABLE);
  const table = new OpenTable(tableOf(plan.family));
  for (const transaction of [sync.base, ...sync.services().map((one) => one.transaction)]) {
    for (const { name, kind, spec, timeoutSeconds } of transaction.containers) {
      const container = new OpenContainer(kind);
      for (const part of spec.split(";")) container.define(part.trim());
      container.timeoutSeconds = timeoutSeconds;
      table.containers.set(name, container);
    }
    for (const { name, hook, rules } of [...transaction.chains, ...transaction.baseChains]) {
      table.chains.set(name, { name, ...(hook === undefined ? {} : { hook }), rules: [...rules] });
    }
    for (const { container, key, value } of transaction.addedElements) {
      table.containers.get(container)?.elements.set(key, value);
    }
  }
  return { ...emptySnapshot(plan.family), nftables: [table] };
}

/** Reports differences to `list`. */
export function compare(comparison: Comparison, list: DifferenceList): void {
  const { desired, family, live } = comparison;
  const word = nftFamily(family);
  const plan = nftablesPlan(desired, family);
  // kproxy's tables are never of family `inet`.
  const own = live.nftables.find(({ name }) => name === `${word} kproxy`);
  if (own === undefined && live.nftables.some(({ name }) => name === `${word} kube-proxy`)) {
    list.notes.push("These rules are kube-proxy's: they are compared by what they do");
    const differencesOf = differencesByPackets(rulesOf(plan), comparison);
    for (const [service, ports] of stateOf(desired, family).services) {
      for (const one of ports.flatMap(differencesOf)) list.add(service, one);
    }
    return;
  }
  if (own === undefined) {
    const wanted = [`table ${word} kproxy`];
    const place = `nftables ${word} kproxy`;
    list.add(null, { kind: "missing", place, cause: "the table is gone", wanted, found: [] });
  }
  const listed = own ?? { ...NO_TABLE, name: `${word} kproxy` };
  const sync = new FullSync(plan, listed);
  for (const one of differencesOf(listed, sync.base)) list.add(null, one);
  for (const { name, transaction } of sync.services()) {
    for (const one of differencesOf(listed, transaction)) list.add(name, one);
  }
  compareLeftover(plan, listed, sync.leftover(), list);
}

function* differencesOf(
  { name: table, chains, containers }: ListedTable,
  transaction: NftTransaction,
): Generator<Difference> {
  for (const { name, timeoutSeconds } of transaction.containers) {
    const found = containers.get(name);
    const place = placeOf(table, name);
    const what = isAffinitySet(name) ? "set" : "set or map";
    yield found === undefined
      ? { kind: "missing", place, cause: `the ${what} is gone`, wanted: [], found: [] }
      : {
        kind: "changed",
        place,
        cause: "clients stick to their endpoint for another time",
        wanted: [`timeout ${timeoutSeconds}s`],
        found: [`timeout ${found.timeoutSeconds}s`],
      };
  }
  for (const { name, hook, rules } of [...transaction.chains, ...transaction.baseChains]) {
    const place = placeOf(table, name);
    const found = chains.get(name);
    if (found !== undefined && found.hook !== hook) {
      const cause = "the chain hangs elsewhere";
      yield { kind: "changed", place, cause, wanted: hookTexts(hook), found: hookTexts(found.hook) };
    }
    const difference = chainDifference({ place, wanted: rules, found: found?.rules });
    if (difference !== null) yield difference;
  }
  yield* elementDifferences(table, transaction);
}

function placeOf(table: string, object: string): string {
  return `nftables ${table} ${object}`;
}

function hookTexts(hook: string | undefined): readonly string[] {
  return hook === undefined ? [] : [hook];
}

/** The element without its comment, which is for people. */
function textOf({ comment: _, ...element }: Element): string {
  return elementText(element);
}

/** An element that is deleted and added with another value counts as changed. */
function* elementDifferences(
  table: string,
  { deletedElements, addedElements }: NftTransaction,
): Generator<Difference> {
  const idOf = ({ container, key }: Element): string => `${container} ${key}`;
  const former = new Map(deletedElements.map((element) => [idOf(element), element]));
  for (const element of addedElements) {
    const before = former.get(idOf(element));
    former.delete(idOf(element));
    const differing = { place: placeOf(table, element.container), wanted: [textOf(element)] };
    if (before === undefined) {
      yield { kind: "missing", cause: "an element is missing", ...differing, found: [] };
    } else if (before.value !== element.value) {
      yield { kind: "changed", cause: "an element leads elsewhere", ...differing, found: [textOf(before)] };
    }
  }
  for (const element of former.values()) yield surplusElement(table, element);
}

function surplusElement(table: string, element: Element): Difference {
  const place = placeOf(table, element.container);
  return { kind: "surplus", place, cause: "an element is too much", wanted: [], found: [textOf(element)] };
}

/** Reports leftovers: surplus elements of a Service that has the address, or objects of a deleted one. */
function compareLeftover(
  plan: NftablesPlan,
  { name: table, chains: listed }: ListedTable,
  leftover: NftTransaction,
  list: DifferenceList,
): void {
  for (const name of leftover.deletedBaseChains) {
    const { hook, rules = [] } = listed.get(name) ?? {};
    list.add(null, {
      kind: "surplus",
      place: placeOf(table, name),
      cause: "another program hooked a chain into our table",
      wanted: [],
      found: [...hookTexts(hook), ...rules],
    });
  }
  const owners = leftover.deletedElements.length > 0 ? ownersOf(plan) : null;
  for (const element of leftover.deletedElements) {
    const owner = owners?.get(element.key) ?? owners?.get(element.key.replace(/ \. \d+$/, ""));
    const surplus = surplusElement(table, element);
    if (owner !== undefined) list.add(owner, surplus);
    else list.leave({ ...surplus, cause: "an element that no Service wants" });
  }
  // Empty chains are about to go: the kernel releases them a second after the elements that went to them.
  const chains = leftover.flushedChains.filter((name) => listed.get(name)?.rules.length !== 0);
  for (const name of [...chains, ...leftover.deletedContainers]) {
    const cause = `a ${listed.has(name) ? "chain" : "set"} that nothing wants any more`;
    list.leave({ place: placeOf(table, name), cause, wanted: [], found: listed.get(name)?.rules ?? [] });
  }
}

/** Keys of destinations, and key prefixes of their endpoints → the Service that owns them. */
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
