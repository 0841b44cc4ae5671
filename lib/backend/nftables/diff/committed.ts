/**
 * What the kernel is known to hold after the last successful apply: enough to find out what a plan changes, in little
 * memory.
 *
 * @module
 */
import { sameTexts } from "../../../model/service_port.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { ClaimsAfter, claimsByName, type Handover, withoutDestinations } from "../plan/claims.ts";
import type {
  AffinitySet,
  BaseRules,
  Chain,
  Destination,
  Element,
  NftablesPlan,
  ServiceRules,
} from "../plan/ruleset.ts";
import { assignSlots } from "../plan/slots.ts";

/** A list with its endpoints in their slots. */
export interface PlacedList {
  readonly id: string;
  readonly destinations: readonly Pick<Destination, "container" | "prefix">[];
  readonly slots: readonly string[];
}

/** What one Service gets of what it wants. */
export interface PlacedService {
  readonly elements: readonly Element[];
  readonly sharedElements: readonly Element[];
  readonly lists: readonly PlacedList[];
  readonly chains: readonly Chain[];
  readonly affinitySets: readonly AffinitySet[];
  /** Destinations that it wants and another one has. */
  readonly lost: readonly string[];
}

/** An element as it is in the kernel. */
export interface CommittedElement extends Element {
  /** Stands for the comment it was written with, as {@linkcode hashComment} of it; `""` if that is not known. */
  readonly commentHash: string;
}

/** One Service as it is in the kernel. */
export interface CommittedService extends Omit<PlacedService, "chains" | "elements"> {
  readonly elements: readonly CommittedElement[];
  readonly chains: ReadonlyMap<string, number>;
}

/** Slots of a Service's lists as they are known to be; an empty answer if nothing is. */
export type SlotsBefore = (list: ServiceRules["lists"][number]) => readonly (string | undefined)[];

/** Decides which of its destinations a Service gets and which endpoint has which slot. */
export function placeService(
  rules: ServiceRules,
  lost: readonly string[],
  slotsBefore: SlotsBefore,
): PlacedService {
  const { elements, sharedElements, lists, chains, affinitySets } = withoutDestinations(rules, lost);
  return {
    elements,
    sharedElements,
    lists: lists.map((list) => ({
      id: list.id,
      destinations: list.destinations,
      slots: assignSlots(slotsBefore(list), list.endpoints),
    })),
    chains,
    affinitySets,
    lost,
  };
}

/** All elements that only this Service has: dispatch and slots. */
export function* ownElements(service: Pick<PlacedService, "elements" | "lists">): Generator<Element> {
  yield* service.elements;
  for (const { destinations, slots } of service.lists) {
    for (const { container, prefix } of destinations) {
      for (let slot = 0; slot < slots.length; slot++) {
        yield { container, key: `${prefix} . ${slot}`, value: slots[slot]! };
      }
    }
  }
}

/** One Service as text: a flat string needs a fifth of the memory of the objects, and few Services are looked at. */
type PackedService = string;

type Packed = [
  elements: string[],
  shared: string[],
  lists: [id: string, destinations: string[], slots: string][],
  chains: [name: string, hash: number][],
  sets: [name: string, timeoutSeconds: number][],
  lost: readonly string[],
];

/** Little that stands for the comment: a port whose name changes is to be seen, and memory is dear. */
export function hashComment({ comment }: Element): string {
  return comment === undefined ? "" : (hashRules([comment]) % 2 ** 32).toString(36);
}

const SLOT_SEPARATOR = ",";

function pack(service: CommittedService): PackedService {
  const packed: Packed = [
    service.elements.flatMap((
      { container, key, value, commentHash },
    ) => [container, key, value, commentHash]),
    service.sharedElements.flatMap(({ container, key }) => [container, key]),
    service.lists.map(({ id, destinations, slots }) => [
      id,
      destinations.flatMap(({ container, prefix }) => [container, prefix]),
      slots.join(SLOT_SEPARATOR),
    ]),
    [...service.chains],
    service.affinitySets.map(({ name, timeoutSeconds }) => [name, timeoutSeconds]),
    service.lost,
  ];
  return JSON.stringify(packed);
}

function unpack(text: PackedService): CommittedService {
  const [elements, shared, lists, chains, sets, lost] = JSON.parse(text) as Packed;
  return {
    elements: groups(elements, 4).map(([container, key, value, commentHash]) => ({
      container: container!,
      key: key!,
      value: value!,
      commentHash: commentHash!,
    })),
    sharedElements: groups(shared, 2).map(([container, key]) => ({
      container: container!,
      key: key!,
      value: "",
    })),
    lists: lists.map(([id, destinations, slots]) => ({
      id,
      destinations: groups(destinations, 2).map(([container, prefix]) => ({
        container: container!,
        prefix: prefix!,
      })),
      slots: slots.split(SLOT_SEPARATOR),
    })),
    chains: new Map(chains),
    affinitySets: sets.map(([name, timeoutSeconds]) => ({ name, timeoutSeconds })),
    lost,
  };
}

function groups(texts: readonly string[], size: number): string[][] {
  const all: string[][] = [];
  for (let at = 0; at < texts.length; at += size) all.push(texts.slice(at, at + size));
  return all;
}

/** How the name of a shared element is written. */
function elementName({ container, key }: Element): string {
  return `${container} ${key}`;
}

/** What is there of a table, in numbers. */
export interface TableCounts {
  /** Of all sets and maps but the affinity sets. */
  readonly elements: number;
  /** Without hook. */
  readonly chains: number;
  readonly affinitySets: number;
}

/** What the kernel is known to hold of one family. It is changed in place as plans are applied. */
export class CommittedTable {
  #base: BaseRules;
  readonly #services = new Map<NamespacedName, PackedService>();
  readonly #sharedChains = new Map<string, number>();
  readonly #claims = claimsByName();
  /** How many Services want an element that several may want. */
  readonly #wanted = new Map<string, number>();
  readonly #counts = { elements: 0, chains: 0, affinitySets: 0 };

  private constructor(base: BaseRules) {
    this.#base = base;
  }

  /** The kernel after a full sync wrote what `plan` wants beside its Services; those are {@linkcode add}ed. */
  static of(plan: NftablesPlan): CommittedTable {
    const committed = new CommittedTable(plan.base);
    committed.#setSharedChains(plan);
    return committed;
  }

  /** Takes a Service over that is there now. */
  add(name: NamespacedName, service: PlacedService): void {
    this.#set(name, service);
  }

  /**
   * Takes over what `diffNftables(plan, this)` led to. Call it only after that was written.
   *
   * @throws {TypeError} if the plan leaves out a Service of `affectedBy`
   */
  apply(plan: NftablesPlan): void {
    for (const [name, service] of this.place(plan)) this.#set(name, service);
    this.#setSharedChains(plan);
    this.#base = plan.base;
  }

  /** Says what a Service has, whatever it wants: its new rules were refused. Null: nothing. */
  keep(name: NamespacedName, service: CommittedService | null): void {
    this.#setCommitted(name, service);
  }

  /**
   * Services that must be planned too, because they get a destination of a planned one or have to give theirs to one.
   * What those want has not changed, so planning them as well is enough.
   */
  affectedBy(plan: NftablesPlan): ReadonlySet<NamespacedName> {
    const services = this.planned(plan);
    const affected = new Set<NamespacedName>();
    for (const { from, to } of this.handovers(plan)) {
      for (const name of [from, to]) if (!services.has(name)) affected.add(name);
    }
    return affected;
  }

  /** The destinations that change hands. */
  handovers(plan: NftablesPlan): readonly Handover[] {
    const services = this.planned(plan);
    const before = [...services.keys()].flatMap((name) => this.#claimsOf(name));
    return new ClaimsAfter(services, this.#claims).handovers(before);
  }

  /** The planned Services; for a plan of all, those that are gone too. */
  planned(plan: NftablesPlan): NftablesPlan["services"] {
    if (!plan.all) return plan.services;
    const services = new Map(plan.services);
    for (const name of this.#services.keys()) if (!services.has(name)) services.set(name, null);
    return services;
  }

  /**
   * What each planned Service gets; null: gone.
   *
   * @throws {TypeError} if the plan leaves out a Service of `affectedBy`
   */
  place(plan: NftablesPlan): Map<NamespacedName, PlacedService | null> {
    const [missing] = this.affectedBy(plan);
    if (missing !== undefined) throw new TypeError(`Service ${missing} must be planned too`);
    const services = this.planned(plan);
    const claims = new ClaimsAfter(services, this.#claims);
    const placed = new Map<NamespacedName, PlacedService | null>();
    for (const [name, rules] of services) {
      const before = this.service(name);
      placed.set(
        name,
        rules && placeService(rules, claims.lostBy(name, rules), (list) => slotsOf(before, list)),
      );
    }
    return placed;
  }

  get base(): BaseRules {
    return this.#base;
  }

  get counts(): TableCounts {
    return {
      elements: this.#counts.elements + this.#wanted.size + this.#base.elements.length,
      chains: this.#counts.chains + this.#sharedChains.size + this.#base.chains.length,
      affinitySets: this.#counts.affinitySets,
    };
  }

  get serviceNames(): Iterable<NamespacedName> {
    return this.#services.keys();
  }

  /** Names of the chains that Services share; they stay until the next full sync, also when nobody uses them. */
  get sharedChainNames(): Iterable<string> {
    return this.#sharedChains.keys();
  }

  service(name: NamespacedName): CommittedService | null {
    const packed = this.#services.get(name);
    return packed === undefined ? null : unpack(packed);
  }

  /** Those of sharedChainNames, with `hashRules` of their rules. */
  get sharedChains(): Iterable<readonly [name: string, hash: number]> {
    return this.#sharedChains;
  }

  /** Every element that several Services may want, once. */
  *sharedElements(): Generator<Element> {
    for (const name of this.#wanted.keys()) {
      const blank = name.indexOf(" ");
      yield { container: name.slice(0, blank), key: name.slice(blank + 1), value: "" };
    }
  }

  /** True if the shared chain is there with these rules. */
  hasSharedChain({ name, rules }: Chain): boolean {
    return this.#sharedChains.get(name) === hashRules(rules);
  }

  /** How many Services want an element that several may want. */
  wantedBy(element: Element): number {
    return this.#wanted.get(elementName(element)) ?? 0;
  }

  #claimsOf(name: NamespacedName): readonly string[] {
    const service = this.service(name);
    return service === null ? [] : [...service.elements.map(({ key }) => key), ...service.lost];
  }

  #setSharedChains(plan: NftablesPlan): void {
    for (const { name, rules } of plan.sharedChains.values()) this.#sharedChains.set(name, hashRules(rules));
  }

  #set(name: NamespacedName, service: PlacedService | null): void {
    const chains = service?.chains.map(({ name, rules }) => [name, hashRules(rules)] as const);
    this.#setCommitted(
      name,
      service && {
        ...service,
        elements: service.elements.map((element) => ({ ...element, commentHash: hashComment(element) })),
        chains: new Map(chains),
      },
    );
  }

  #setCommitted(name: NamespacedName, service: CommittedService | null): void {
    const before = this.service(name);
    if (before !== null) {
      for (const destination of this.#claimsOf(name)) this.#claims.delete(destination, name);
      for (const element of before.sharedElements) this.#want(element, -1);
      this.#count(before, -1);
    }
    if (service === null) {
      this.#services.delete(name);
      return;
    }
    this.#services.set(name, pack(service));
    for (const { key } of service.elements) this.#claims.add(key, name);
    for (const destination of service.lost) this.#claims.add(destination, name);
    for (const element of service.sharedElements) this.#want(element, 1);
    this.#count(service, 1);
  }

  #want(element: Element, by: 1 | -1): void {
    const count = this.wantedBy(element) + by;
    const name = elementName(element);
    // Reading a character makes V8 replace the parts of the text by the whole.
    name.charCodeAt(0);
    if (count === 0) this.#wanted.delete(name);
    else this.#wanted.set(name, count);
  }

  #count(service: CommittedService, by: 1 | -1): void {
    let elements = service.elements.length;
    for (const { destinations, slots } of service.lists) elements += destinations.length * slots.length;
    this.#counts.elements += by * elements;
    this.#counts.chains += by * service.chains.size;
    this.#counts.affinitySets += by * service.affinitySets.length;
  }
}

/** Slots of the list, or of what a renamed port called it. */
function slotsOf(before: CommittedService | null, list: ServiceRules["lists"][number]): readonly string[] {
  const lists = before?.lists ?? [];
  const has = (destination: Pick<Destination, "container" | "prefix">): boolean =>
    list.destinations.some(({ container, prefix }) =>
      container === destination.container && prefix === destination.prefix
    );
  const found = lists.find(({ id }) => id === list.id) ??
    lists.find(({ destinations }) => destinations.some(has));
  return found?.slots ?? [];
}

/** True if both chains have the same rules. */
export function sameRules(left: readonly string[] | undefined, right: readonly string[]): boolean {
  return left !== undefined && sameTexts(left, right);
}
