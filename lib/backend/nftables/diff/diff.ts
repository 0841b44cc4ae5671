/**
 * From what the kernel is known to hold to what a plan wants, in as few elements as possible.
 *
 * @module
 */
import { compareBytes } from "../../../model/names.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import { hashRules } from "../../../netfilter/rules_hash.ts";
import type { Handover } from "../plan/claims.ts";
import {
  type CommittedElement,
  type CommittedService,
  type CommittedTable,
  hashComment,
  ownElements,
  type PlacedService,
  sameRules,
} from "./committed.ts";
import type { Element, NftablesPlan, Operations, ServiceOperations } from "../plan/ruleset.ts";

/** Nothing of what no Service wants. */
export const NO_LEFTOVER: Operations["leftover"] = {
  foreignHooks: [],
  deletedElements: [],
  staleChains: [],
  staleSets: [],
};

const NO_ELEMENTS: readonly Element[] = [];

/** True if there is nothing to write. */
export function isEmpty({ base, services, leftover }: Operations): boolean {
  return services.length === 0 &&
    [...Object.values(base), ...Object.values(leftover)].every((list) => list.length === 0);
}

/**
 * What must be written so that a kernel holding `committed` holds `plan` too. Endpoints that stay keep their elements;
 * a destination that goes from one Service to another does so in the operations of both.
 *
 * @throws {TypeError} if the plan leaves out a Service of `committed.affectedBy(plan)`
 */
export function diffNftables(plan: NftablesPlan, committed: CommittedTable): Operations {
  const placed = committed.place(plan);
  const shared = new SharedElementChanges(placed, committed);
  const services: ServiceOperations[] = [];
  for (const [name, service] of placed) {
    const operations = diffService(name, service, committed.service(name), shared);
    if (operations !== null) services.push(operations);
  }
  return {
    base: diffBase(plan, committed),
    services: joinHandovers(services, committed.handovers(plan)),
    leftover: NO_LEFTOVER,
  };
}

function diffBase(plan: NftablesPlan, committed: CommittedTable): Operations["base"] {
  const before = committed.base;
  const after = plan.base;
  const chainsBefore = new Map(before.chains.map(({ name, rules }) => [name, rules]));
  const hookedBefore = new Map(before.hookedChains.map((chain) => [chain.name, chain]));
  const containersBefore = new Set(before.containers.map(({ name }) => name));
  return {
    containers: after.containers.filter(({ name }) => !containersBefore.has(name)),
    chains: after.chains.filter(({ name, rules }) => !sameRules(chainsBefore.get(name), rules)),
    hookedChains: after.hookedChains.filter(({ name, hook, rules }) =>
      hookedBefore.get(name)?.hook !== hook || !sameRules(hookedBefore.get(name)?.rules, rules)
    ),
    ...diffElements(before.elements, after.elements),
    sharedChains: [...plan.sharedChains.values()].filter((chain) => !committed.hasSharedChain(chain)),
  };
}

/** Two elements of one key differ if their values or comments do; then the old one goes and the new one comes. */
function diffElements(
  before: Iterable<Element | CommittedElement>,
  after: Iterable<Element>,
): Pick<ServiceOperations, "deletedElements" | "addedElements"> {
  const gone = new Map<string, Element | CommittedElement>();
  for (const element of before) gone.set(`${element.container} ${element.key}`, element);
  const deletedElements: Element[] = [];
  const addedElements: Element[] = [];
  for (const element of after) {
    const name = `${element.container} ${element.key}`;
    const known = gone.get(name);
    gone.delete(name);
    if (known?.value === element.value && !isRenamed(known, element)) continue;
    if (known !== undefined) deletedElements.push(known);
    addedElements.push(element);
  }
  deletedElements.push(...gone.values());
  return { deletedElements, addedElements };
}

/** True if it is known that the comment, which names the port, is another one. */
function isRenamed(before: Element | CommittedElement, after: Element): boolean {
  const hash = "commentHash" in before ? before.commentHash : "";
  return hash !== "" && hash !== hashComment(after);
}

/** Which elements that several Services may want come and go. */
class SharedElementChanges {
  readonly #committed: CommittedTable;
  /** Element → change of how many want it, and the last Service that gives it up; null: the last one comes to want it. */
  readonly #changes = new Map<string, { by: number; last: NamespacedName | null }>();

  constructor(placed: ReadonlyMap<NamespacedName, PlacedService | null>, committed: CommittedTable) {
    this.#committed = committed;
    for (const [name, service] of placed) {
      const before = committed.service(name)?.sharedElements ?? NO_ELEMENTS;
      const { deletedElements, addedElements } = diffElements(before, service?.sharedElements ?? NO_ELEMENTS);
      for (const element of deletedElements) this.#change(element, -1, name);
      for (const element of addedElements) this.#change(element, 1, null);
    }
  }

  #change({ container, key }: Element, by: number, name: NamespacedName | null): void {
    const known = this.#changes.get(`${container} ${key}`);
    this.#changes.set(`${container} ${key}`, { by: (known?.by ?? 0) + by, last: name });
  }

  /** Everybody who wants a new one adds it, because any of them may be the first one written. */
  isNew(element: Element): boolean {
    return this.#committed.wantedBy(element) === 0;
  }

  /** The last one who gives it up deletes it, if nobody wants it any more. */
  isDeletedBy(element: Element, name: NamespacedName): boolean {
    const change = this.#changes.get(`${element.container} ${element.key}`);
    return change?.last === name && this.#committed.wantedBy(element) + change.by === 0;
  }
}

/** Null if nothing of the Service changes. */
function diffService(
  name: NamespacedName,
  after: PlacedService | null,
  before: CommittedService | null,
  shared: SharedElementChanges,
): ServiceOperations | null {
  const own = diffElements(
    before === null ? NO_ELEMENTS : ownElements(before),
    after === null ? NO_ELEMENTS : ownElements(after),
  );
  const { deletedElements, addedElements } = diffElements(
    before?.sharedElements ?? NO_ELEMENTS,
    after?.sharedElements ?? NO_ELEMENTS,
  );
  const operations: ServiceOperations = {
    name,
    others: [],
    deletedElements: [
      ...own.deletedElements,
      ...deletedElements.filter((element) => shared.isDeletedBy(element, name)),
    ],
    writtenSets: changedSets(before, after),
    writtenChains: (after?.chains ?? []).filter((chain) =>
      before?.chains.get(chain.name) !== hashRules(chain.rules)
    ),
    addedElements: [...addedElements.filter((element) => shared.isNew(element)), ...own.addedElements],
    staleChains: without(before?.chains.keys() ?? [], after?.chains ?? []),
    staleSets: without(before?.affinitySets.map((set) => set.name) ?? [], after?.affinitySets ?? []),
  };
  return isEmptyService(operations) ? null : operations;
}

function changedSets(
  before: CommittedService | null,
  after: PlacedService | null,
): ServiceOperations["writtenSets"] {
  const timeouts = new Map(before?.affinitySets.map((set) => [set.name, set.timeoutSeconds]));
  return (after?.affinitySets ?? []).filter((set) => timeouts.get(set.name) !== set.timeoutSeconds);
}

function without(names: Iterable<string>, wanted: readonly { readonly name: string }[]): readonly string[] {
  const kept = new Set(wanted.map(({ name }) => name));
  return [...names].filter((name) => !kept.has(name));
}

/** True if nothing is written for the Service. */
export function isEmptyService(operations: ServiceOperations): boolean {
  const { deletedElements, writtenSets, writtenChains, addedElements, staleChains, staleSets } = operations;
  return [deletedElements, writtenSets, writtenChains, addedElements, staleChains, staleSets]
    .every((list) => list.length === 0);
}

/** Makes one of the operations of Services between which a destination changes hands, at the place of the first. */
function joinHandovers(
  services: readonly ServiceOperations[],
  handovers: readonly Handover[],
): readonly ServiceOperations[] {
  const groupOf = new Map<NamespacedName, Set<NamespacedName>>();
  for (const { from, to } of handovers) {
    const group = groupOf.get(from) ?? new Set([from]);
    for (const name of groupOf.get(to) ?? [to]) group.add(name);
    for (const name of group) groupOf.set(name, group);
  }
  const joined: ServiceOperations[] = [];
  const done = new Set<NamespacedName>();
  for (const service of services) {
    if (done.has(service.name)) continue;
    const group = groupOf.get(service.name);
    joined.push(
      group === undefined ? service : joinServices(services.filter(({ name }) => group.has(name)), group),
    );
    for (const name of group ?? []) done.add(name);
  }
  return joined;
}

function joinServices(
  members: readonly ServiceOperations[],
  group: ReadonlySet<NamespacedName>,
): ServiceOperations {
  const [first] = members;
  if (first === undefined) throw new RangeError("No operations to join");
  return {
    name: first.name,
    others: [...group].filter((name) => name !== first.name).sort(compareBytes),
    deletedElements: members.flatMap((member) => member.deletedElements),
    writtenSets: members.flatMap((member) => member.writtenSets),
    writtenChains: members.flatMap((member) => member.writtenChains),
    addedElements: members.flatMap((member) => member.addedElements),
    staleChains: members.flatMap((member) => member.staleChains),
    staleSets: members.flatMap((member) => member.staleSets),
  };
}
