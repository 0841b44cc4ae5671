/**
 * What others did to our table: compares what nft listed with what is committed. The table is ours alone; what expires by itself
 * (clients of affinity sets), chains that nothing leads to (any more) and what packets count are no damage.
 *
 * @module
 */
import { hashRules } from "../../../netfilter/rules_hash.ts";
import { type CommittedService, type CommittedTable, ownElements } from "./committed.ts";
import type { ElementSink, ReadTable } from "./parse.ts";
import type { BaseRules, Element } from "../plan/ruleset.ts";

/** What is not as it was committed. */
export interface FoundDamage {
  /** Chain → `hashRules` of its rules as they were printed; those that have not the rules that they should. */
  readonly chains: ReadonlyMap<string, number>;
  /** Chains that are gone or hang elsewhere, sets and maps with other elements; their names. */
  readonly others: readonly string[];
}

/** Services that are compared before others may go first: some milliseconds. */
const SERVICES_AT_ONCE = 200;
/** Sums of two numbers below it are exact. */
const DIGESTS = 2 ** 52;

/** Stands for the elements of a set or map, in whatever order they come: how many, and the sum of what stands for each. */
export class ElementDigest implements ElementSink {
  #count = 0;
  #sum = 0;

  set(key: string, value: string): void {
    this.#count++;
    this.#sum = (this.#sum + hashRules([key, value]) % DIGESTS) % DIGESTS;
  }

  equals(other: ElementDigest | undefined): boolean {
    return other !== undefined && this.#count === other.#count && this.#sum === other.#sum;
  }
}

/**
 * Compares. Yields now and then, so that whoever asks can let others go first: at 10,000 Services it takes half a second of the CPU.
 */
export function* findDamage(
  observed: ReadTable<ElementDigest>,
  committed: CommittedTable,
): Generator<void, FoundDamage> {
  const comparison = new Comparison(observed);
  const { base } = committed;
  for (const { name, rules } of [...base.chains, ...base.hookedChains]) {
    comparison.chain(name, hashRules(rules));
  }
  for (const [name, hash] of committed.sharedChains) comparison.chain(name, hash);
  comparison.hooks(base);
  for (const { name } of base.containers) comparison.container(name);
  for (const element of base.elements) comparison.element(element);
  for (const element of committed.sharedElements()) comparison.element(element);
  let services = 0;
  for (const name of committed.serviceNames) {
    const service = committed.service(name);
    if (service !== null) comparison.service(service);
    if (++services % SERVICES_AT_ONCE === 0) yield;
  }
  return comparison.found();
}

/** Takes what should be there, piece by piece. */
class Comparison {
  readonly #observed: ReadTable<ElementDigest>;
  readonly #chains = new Map<string, number>();
  readonly #others = new Set<string>();
  readonly #containers = new Map<string, ElementDigest>();

  constructor(observed: ReadTable<ElementDigest>) {
    this.#observed = observed;
  }

  /** @param hash `hashRules` of its rules */
  chain(name: string, hash: number): void {
    const rules = this.#observed.chains.get(name);
    if (rules === undefined) {
      this.#others.add(name);
      return;
    }
    const print = hashRules(rules.map(({ text }) => text));
    if (print !== hash) this.#chains.set(name, print);
  }

  /** Ours that hang elsewhere are damage, and those of others, which packets come through without any rule of ours that leads there. */
  hooks({ hookedChains }: BaseRules): void {
    const own = new Map(hookedChains.map(({ name, hook }) => [name, hook]));
    for (const name of new Set([...own.keys(), ...this.#observed.hooks.keys()])) {
      if (this.#observed.hooks.get(name) !== own.get(name)) this.#others.add(name);
    }
  }

  /** It may have no element at all. */
  container(name: string): ElementDigest {
    const known = this.#containers.get(name);
    if (known !== undefined) return known;
    const digest = new ElementDigest();
    this.#containers.set(name, digest);
    return digest;
  }

  element({ container, key, value }: Element): void {
    this.container(container).set(key, value);
  }

  service(service: CommittedService): void {
    for (const [name, hash] of service.chains) this.chain(name, hash);
    for (const { name, timeoutSeconds } of service.affinitySets) {
      if (this.#observed.affinitySets.get(name) !== timeoutSeconds) this.#others.add(name);
    }
    for (const element of ownElements(service)) this.element(element);
  }

  found(): FoundDamage {
    for (const [name, digest] of this.#containers) {
      if (!digest.equals(this.#observed.elements.get(name))) this.#others.add(name);
    }
    return { chains: this.#chains, others: [...this.#others] };
  }
}
