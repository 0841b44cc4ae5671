/**
 * Difference between a listed table and a plan, Service by Service: a full sync writes it, a drift check
 * looks whether there is any.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../../model/objects.ts";
import {
  type Container,
  diffObjects,
  type Element,
  type NftObjects,
  NftTransaction,
  NO_OBJECTS,
} from "../../../netfilter/nft_objects.ts";
import { type ListedTable, parseTable } from "../../../netfilter/nft_listing.ts";
import { FAMILY_WORDS, isAffinitySet, isServiceChain, isSharedSet, TABLE_NAME } from "../plan/chains.ts";
import type { NftablesPlan } from "../plan/ruleset.ts";
import { NftStore, placeService } from "./store.ts";

/** No table yet. */
export const NO_TABLE: ListedTable = parseTable("");

/** Listed objects, less those that were found to be wanted. */
export class ListedRest {
  readonly #listed: ListedTable;
  readonly #elements: ReadonlyMap<string, Map<string, string>>;
  /** Elements of shared sets that were found to be wanted: the next Service that wants one finds it, too. */
  readonly #shared = new Set<string>();
  readonly #chains: Set<string>;
  readonly #affinitySets: Set<string>;

  constructor(listed: ListedTable) {
    this.#listed = listed;
    const names = [...listed.containers.keys()];
    this.#elements = new Map(
      names.filter((name) => !isAffinitySet(name))
        .map((name) => [name, new Map(listed.containers.get(name)?.elements)]),
    );
    this.#affinitySets = new Set(names.filter(isAffinitySet));
    this.#chains = new Set(listed.chains.keys());
  }

  /** The elements of a set or map that no Service was found to want. */
  elements(container: string): ReadonlyMap<string, string> | undefined {
    return this.#elements.get(container);
  }

  /** Takes the listed objects under the wanted names. */
  take(wanted: NftObjects): NftObjects {
    const elements: Element[] = [];
    for (const element of wanted.elements) {
      const held = this.#take(element);
      if (held !== undefined) elements.push(held);
    }
    return {
      containers: wanted.containers.flatMap((container) => this.#takeContainer(container)),
      chains: wanted.chains.flatMap(({ name }) => {
        this.#chains.delete(name);
        return this.#listed.chains.get(name) ?? [];
      }),
      elements,
    };
  }

  #take(wanted: Element): Element | undefined {
    const { container, key } = wanted;
    const rest = this.#elements.get(container);
    const value = rest?.get(key);
    const isShared = isSharedSet(container);
    if (value === undefined) return isShared && this.#shared.has(`${container} ${key}`) ? wanted : undefined;
    rest?.delete(key);
    if (isShared) this.#shared.add(`${container} ${key}`);
    const comment = this.#listed.containers.get(container)?.comments.get(key);
    return { container, key, value, ...comment === undefined ? {} : { comment } };
  }

  #takeContainer(wanted: Container): readonly Container[] {
    const listed = this.#listed.containers.get(wanted.name);
    if (listed === undefined) return [];
    this.#affinitySets.delete(wanted.name);
    const { timeoutSeconds: _, ...rest } = wanted;
    const { timeoutSeconds } = listed;
    return [timeoutSeconds === undefined ? rest : { ...rest, timeoutSeconds }];
  }

  /** Objects not taken, without sets and maps other than affinity sets: rules may use them. */
  rest(): NftObjects {
    const elements: Element[] = [];
    for (const [container, of] of this.#elements) {
      for (const [key, value] of of) elements.push({ container, key, value });
    }
    return {
      containers: [...this.#affinitySets].map((name) => ({ name, kind: "set", spec: "", comment: "" })),
      chains: [...this.#chains].flatMap((name) => this.#listed.chains.get(name) ?? []),
      elements,
    };
  }
}

/** Changes to write for one Service. */
export interface ServiceTransaction {
  readonly name: NamespacedName;
  readonly transaction: NftTransaction;
}

/**
 * Changes from a listed table to a plan of all Services, in steps: transactions of 10,000 Services at once would take
 * more memory than all the rest. Any cut between two Services is safe: each of them is complete or not there at all.
 */
export class FullSync {
  /** Changes of objects that do not depend on Services. */
  readonly base: NftTransaction;
  /** Content of the table once all was written. */
  readonly store: NftStore;
  /** Sets and maps that no plan knows, such as another release's; {@linkcode FullSync.leftover} empties them. */
  readonly unknownContainers: readonly string[];
  readonly #plan: NftablesPlan;
  readonly #listed: ListedTable;
  readonly #rest: ListedRest;
  readonly #refused: ReadonlySet<NamespacedName>;

  /**
   * @param refused Services that keep listed elements of the same keys, and objects of their name: new ones are refused
   * @throws {TypeError} if the plan is not one of all Services
   */
  constructor(plan: NftablesPlan, listed: ListedTable, refused: ReadonlySet<NamespacedName> = new Set()) {
    if (!plan.all) throw new TypeError("A full sync needs a plan of all Services");
    this.#plan = plan;
    this.#listed = listed;
    this.#refused = refused;
    this.#rest = new ListedRest(listed);
    this.store = new NftStore(plan);
    const { base } = this.store;
    this.base = diffObjects(base, this.#rest.take(base));
    const known = new Set(base.containers.map(({ name }) => name));
    this.unknownContainers = [...listed.containers.keys()].filter((name) =>
      !known.has(name) && !isAffinitySet(name)
    );
  }

  /** Changes of each Service, made on demand. To be read once, to its end. */
  *services(): Generator<ServiceTransaction> {
    for (const [name, rules] of this.#plan.services) {
      if (rules === null || this.#refused.has(name)) continue;
      const objects = placeService(rules, (container) => this.#rest.elements(container));
      this.store.set(name, objects);
      const transaction = diffObjects(objects, this.#rest.take(objects));
      if (!transaction.isEmpty) yield { name, transaction };
    }
    for (const name of this.#refused) this.#keep(name);
  }

  #keep(name: NamespacedName): void {
    const rules = this.#plan.services.get(name);
    if (!rules) return;
    const elements: Element[] = [];
    const keep = (container: string, key: string): boolean => {
      const value = this.#listed.containers.get(container)?.elements.get(key);
      if (value !== undefined) elements.push({ container, key, value });
      return value !== undefined;
    };
    for (const { container, key } of [...rules.elements, ...rules.sharedElements]) keep(container, key);
    for (const { container, prefix } of rules.lists.flatMap(({ destinations }) => destinations)) {
      for (let slot = 0; keep(container, `${prefix} . ${slot}`);) slot++;
    }
    // `endpoint-BNZJJVPA-shop/cart/tcp/…`: the kind, eight digits of a hash, the Service.
    const isOwn = (object: string): boolean => object.startsWith(`${name}/`, object.indexOf("-") + 10);
    const kept: NftObjects = {
      containers: [...this.#listed.containers].filter(([set]) => isAffinitySet(set) && isOwn(set)).map((
        [set, { timeoutSeconds = 0 }],
      ) => ({ name: set, kind: "set", spec: "", timeoutSeconds, comment: "" })),
      chains: [...this.#listed.chains.values()].filter((chain) => isOwn(chain.name)),
      elements,
    };
    this.#rest.take(kept);
    this.store.keep(name, kept);
  }

  /** Removal of stale objects; to be asked for after all Services were written. */
  leftover(): NftTransaction {
    const transaction = diffObjects(NO_OBJECTS, this.#rest.rest());
    if (this.#refused.size === 0) return transaction;
    // Kept objects may jump to chains that no other Service shares any more.
    const own = transaction.flushedChains.filter(isServiceChain);
    transaction.flushedChains.length = 0;
    for (const name of own) transaction.flushedChains.push(name);
    return transaction;
  }
}

/** Services that are compared before other work may go first: some milliseconds. */
const SERVICES_AT_ONCE = 200;

/**
 * Changes from a listed table to its known content: none, unless another process changed it. The table is kproxy's;
 * what expires by itself (clients of affinity sets), chains that nothing jumps to (any more), sets and maps that no
 * rule of ours uses and traffic counts are no damage. Yields now and then: 10,000 Services take 0.5 s of the CPU.
 */
export function* findDrift(store: NftStore, listed: ListedTable): Generator<void, readonly NftTransaction[]> {
  const rest = new ListedRest(listed);
  const { base } = store;
  const surplus = new NftTransaction();
  const found = [diffObjects(base, rest.take(base)), surplus];
  let services = 0;
  for (const name of store.serviceNames) {
    const objects = store.service(name);
    const transaction = diffObjects(objects, rest.take(objects));
    if (!transaction.isEmpty) found.push(transaction);
    if (++services % SERVICES_AT_ONCE === 0) yield;
  }
  const known = new Set(base.containers.map(({ name }) => name));
  const { chains, elements } = rest.rest();
  // One by one: there may be more than a call takes.
  for (const element of elements) if (known.has(element.container)) surplus.deletedElements.push(element);
  for (const { name, hook } of chains) if (hook !== undefined) surplus.deletedBaseChains.push(name);
  return found;
}

/** The whole plan as text, for a table that is not there yet, with a comment before the commands of each Service. */
export function renderPlan(plan: NftablesPlan, table: string = tableOf(plan.family)): string {
  const sync = new FullSync(plan, NO_TABLE);
  const { comment } = plan.base;
  const lines = [tableLine(table, comment), ...sync.base.lines(table)];
  for (const { name, transaction } of sync.services()) {
    lines.push(`# ${name}`);
    for (const line of transaction.lines(table)) lines.push(line);
  }
  return lines.join("\n") + "\n";
}

/** Makes the table; `comment` may be `""`. */
export function tableLine(table: string, comment: string): string {
  return `add table ${table}${comment === "" ? "" : ` { comment "${comment}" ; }`}`;
}

/** Family and name as in commands, e.g. `ip kproxy`. */
export function tableOf(family: IpFamily, name: string = TABLE_NAME): string {
  return `${FAMILY_WORDS[family].ip} ${name}`;
}
