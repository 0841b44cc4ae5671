/**
 * What a Service keeps whose new rules the kernel refuses: that of its former ones which the kernel holds.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { isServiceChain } from "../plan/chains.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { type CommittedElement, type CommittedService, ownElements } from "./committed.ts";
import type { Element, EndpointList, ObservedTable, Operations, ServiceRules } from "../plan/ruleset.ts";

/** Finds what is there under the keys that the Service wants, and what has its name. */
export function keptService(
  name: NamespacedName,
  rules: ServiceRules,
  observed: ObservedTable,
): CommittedService {
  const there = ({ container, key }: Element): CommittedElement[] => {
    const value = observed.elements.get(container)?.get(key);
    return value === undefined ? [] : [{ container, key, value, commentHash: "" }];
  };
  // `endpoint-BNZJJVPA-shop/cart/tcp/…`: the kind, eight digits of a hash, the Service.
  const isOwn = ([object]: readonly [string, unknown]): boolean =>
    object.startsWith(`${name}/`, object.indexOf("-") + 10);
  return {
    elements: rules.elements.flatMap(there),
    sharedElements: rules.sharedElements.flatMap(there),
    lists: rules.lists.flatMap((list) => keptList(list, observed)),
    chains: new Map(
      [...observed.chains].filter(isOwn).map(([chain, texts]) => [
        chain,
        hashRules(texts.map(({ text }) => text)),
      ]),
    ),
    affinitySets: [...observed.affinitySets].filter(isOwn).map(([set, timeoutSeconds]) => ({
      name: set,
      timeoutSeconds,
    })),
    lost: [],
  };
}

/** The slots as the first destination that has any shows them, with all destinations that have the same. */
function keptList({ id, destinations }: EndpointList, observed: ObservedTable): CommittedService["lists"] {
  const slotsOf = ({ container, prefix }: EndpointList["destinations"][number]): readonly string[] => {
    const elements = observed.elements.get(container);
    const slots: string[] = [];
    for (;;) {
      const value = elements?.get(`${prefix} . ${slots.length}`);
      if (value === undefined) return slots;
      slots.push(value);
    }
  };
  const found = destinations.map((destination) => ({ destination, slots: slotsOf(destination) }))
    .filter(({ slots }) => slots.length > 0);
  const [first] = found;
  if (first === undefined) return [];
  const text = first.slots.join();
  const same = found.filter(({ slots }) => slots.join() === text);
  return [{ id, destinations: same.map(({ destination }) => destination), slots: first.slots }];
}

/** The leftovers without what these Services keep. */
export function withoutKept(
  leftover: Operations["leftover"],
  kept: Iterable<CommittedService>,
): Operations["leftover"] {
  const services = [...kept];
  if (services.length === 0) return leftover;
  const elements = new Set<string>();
  const names = new Set<string>();
  for (const service of services) {
    for (const { container, key } of ownElements(service)) elements.add(`${container} ${key}`);
    for (const { container, key } of service.sharedElements) elements.add(`${container} ${key}`);
    for (const chain of service.chains.keys()) names.add(chain);
    for (const { name } of service.affinitySets) names.add(name);
  }
  return {
    foreignHooks: leftover.foreignHooks,
    deletedElements: leftover.deletedElements.filter(({ container, key }) =>
      !elements.has(`${container} ${key}`)
    ),
    // What is kept may lead to chains that nobody else shares any more.
    staleChains: leftover.staleChains.filter((name) => isServiceChain(name) && !names.has(name)),
    staleSets: leftover.staleSets.filter((name) => !names.has(name)),
  };
}
