/**
 * The objects of an nftables table, and the transaction that turns the existing ones into the desired ones.
 *
 * All text is what `nft -f -` reads and, where it can be, what `nft list` prints, so that text read back can be compared
 * as it is.
 *
 * @module
 */
import { sameTexts } from "../model/service_port.ts";

/** An element of a set or map. `container` and `key` name it; two with the same name are the same element. */
export interface Element {
  /** Name of the set or map. */
  readonly container: string;
  /** Key as nft prints it, e.g. `10.96.10.1 . tcp . 80`. */
  readonly key: string;
  /** Value in a map, e.g. `goto tcp-3` or `10.244.0.11 . 8080`; `""` for a set. */
  readonly value: string;
  /** At most 128 bytes of UTF-8. A comment read as missing equals any: some kernels lose them. */
  readonly comment?: string;
}

/** A chain and all its rules. */
export interface Chain {
  /** Its name in the table. */
  readonly name: string;
  /** Hook of a base chain, as `nft list` prints it, e.g. `type nat hook prerouting priority dstnat; policy accept;`. */
  readonly hook?: string;
  /** All rules of the chain, in order, each without `add rule …`. */
  readonly rules: readonly string[];
}

/** A set or map. */
export interface Container {
  /** Its name in the table. */
  readonly name: string;
  /** Set or map: elements of a map have values. */
  readonly kind: "set" | "map";
  /** Definition in the braces, without timeout and comment, e.g. `type ipv4_addr . inet_proto . inet_service : verdict ;`. */
  readonly spec: string;
  /** Timeout of its elements; absent: they do not expire. */
  readonly timeoutSeconds?: number;
  /** The comment; `""`: none. */
  readonly comment: string;
}

/** Objects of one table, desired or existing. */
export interface NftObjects {
  /** Sets and maps. */
  readonly containers: readonly Container[];
  /** Chains; each jumps or goes only to earlier ones. */
  readonly chains: readonly Chain[];
  /** Elements with distinct names. */
  readonly elements: readonly Element[];
}

/** An empty table. */
export const NO_OBJECTS: NftObjects = { containers: [], chains: [], elements: [] };

/** Number of objects that a transaction writes, per kind. Maps count as sets. */
export type WrittenCounts = Record<"chains" | "elements" | "sets", number>;

/** Weight of a chain or a set in {@linkcode NftTransaction.weight}, where an element has weight one. */
const OBJECT_WEIGHT = 10;

/** Changes to a table, in the order in which nft takes them. Prints itself as input of `nft -f -`. */
export class NftTransaction {
  readonly deletedElements: Element[] = [];
  /** Sets and maps to create, or to give another timeout. */
  readonly containers: Container[] = [];
  /** Regular chains to create, or to flush and fill again. */
  readonly chains: Chain[] = [];
  readonly addedElements: Element[] = [];
  /** Base chains to create again, because an existing one keeps its hook and priority; after all jump targets. */
  readonly baseChains: Chain[] = [];
  /** Base chains to delete; no rule jumps to them, so they are deleted at once. */
  readonly deletedBaseChains: string[] = [];
  /** Regular chains to flush. They are deleted later: the kernel may not know yet that nothing jumps to them. */
  readonly flushedChains: string[] = [];
  readonly deletedContainers: string[] = [];

  /** True if there are no changes. */
  get isEmpty(): boolean {
    return this.weight === 0;
  }

  get counts(): WrittenCounts {
    return {
      chains: this.chains.length + this.baseChains.length + this.deletedBaseChains.length +
        this.flushedChains.length,
      elements: this.deletedElements.length + this.addedElements.length,
      sets: this.containers.length + this.deletedContainers.length,
    };
  }

  /** Approximate cost, in elements. */
  get weight(): number {
    const { chains, elements, sets } = this.counts;
    return elements + OBJECT_WEIGHT * (chains + sets);
  }

  /** Names of the chains that the transaction fills. */
  get filledChains(): readonly string[] {
    return [...this.chains, ...this.baseChains].map(({ name }) => name);
  }

  /** @param table family and name, e.g. `ip kproxy` */
  lines(table: string): readonly string[] {
    return [
      ...elementLines(`delete element ${table}`, this.deletedElements, ({ key }) => key),
      ...this.containers.map((container) => containerLine(table, container)),
      ...this.chains.flatMap((chain) => [
        `add chain ${table} ${chain.name}`,
        `flush chain ${table} ${chain.name}`,
        ...ruleLines(table, chain),
      ]),
      ...elementLines(`add element ${table}`, this.addedElements, elementText),
      ...this.baseChains.flatMap((chain) => [
        `add chain ${table} ${chain.name}`,
        `delete chain ${table} ${chain.name}`,
        `add chain ${table} ${chain.name} { ${chain.hook} }`,
        ...ruleLines(table, chain),
      ]),
      ...this.deletedBaseChains.flatMap((name) => [
        `flush chain ${table} ${name}`,
        `delete chain ${table} ${name}`,
      ]),
      ...this.flushedChains.map((name) => `flush chain ${table} ${name}`),
      ...this.deletedContainers.map((name) => `delete set ${table} ${name}`),
    ];
  }
}

/**
 * The transaction from `held` to `wanted`: objects that are not wanted are deleted. Chains are compared by hook and rules,
 * elements by value and comment, sets and maps by existence and timeout: `add set` can change a timeout.
 */
export function diffObjects(wanted: NftObjects, held: NftObjects): NftTransaction {
  const transaction = new NftTransaction();
  diffElements(transaction, wanted.elements, held.elements);
  const containers = byName(held.containers);
  for (const container of wanted.containers) {
    const known = containers.get(container.name);
    containers.delete(container.name);
    if (known === undefined || known.timeoutSeconds !== container.timeoutSeconds) {
      transaction.containers.push(container);
    }
  }
  for (const name of containers.keys()) transaction.deletedContainers.push(name);
  const chains = byName(held.chains);
  for (const chain of wanted.chains) {
    const known = chains.get(chain.name);
    chains.delete(chain.name);
    if (known !== undefined && known.hook === chain.hook && sameTexts(known.rules, chain.rules)) continue;
    (chain.hook === undefined ? transaction.chains : transaction.baseChains).push(chain);
  }
  for (const { name, hook } of chains.values()) {
    (hook === undefined ? transaction.flushedChains : transaction.deletedBaseChains).push(name);
  }
  return transaction;
}

function byName<Named extends { readonly name: string }>(objects: readonly Named[]): Map<string, Named> {
  return new Map(objects.map((object) => [object.name, object]));
}

/** Replaces elements that differ: the old one is deleted, the new one added, since nft changes none in place. */
function diffElements(
  { deletedElements, addedElements }: NftTransaction,
  wanted: readonly Element[],
  held: readonly Element[],
): void {
  const rest = new Map<string, Map<string, Element>>();
  for (const element of held) {
    let elements = rest.get(element.container);
    if (elements === undefined) rest.set(element.container, elements = new Map());
    elements.set(element.key, element);
  }
  for (const element of wanted) {
    const elements = rest.size === 0 ? undefined : rest.get(element.container);
    const known = elements?.get(element.key);
    if (known !== undefined) {
      elements?.delete(element.key);
      if (known.value === element.value && !isRenamed(known, element)) continue;
      deletedElements.push(known);
    }
    addedElements.push(element);
  }
  for (const elements of rest.values()) {
    for (const element of elements.values()) deletedElements.push(element);
  }
}

/** True if both comments are known and differ; the comment names the port. */
function isRenamed(held: Element, wanted: Element): boolean {
  return held.comment !== undefined && wanted.comment !== undefined && held.comment !== wanted.comment;
}

function containerLine(table: string, { name, kind, spec, timeoutSeconds, comment }: Container): string {
  const timeout = timeoutSeconds === undefined ? "" : ` timeout ${timeoutSeconds}s ;`;
  const said = comment === "" ? "" : ` comment "${comment}" ;`;
  return `add ${kind} ${table} ${name} { ${spec}${timeout}${said} }`;
}

function ruleLines(table: string, { name, rules }: Chain): readonly string[] {
  return rules.map((rule) => `add rule ${table} ${name} ${rule}`);
}

/** The element's text in `add element`. */
export function elementText({ key, value, comment }: Element): string {
  const said = comment === undefined ? "" : ` comment "${comment}"`;
  return value === "" ? `${key}${said}` : `${key}${said} : ${value}`;
}

/** One command for each run of elements of the same container. */
function elementLines(
  command: string,
  elements: readonly Element[],
  text: (element: Element) => string,
): readonly string[] {
  const lines: string[] = [];
  for (let at = 0; at < elements.length;) {
    const { container } = elements[at]!;
    const start = at;
    while (elements[at]?.container === container) at++;
    lines.push(`${command} ${container} { ${elements.slice(start, at).map(text).join(", ")} }`);
  }
  return lines;
}
