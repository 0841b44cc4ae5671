/**
 * A table in memory that does what operations of nftables mode say, as strictly as the kernel: nothing is deleted twice, no key gets
 * a second value, no verdict leads nowhere.
 *
 * @module
 */
import type {
  BaseRules,
  Chain,
  Element,
  ObservedTable,
  Operations,
} from "../../lib/backend/nftables/plan/ruleset.ts";

const SLOT_SUFFIX = / \. \d+$/;

/** What {@link NftTable.normalized} yields. */
export interface NormalizedTable {
  readonly elements: Readonly<Record<string, readonly string[]>>;
  readonly chains: Readonly<Record<string, readonly string[]>>;
  readonly sets: Readonly<Record<string, number>>;
}

export class NftTable {
  readonly #elements = new Map<string, Map<string, string>>();
  readonly #chains = new Map<string, readonly string[]>();
  readonly #hooks = new Map<string, string>();
  readonly #sets = new Map<string, number>();

  /** Every part in a transaction of its own, in the order of the operations, as though each were the last that got through. */
  apply({ base, services, leftover }: Operations): void {
    for (const { name } of base.containers) {
      if (this.#elements.has(name)) throw new Error(`${name} is there`);
      this.#elements.set(name, new Map());
    }
    this.#deleteElements(base.deletedElements);
    for (const chain of [...base.chains, ...base.sharedChains, ...base.hookedChains]) this.#write(chain);
    for (const { name, hook } of base.hookedChains) this.#hooks.set(name, hook);
    this.#addElements(base.addedElements);
    this.#checkVerdicts();
    for (const service of services) {
      this.#deleteElements(service.deletedElements);
      for (const { name, timeoutSeconds } of service.writtenSets) this.#sets.set(name, timeoutSeconds);
      for (const chain of service.writtenChains) this.#write(chain);
      this.#addElements(service.addedElements);
      this.#drop(service.staleChains, service.staleSets);
      this.#checkVerdicts();
    }
    for (const name of leftover.foreignHooks) {
      this.#hooks.delete(name);
      this.#chains.delete(name);
    }
    this.#deleteElements(leftover.deletedElements);
    this.#drop(leftover.staleChains, leftover.staleSets);
    this.#checkVerdicts();
    for (const [name, rules] of this.#chains) if (rules.length === 0) this.#chains.delete(name);
  }

  #deleteElements(elements: readonly Element[]): void {
    for (const { container, key } of elements) {
      if (this.#elements.get(container)?.delete(key) !== true) {
        throw new Error(`${container} has no ${key} to delete`);
      }
    }
  }

  #addElements(elements: readonly Element[]): void {
    for (const { container, key, value } of elements) {
      const known = this.#elements.get(container);
      if (known === undefined) throw new Error(`${container} is not there`);
      const before = known.get(key);
      if (before !== undefined && before !== value) {
        throw new Error(`${container} has ${key} : ${before}, cannot add ${value}`);
      }
      known.set(key, value);
    }
  }

  #write({ name, rules }: Chain): void {
    if (rules.length === 0) throw new Error(`${name} has no rules`);
    for (const rule of rules) for (const target of targetsOf(rule)) this.#checkTarget(target, rule);
    this.#chains.set(name, rules);
  }

  #drop(chains: readonly string[], sets: readonly string[]): void {
    for (const name of chains) {
      if (!this.#chains.has(name)) throw new Error(`${name} is not there`);
      this.#chains.set(name, []);
    }
    for (const name of sets) {
      if (!this.#sets.delete(name)) throw new Error(`${name} is not there`);
    }
  }

  #checkTarget(target: string, where: string): void {
    const isThere = target.startsWith("@")
      ? this.#elements.has(target.slice(1)) || this.#sets.has(target.slice(1))
      : this.#chains.has(target) && this.#chains.get(target)?.length !== 0;
    if (!isThere) throw new Error(`${where} leads to ${target}, which is empty or not there`);
  }

  #checkVerdicts(): void {
    for (const [container, elements] of this.#elements) {
      for (const [key, value] of elements) {
        for (const target of targetsOf(value)) this.#checkTarget(target, `${container} ${key}`);
      }
    }
    for (const [name, rules] of this.#chains) {
      for (const rule of rules) {
        for (const target of targetsOf(rule)) this.#checkTarget(target, `${name} ${rule}`);
      }
    }
  }

  /** As though it had been read. */
  observed(comment = ""): ObservedTable {
    return {
      comment,
      chains: new Map(
        [...this.#chains].map(([name, rules]) => [name, rules.map((text, handle) => ({ text, handle }))]),
      ),
      hooks: new Map(this.#hooks),
      elementComments: new Map(),
      elements: new Map([...this.#elements].map(([name, elements]) => [name, new Map(elements)])),
      affinitySets: new Map(this.#sets),
    };
  }

  /**
   * Everything, sorted; endpoints without their slots, which must be 0 to n - 1.
   *
   * @param base its chains without hook, with those of Services, are all that counts: shared ones may be left
   */
  normalized(base: BaseRules): NormalizedTable {
    const used = new Set<string>(base.chains.map(({ name }) => name));
    const follow = (text: string): void => {
      for (const target of targetsOf(text)) {
        if (target.startsWith("@") || used.has(target)) continue;
        used.add(target);
        for (const rule of this.#chains.get(target) ?? []) follow(rule);
      }
    };
    for (const elements of this.#elements.values()) for (const value of elements.values()) follow(value);
    return {
      elements: sorted([...this.#elements].map(([name, elements]) => [name, slotless(name, elements)])),
      chains: sorted(
        [...this.#chains].filter(([name]) => used.has(name) || this.#hooks.has(name) || name.includes("/")),
      ),
      sets: sorted([...this.#sets]),
    };
  }
}

function targetsOf(text: string): string[] {
  return [...text.matchAll(/(?:goto|jump) ([^ ,"]+)|(@[^ ,"]+)/g)].map(([, chain, set]) =>
    chain ?? set ?? ""
  );
}

function slotless(container: string, elements: ReadonlyMap<string, string>): readonly string[] {
  if (!container.includes("endpoints-")) {
    return [...elements].map(([key, value]) => `${key} : ${value}`).sort();
  }
  const lists = new Map<string, string[]>();
  for (const [key, value] of elements) {
    const prefix = key.replace(SLOT_SUFFIX, "");
    lists.set(prefix, [...lists.get(prefix) ?? [], value]);
  }
  for (const [prefix, values] of lists) {
    for (let slot = 0; slot < values.length; slot++) {
      if (!elements.has(`${prefix} . ${slot}`)) throw new Error(`${container} ${prefix} has no slot ${slot}`);
    }
  }
  return [...lists].map(([prefix, values]) => `${prefix} : ${values.sort().join(", ")}`).sort();
}

function sorted<T>(entries: readonly (readonly [string, T])[]): Record<string, T> {
  return Object.fromEntries([...entries].sort(([left], [right]) => left < right ? -1 : 1));
}
