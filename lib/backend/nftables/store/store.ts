/**
 * The known content of the table of one family, by Service, in little memory: after a full sync as it was
 * written, and changed with every change since.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import {
  type Chain,
  type Container,
  diffObjects,
  type Element,
  type NftObjects,
  type NftTransaction,
  NO_OBJECTS,
} from "../../../netfilter/nft_objects.ts";
import { isSharedSet } from "../plan/chains.ts";
import type { BaseRules, EndpointList, NftablesPlan, ServiceRules } from "../plan/ruleset.ts";

/** Numbers of objects in a table. */
export interface TableCounts {
  /** Elements of all sets and maps but the affinity sets. */
  readonly elements: number;
  /** Chains other than base chains. */
  readonly chains: number;
  /** Sets and maps. */
  readonly sets: number;
}

/** A change from the known content to a plan. */
export interface Change {
  readonly transaction: NftTransaction;
  /** Takes the plan over. Call it only after the transaction was written. */
  readonly commit: () => void;
}

interface OpenObjects extends NftObjects {
  readonly containers: Container[];
  readonly chains: Chain[];
  readonly elements: Element[];
}

function nameOf({ container, key }: Element): string {
  return `${container} ${key}`;
}

/** Store of known objects; see the module. */
export class NftStore {
  #base: BaseRules;
  readonly #sharedChains: Map<string, Chain>;
  /** Objects by Service, as flat text: a fifth of the memory of the objects, and few Services are read. */
  readonly #services = new Map<NamespacedName, string>();
  /** Element of a shared set → how many Services want it. */
  readonly #references = new Map<string, number>();
  /** Set or map → how many elements Services have in it, and one of those Services; null: it has none any more. */
  readonly #containers = new Map<string, { count: number; example: NamespacedName | null }>();
  /** Services that keep former objects, because new ones are refused. Others may claim a destination of theirs. */
  readonly #kept = new Set<NamespacedName>();
  readonly #counts = { chains: 0, sets: 0, sharedElements: 0 };

  /** Begins with a table that holds the base objects and shared chains of a plan. */
  constructor({ base, sharedChains }: Pick<NftablesPlan, "base" | "sharedChains">) {
    this.#base = base;
    this.#sharedChains = new Map(sharedChains);
  }

  /** Objects that do not depend on Services. Chains that Services share stay until the next full sync. */
  get base(): NftObjects {
    return { ...this.#base, chains: [...this.#base.chains, ...this.#sharedChains.values()] };
  }

  get counts(): TableCounts {
    const { chains, elements, containers } = this.#base;
    let count = elements.length + this.#references.size - this.#counts.sharedElements;
    for (const { count: own } of this.#containers.values()) count += own;
    return {
      elements: count,
      chains: this.#counts.chains + this.#sharedChains.size +
        chains.filter(({ hook }) => hook === undefined).length,
      sets: this.#counts.sets + containers.length,
    };
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  /** Objects of a Service; none if it is not known. */
  service(name: NamespacedName): NftObjects {
    const packed = this.#services.get(name);
    return packed === undefined ? NO_OBJECTS : unpack(packed);
  }

  /** Records the objects of a Service; null: it is gone. */
  set(name: NamespacedName, objects: NftObjects | null): void {
    const before = this.service(name);
    this.#count(name, before, -1);
    this.#kept.delete(name);
    if (objects === null) {
      this.#services.delete(name);
      return;
    }
    this.#services.set(name, pack(objects));
    this.#count(name, objects, 1);
  }

  /** As {@linkcode NftStore.set}, for a Service that keeps these because its new objects were refused. */
  keep(name: NamespacedName, objects: NftObjects): void {
    this.set(name, objects);
    this.#kept.add(name);
  }

  /** The change to a plan of some Services: one transaction, so that a destination is never without an owner. */
  change(plan: NftablesPlan): Change {
    const held = open({ ...this.#base, chains: [...this.#base.chains, ...this.#heldSharedChains(plan)] });
    const wanted = open({ ...plan.base, chains: [...plan.base.chains, ...plan.sharedChains.values()] });
    const services = new Map<NamespacedName, NftObjects | null>();
    for (const [name, rules] of plan.services) {
      const before = this.service(name);
      const after = rules === null ? null : placeService(rules, heldElements(before));
      services.set(name, after);
      append(held, before);
      append(wanted, after ?? NO_OBJECTS);
    }
    const taken = this.#takenFromKept(plan, wanted);
    for (const elements of taken.values()) held.elements.push(...elements);
    const isOthers = this.#isWantedByOthers(held);
    const own = ({ elements }: NftObjects): Element[] =>
      once(elements.filter((element) => !isOthers(element)));
    const transaction = diffObjects({ ...wanted, elements: own(wanted) }, { ...held, elements: own(held) });
    return {
      transaction,
      commit: () => {
        for (const [owner, elements] of taken) this.#giveUp(owner, elements);
        for (const [name, objects] of services) this.set(name, objects);
        for (const [name, chain] of plan.sharedChains) this.#sharedChains.set(name, chain);
        this.#base = plan.base;
      },
    };
  }

  /** One element of each set and map that has any, to check whether it was emptied. */
  sample(): readonly Element[] {
    const sample = [...this.#base.elements.slice(0, 1)];
    for (const [container, of] of this.#containers) {
      if (of.count === 0) continue;
      const isHere = (element: Element): boolean => element.container === container;
      of.example ??= this.#services.keys().find((name) => this.service(name).elements.some(isHere)) ?? null;
      const element = of.example && this.service(of.example).elements.find(isHere);
      if (element) sample.push(element);
    }
    return sample;
  }

  *#heldSharedChains({ sharedChains }: NftablesPlan): Generator<Chain> {
    for (const name of sharedChains.keys()) {
      const chain = this.#sharedChains.get(name);
      if (chain !== undefined) yield chain;
    }
  }

  /** Elements that other Services keep and one of these claims: the state decides the owner of a destination. */
  #takenFromKept(
    { services }: NftablesPlan,
    { elements }: NftObjects,
  ): ReadonlyMap<NamespacedName, readonly Element[]> {
    const keepers = [...this.#kept].filter((name) => !services.has(name));
    if (keepers.length === 0) return new Map();
    const wanted = new Set(elements.filter(({ container }) => !isSharedSet(container)).map(nameOf));
    return new Map(
      keepers.map((name) => [name, this.service(name).elements.filter((one) => wanted.has(nameOf(one)))]),
    );
  }

  #giveUp(owner: NamespacedName, elements: readonly Element[]): void {
    if (elements.length === 0) return;
    const given = new Set(elements.map(nameOf));
    const objects = this.service(owner);
    this.keep(owner, { ...objects, elements: objects.elements.filter((one) => !given.has(nameOf(one))) });
  }

  /** True of elements of shared sets that stay even without the Services whose objects are `held`. */
  #isWantedByOthers(held: NftObjects): (element: Element) => boolean {
    const others = new Map<string, number>();
    const countOf = (name: string): number => others.get(name) ?? this.#references.get(name) ?? 0;
    for (const element of held.elements) {
      if (!isSharedSet(element.container)) continue;
      const name = nameOf(element);
      others.set(name, countOf(name) - 1);
    }
    return (element) => isSharedSet(element.container) && countOf(nameOf(element)) > 0;
  }

  #count(name: NamespacedName, { containers, chains, elements }: NftObjects, by: 1 | -1): void {
    this.#counts.chains += by * chains.length;
    this.#counts.sets += by * containers.length;
    for (let at = 0; at < elements.length;) {
      const { container } = elements[at]!;
      const start = at;
      const isShared = isSharedSet(container);
      for (; elements[at]?.container === container; at++) {
        if (isShared) this.#reference(nameOf(elements[at]!), by);
      }
      let of = this.#containers.get(container);
      if (of === undefined) this.#containers.set(container, of = { count: 0, example: null });
      of.count += by * (at - start);
      if (by === 1) of.example = name;
      else if (of.example === name) of.example = null;
    }
  }

  #reference(name: string, by: 1 | -1): void {
    this.#counts.sharedElements += by;
    const count = (this.#references.get(name) ?? 0) + by;
    // Reading a character makes V8 replace the parts of the text by the whole.
    name.charCodeAt(0);
    if (count === 0) this.#references.delete(name);
    else this.#references.set(name, count);
  }
}

function open({ containers, chains, elements }: NftObjects): OpenObjects {
  return { containers: [...containers], chains: [...chains], elements: [...elements] };
}

function append(to: OpenObjects, { containers, chains, elements }: NftObjects): void {
  to.containers.push(...containers);
  to.chains.push(...chains);
  for (const element of elements) to.elements.push(element);
}

/** Each element of a shared set once: several Services may want it. */
function once(elements: readonly Element[]): Element[] {
  const seen = new Set<string>();
  return elements.filter((element) => {
    if (!isSharedSet(element.container)) return true;
    const isFirst = !seen.has(nameOf(element));
    seen.add(nameOf(element));
    return isFirst;
  });
}

function heldElements({ elements }: NftObjects): HeldElements {
  const containers = new Map<string, Map<string, string>>();
  for (const { container, key, value } of elements) {
    const known = containers.get(container);
    if (known === undefined) containers.set(container, new Map([[key, value]]));
    else known.set(key, value);
  }
  return (container) => containers.get(container);
}

/** Elements as container (`""`: that of the one before), key, value and comment (`""`: none), one after the other. */
type Packed = [containers: readonly Container[], chains: readonly Chain[], elements: string[]];

function pack({ containers, chains, elements }: NftObjects): string {
  const texts: string[] = [];
  let last = "";
  for (const { container, key, value, comment = "" } of elements) {
    texts.push(container === last ? "" : container, key, value, comment);
    last = container;
  }
  return JSON.stringify([containers, chains, texts] satisfies Packed);
}

function unpack(text: string): NftObjects {
  const [containers, chains, texts] = JSON.parse(text) as Packed;
  const elements: Element[] = [];
  for (let at = 0, last = ""; at < texts.length; at += 4) {
    const [container = "", key = "", value = "", comment = ""] = texts.slice(at, at + 4);
    if (container !== "") last = container;
    elements.push({ container: last, key, value, ...comment === "" ? {} : { comment } });
  }
  return { containers, chains, elements };
}

/** The elements that a set or map holds; undefined if it holds none. */
type HeldElements = (container: string) => ReadonlyMap<string, string> | undefined;

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
