/**
 * Assigns slots to the endpoints of a list.
 *
 * @module
 */
import type { Element, NftObjects } from "../../../netfilter/nft_objects.ts";
import type { EndpointList, ServiceRules } from "./ruleset.ts";

/** The elements that a set or map holds; undefined if it holds none. */
export type HeldElements = (container: string) => ReadonlyMap<string, string> | undefined;

/** The objects of a Service, each endpoint in the slot that it has already if it can be. */
export function placeService(rules: ServiceRules, held: HeldElements): NftObjects {
  const elements: Element[] = [...rules.sharedElements, ...rules.elements];
  for (const list of rules.lists) {
    const slots = assignSlots(heldSlots(list, held), list.endpoints);
    for (const { container, prefix } of list.destinations) {
      for (let slot = 0; slot < slots.length; slot++) {
        elements.push({ container, key: `${prefix} . ${slot}`, value: slots[slot]! });
      }
    }
  }
  return { containers: rules.affinitySets, chains: rules.chains, elements };
}

/** The slots of a list, as its first destination that has any shows them. */
function heldSlots(
  { destinations, endpoints }: EndpointList,
  held: HeldElements,
): readonly (string | undefined)[] {
  for (const { container, prefix } of destinations) {
    const elements = held(container);
    if (elements === undefined || elements.size === 0) continue;
    const slots = endpoints.map((_, slot) => elements.get(`${prefix} . ${slot}`));
    if (slots.some((slot) => slot !== undefined)) return slots;
  }
  return [];
}

const DUPLICATES = "Wanted endpoints must differ from each other";

/**
 * Slots 0 to n - 1 for n wanted endpoints. An endpoint keeps its slot if it can: a new one takes the place of one that
 * is gone, and what is beyond the end moves into what is still free.
 *
 * @param before slot → former endpoint; `undefined` where it is empty
 * @param wanted no two the same
 */
export function assignSlots(
  before: readonly (string | undefined)[],
  wanted: readonly string[],
): readonly string[] {
  if (isInPlace(before, wanted)) return wanted;
  const left = new Set(wanted);
  const slots: (string | undefined)[] = wanted.map((_, index) => {
    const endpoint = before[index];
    return endpoint !== undefined && left.delete(endpoint) ? endpoint : undefined;
  });
  const rest = left.values();
  return slots.map((endpoint) => endpoint ?? nextOf(rest));
}

/** True, and nearly always so, if nothing has to move. */
function isInPlace(before: readonly (string | undefined)[], wanted: readonly string[]): boolean {
  return wanted.every((endpoint, index) => before[index] === undefined || before[index] === endpoint);
}

function nextOf(rest: Iterator<string>): string {
  const { done, value } = rest.next();
  if (done === true) throw new RangeError(DUPLICATES);
  return value;
}
