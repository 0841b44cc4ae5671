/**
 * The objects of a table of nftables, and the transaction that leads from those that it holds to those that are wanted.
 *
 * All text is what `nft -f -` reads and, where it can be, what `nft list` prints, so that what was read back compares by
 * text.
 *
 * @module
 */
import { sameTexts } from "../model/service_port.ts";

/** One element of a set or map. `container` and `key` name it; two of the same name are the same element. */
export interface Element {
  /** Name of the set or map. */
  readonly container: string;
  /** As nft prints it, e.g. `10.96.10.1 . tcp . 80`. */
  readonly key: string;
  /** Of a map, e.g. `goto tcp-3` or `10.244.0.11 . 8080`; `""` for a set. */
  readonly value: string;
  /** At most 128 bytes of UTF-8. One that was read without any equals one with any: some kernels forget them. */
  readonly comment?: string;
}

/** A chain, with all its rules. */
export interface Chain {
  /** Its name in the table. */
  readonly name: string;
  /** Of a base chain, as `nft list` prints it, e.g. `type nat hook prerouting priority dstnat; policy accept;`. */
  readonly hook?: string;
  /** Without `add rule …`; all of the chain, in order. */
  readonly rules: readonly string[];
}

/** A set or map. */
export interface Container {
  /** Its name in the table. */
  readonly name: string;
  /** Whether its elements have values. */
  readonly kind: "set" | "map";
  /** Between the braces, without timeout and comment, e.g. `type ipv4_addr . inet_proto . inet_service : verdict ;`. */
  readonly spec: string;
  /** Of elements that expire by themselves. */
  readonly timeoutSeconds?: number;
  /** `""`: none. */
  readonly comment: string;
}

/** Objects of one table: what is wanted, or what is held. */
export interface NftObjects {
  /** Its sets and maps. */
  readonly containers: readonly Container[];
  /** Each goes or jumps only to earlier ones. */
  readonly chains: readonly Chain[];
  /** No two of one name. */
  readonly elements: readonly Element[];
}

/** Nothing at all. */
export const NO_OBJECTS: NftObjects = { containers: [], chains: [], elements: [] };

/** How much a transaction writes, per kind. Maps are sets, too. */
export type WrittenCounts = Record<"chains" | "elements" | "sets", number>;

/** What a chain or a set counts in {@linkcode NftTransaction.weight}, where an element counts one. */
const OBJECT_WEIGHT = 10;

/** What must be written, in the order in which nft takes it. It prints itself as input of `nft -f -`. */
export class NftTransaction {
  readonly deletedElements: Element[] = [];
  /** Sets and maps that are made, or get another timeout. */
  readonly containers: Container[] = [];
  /** Regular chains that are made, or flushed and filled anew. */
  readonly chains: Chain[] = [];
  readonly addedElements: Element[] = [];
  /** They are made anew, because one that is there keeps its hook and priority; after all that they lead to. */
  readonly baseChains: Chain[] = [];
  /** Base chains that are not wanted: no rule leads to them, so they go at once. */
  readonly deletedBaseChains: string[] = [];
  /** Regular chains that are not wanted. The kernel may only know later that nothing goes to them, so they are deleted later. */
  readonly flushedChains: string[] = [];
  readonly deletedContainers: string[] = [];

  /** True if there is nothing to write. */
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

  /** About what it costs, in elements. */
  get weight(): number {
    const { chains, elements, sets } = this.counts;
    return elements + OBJECT_WEIGHT * (chains + sets);
  }

  /** Names of chains that it fills. */
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
 * What leads from `held` to `wanted`: all that is held and not wanted goes. Chains are compared by hook and rules, elements by value and
 * comment, sets and maps by existence and timeout: `add set` gives an existing set another timeout.
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

/** Of two elements of one name that differ, the old one goes and the new one comes: nft changes none in place. */
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

/** True if it is known that the comment, which names the port, is another one. */
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

/** As nft reads it in `add element`. */
export function elementText({ key, value, comment }: Element): string {
  const said = comment === undefined ? "" : ` comment "${comment}"`;
  return value === "" ? `${key}${said}` : `${key}${said} : ${value}`;
}

/** One command for each run of elements of one container. */
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
