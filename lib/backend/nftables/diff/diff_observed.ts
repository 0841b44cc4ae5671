/**
 * The full sync: from what was read from the kernel to what a plan of all Services wants.
 *
 * @module
 */
import type { NamespacedName } from "../../../model/objects.ts";
import { ClaimsAfter, claimsByName } from "../plan/claims.ts";
import { CommittedTable, ownElements, type PlacedService, placeService, sameRules } from "./committed.ts";
import { isEmptyService } from "./diff.ts";
import type {
  Chain,
  Element,
  EndpointList,
  NftablesPlan,
  ObservedTable,
  Operations,
  ServiceOperations,
} from "../plan/ruleset.ts";

/** No table yet. */
export const NO_TABLE: ObservedTable = {
  comment: "",
  chains: new Map(),
  hooks: new Map(),
  elements: new Map(),
  elementComments: new Map(),
  affinitySets: new Map(),
};

/** What leads from what was read to the plan, and what is there after that. */
export interface FullSync {
  readonly operations: Operations;
  /** Valid once all of `operations` were written. */
  readonly committed: CommittedTable;
}

/** A {@linkcode FullSync} in steps: operations of 10,000 Services at once would take more memory than all the rest. */
export interface StepwiseFullSync {
  readonly base: Operations["base"];
  /** Made as they are asked for. To be read once, to its end. */
  readonly services: Iterable<ServiceOperations>;
  /** What is left to write, and what is there then; to be asked for after `services` was read to its end. */
  readonly end: () => Pick<Operations, "leftover"> & Pick<FullSync, "committed"> & {
    /** Sets and maps that no plan knows; `leftover` empties them. */
    readonly unknownContainers: readonly string[];
  };
}

/**
 * Compares by text: what is there as wanted, slots and affinity sets included, stays. All else in our table is leftover,
 * whoever made it.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function diffObserved(plan: NftablesPlan, observed: ObservedTable): FullSync {
  const steps = diffObservedStepwise(plan, observed);
  const services = [...steps.services];
  const { leftover, committed } = steps.end();
  return { operations: { base: steps.base, services, leftover }, committed };
}

/**
 * The same in steps.
 *
 * @throws {TypeError} if the plan is not one of all Services
 */
export function diffObservedStepwise(plan: NftablesPlan, observed: ObservedTable): StepwiseFullSync {
  if (!plan.all) throw new TypeError("A full sync needs a plan of all Services");
  const table = new ObservedRest(observed);
  const base = diffBase(plan, table);
  const committed = CommittedTable.of(plan);
  return {
    base,
    services: diffServices(plan, table, committed),
    end: () => ({
      leftover: table.leftover(),
      committed,
      unknownContainers: table.containersBut(plan.base.containers),
    }),
  };
}

function* diffServices(
  plan: NftablesPlan,
  table: ObservedRest,
  committed: CommittedTable,
): Generator<ServiceOperations> {
  const claims = new ClaimsAfter(plan.services, claimsByName());
  for (const [name, rules] of plan.services) {
    if (rules === null) continue;
    const service = placeService(rules, claims.lostBy(name, rules), (list) => table.slots(list));
    committed.add(name, service);
    const operations = diffService(name, service, table);
    if (!isEmptyService(operations)) yield operations;
  }
}

/** What was read, less what was found to be wanted. */
class ObservedRest {
  readonly #observed: ObservedTable;
  readonly #elements: ReadonlyMap<string, Map<string, string>>;
  readonly #wanted = new Set<string>();
  readonly #chains: Set<string>;
  readonly #sets: Set<string>;

  constructor(observed: ObservedTable) {
    this.#observed = observed;
    this.#elements = new Map(
      [...observed.elements].map(([container, elements]) => [container, new Map(elements)]),
    );
    this.#chains = new Set(observed.chains.keys());
    this.#sets = new Set(observed.affinitySets.keys());
  }

  /** What must be done so that the element is there. */
  want(element: Element, deleted: Element[], added: Element[]): void {
    const { container, key, value } = element;
    const rest = this.#elements.get(container);
    const known = rest?.get(key);
    if (rest === undefined) {
      added.push(element);
    } else if (known === undefined) {
      // A second one who wants it finds it wanted already.
      if (!this.#wanted.has(`${container} ${key}`)) added.push(element);
    } else {
      rest.delete(key);
      if (known !== value || this.#isRenamed(element)) {
        deleted.push({ container, key, value: known });
        added.push(element);
      }
      // Only members of sets may be wanted twice.
      if (value === "") this.#wanted.add(`${container} ${key}`);
    }
  }

  /** True if it is there with a comment, which names the port, that is another one. */
  #isRenamed({ container, key, comment }: Element): boolean {
    const found = this.#observed.elementComments.get(container)?.get(key);
    return found !== undefined && comment !== undefined && found !== comment;
  }

  /** True if the chain is there with these rules. */
  wantChain({ name, rules }: Chain): boolean {
    this.#chains.delete(name);
    return sameRules(this.#observed.chains.get(name)?.map(({ text }) => text), rules);
  }

  wantSet(name: string, timeoutSeconds: number): boolean {
    this.#sets.delete(name);
    return this.#observed.affinitySets.get(name) === timeoutSeconds;
  }

  hasContainer(name: string): boolean {
    return this.#observed.elements.has(name);
  }

  containersBut(known: readonly { readonly name: string }[]): readonly string[] {
    const names = new Set(known.map(({ name }) => name));
    return [...this.#observed.elements.keys()].filter((name) => !names.has(name));
  }

  hasHook(name: string, hook: string): boolean {
    return this.#observed.hooks.get(name) === hook;
  }

  /** The endpoints of a list as its first destination that has any shows them. */
  slots({ destinations, endpoints }: EndpointList): readonly (string | undefined)[] {
    for (const { container, prefix } of destinations) {
      const elements = this.#elements.get(container);
      if (elements === undefined || elements.size === 0) continue;
      const slots = endpoints.map((_, slot) => elements.get(`${prefix} . ${slot}`));
      if (slots.some((slot) => slot !== undefined)) return slots;
    }
    return [];
  }

  leftover(): Operations["leftover"] {
    const deletedElements: Element[] = [];
    for (const [container, elements] of this.#elements) {
      for (const [key, value] of elements) deletedElements.push({ container, key, value });
    }
    const isHook = (name: string): boolean => this.#observed.hooks.has(name);
    return {
      foreignHooks: [...this.#chains].filter(isHook),
      deletedElements,
      staleChains: [...this.#chains].filter((name) => !isHook(name)),
      staleSets: [...this.#sets],
    };
  }
}

function diffBase(plan: NftablesPlan, table: ObservedRest): Operations["base"] {
  const deletedElements: Element[] = [];
  const addedElements: Element[] = [];
  for (const element of plan.base.elements) table.want(element, deletedElements, addedElements);
  return {
    containers: plan.base.containers.filter(({ name }) => !table.hasContainer(name)),
    chains: plan.base.chains.filter((chain) => !table.wantChain(chain)),
    hookedChains: plan.base.hookedChains.filter((chain) =>
      !table.wantChain(chain) || !table.hasHook(chain.name, chain.hook)
    ),
    deletedElements,
    addedElements,
    sharedChains: [...plan.sharedChains.values()].filter((chain) => !table.wantChain(chain)),
  };
}

function diffService(name: NamespacedName, service: PlacedService, table: ObservedRest): ServiceOperations {
  const deletedElements: Element[] = [];
  const addedElements: Element[] = [];
  for (const element of service.sharedElements) table.want(element, deletedElements, addedElements);
  for (const element of ownElements(service)) table.want(element, deletedElements, addedElements);
  return {
    name,
    others: [],
    deletedElements,
    writtenSets: service.affinitySets.filter((set) => !table.wantSet(set.name, set.timeoutSeconds)),
    writtenChains: service.chains.filter((chain) => !table.wantChain(chain)),
    addedElements,
    staleChains: [],
    staleSets: [],
  };
}
