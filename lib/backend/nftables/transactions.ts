/**
 * From operations to the texts of transactions, each line with the Service it is of.
 *
 * @module
 */
import type { NamespacedName } from "../../model/objects.ts";
import type {
  AffinitySet,
  Chain,
  Container,
  Element,
  HookedChain,
  Operations,
  ServiceOperations,
} from "./ruleset.ts";

/** A table, and what its sets of clients hold. */
export interface TableAddress {
  /** Family and name as in commands, e.g. `ip kproxy`. */
  readonly table: string;
  readonly addressType: "ipv4_addr" | "ipv6_addr";
}

/** How much the rules of some Services write, per kind. */
export type WrittenCounts = Record<"chains" | "elements" | "rules" | "sets", number>;

/** Containers, chains and elements that are there whatever the Services are; `hooked` false leaves out the chains that the kernel calls. */
export function baseLines(
  { table }: TableAddress,
  base: Operations["base"],
  hooked: boolean,
): readonly string[] {
  return [
    ...base.deletedElements.length === 0 ? [] : deletedElementLines(table, base.deletedElements),
    ...base.containers.map((container) => containerLine(table, container)),
    ...base.chains.flatMap((chain) => chainLines(table, chain)),
    ...base.sharedChains.flatMap((chain) => chainLines(table, chain)),
    ...addedElementLines(table, base.addedElements),
    ...hooked ? hookedLines({ table }, base.hookedChains) : [],
  ];
}

/** Chains that the kernel calls. They are made anew, because one that is there keeps its hook and priority. */
export function hookedLines(
  { table }: Pick<TableAddress, "table">,
  chains: readonly HookedChain[],
): readonly string[] {
  return chains.flatMap(({ name, hook, rules }) => [
    `add chain ${table} ${name}`,
    `delete chain ${table} ${name}`,
    `add chain ${table} ${name} { ${hook} }`,
    ...rules.map((rule) => `add rule ${table} ${name} ${rule}`),
  ]);
}

/** What one Service contributes, in the order in which nft takes it. */
export function serviceLines(
  { table, addressType }: TableAddress,
  operations: ServiceOperations,
): readonly string[] {
  const { deletedElements, writtenSets, writtenChains, addedElements, staleChains, staleSets } = operations;
  return [
    ...deletedElementLines(table, deletedElements),
    ...writtenSets.map((set) => affinitySetLine({ table, addressType }, set)),
    ...writtenChains.flatMap((chain) => chainLines(table, chain)),
    ...addedElementLines(table, addedElements),
    ...staleLines(table, { staleChains, staleSets }),
  ];
}

/** What no Service wants any more. */
export function leftoverLines(
  { table }: TableAddress,
  { deletedElements, staleChains, staleSets }: Operations["leftover"],
): readonly string[] {
  return [...deletedElementLines(table, deletedElements), ...staleLines(table, { staleChains, staleSets })];
}

/** Deletes chains that were flushed before and that nothing goes to any more. */
export function deletedChainLines({ table }: TableAddress, names: readonly string[]): readonly string[] {
  return names.map((name) => `delete chain ${table} ${name}`);
}

/** How much these operations write. */
export function countWritten(operations: Operations): WrittenCounts {
  const { base, services, leftover } = operations;
  const counts = { chains: 0, elements: 0, rules: 0, sets: base.containers.length };
  const addChains = (chains: readonly Chain[]): void => {
    counts.chains += chains.length;
    for (const { rules } of chains) counts.rules += rules.length;
  };
  for (const chains of [base.chains, base.sharedChains, base.hookedChains]) addChains(chains);
  counts.elements += base.deletedElements.length + base.addedElements.length +
    leftover.deletedElements.length;
  counts.chains += leftover.staleChains.length;
  counts.sets += leftover.staleSets.length;
  for (const service of services) {
    addChains(service.writtenChains);
    counts.chains += service.staleChains.length;
    counts.sets += service.writtenSets.length + service.staleSets.length;
    counts.elements += service.deletedElements.length + service.addedElements.length;
  }
  return counts;
}

/** About how much of a transaction's time a Service takes: its elements, and ten times its chains and sets. */
export function weightOf(operations: ServiceOperations): number {
  const { deletedElements, writtenSets, writtenChains, addedElements, staleChains, staleSets } = operations;
  const objects = writtenSets.length + writtenChains.length + staleChains.length + staleSets.length;
  return deletedElements.length + addedElements.length + 10 * objects;
}

/** The Services in groups of about `weight`, in their order. */
export function* groupsByWeight(
  services: readonly ServiceOperations[],
  weight: number,
): Iterable<readonly ServiceOperations[]> {
  let group: ServiceOperations[] = [];
  let sum = 0;
  for (const service of services) {
    group.push(service);
    sum += weightOf(service);
    if (sum < weight) continue;
    yield group;
    group = [];
    sum = 0;
  }
  if (group.length > 0) yield group;
}

/** The texts of several Services as one, and whose each line is. */
export class TransactionText {
  readonly #lines: string[] = [];
  /** Number of the last line of each owner, in order. */
  readonly #ends: { readonly end: number; readonly owner: NamespacedName | null }[] = [];

  /** Adds lines of a Service, or of none. */
  add(owner: NamespacedName | null, lines: readonly string[]): void {
    if (lines.length === 0) return;
    for (const line of lines) this.#lines.push(line);
    this.#ends.push({ end: this.#lines.length, owner });
  }

  get isEmpty(): boolean {
    return this.#lines.length === 0;
  }

  /** Whose line it is (1-based); null if no Service's. */
  ownerOf(line: number): NamespacedName | null {
    return this.#ends.find(({ end }) => line <= end)?.owner ?? null;
  }

  toString(): string {
    return this.isEmpty ? "" : this.#lines.join("\n") + "\n";
  }
}

function containerLine(table: string, { name, kind, spec, comment }: Container): string {
  const said = comment === "" ? "" : ` comment "${comment}" ;`;
  return `add ${kind} ${table} ${name} { ${spec}${said} }`;
}

function affinitySetLine(
  { table, addressType }: TableAddress,
  { name, timeoutSeconds }: AffinitySet,
): string {
  return `add set ${table} ${name} { type ${addressType} ; flags dynamic,timeout ; timeout ${timeoutSeconds}s ; }`;
}

function chainLines(table: string, { name, rules }: Chain): readonly string[] {
  return [
    `add chain ${table} ${name}`,
    `flush chain ${table} ${name}`,
    ...rules.map((rule) => `add rule ${table} ${name} ${rule}`),
  ];
}

function staleLines(
  table: string,
  { staleChains, staleSets }: {
    readonly staleChains: readonly string[];
    readonly staleSets: readonly string[];
  },
): readonly string[] {
  return [
    ...staleChains.map((name) => `flush chain ${table} ${name}`),
    ...staleSets.map((name) => `delete set ${table} ${name}`),
  ];
}

function deletedElementLines(table: string, elements: readonly Element[]): readonly string[] {
  return elementLines("delete", table, elements, ({ key }) => key);
}

function addedElementLines(table: string, elements: readonly Element[]): readonly string[] {
  return elementLines("add", table, elements, ({ key, value, comment }) => {
    const said = comment === undefined ? "" : ` comment "${comment}"`;
    return value === "" ? `${key}${said}` : `${key}${said} : ${value}`;
  });
}

/** One command for each run of elements of one container. */
function elementLines(
  verb: "add" | "delete",
  table: string,
  elements: readonly Element[],
  text: (element: Element) => string,
): readonly string[] {
  const lines: string[] = [];
  for (let at = 0; at < elements.length;) {
    const { container } = elements[at] ?? { container: "" };
    const start = at;
    while (at < elements.length && elements[at]?.container === container) at++;
    lines.push(`${verb} element ${table} ${container} { ${elements.slice(start, at).map(text).join(", ")} }`);
  }
  return lines;
}
