/**
 * From operations to the texts of transactions, each line with the Service it is of.
 *
 * @module
 */
import type {
  AffinitySet,
  Chain,
  Container,
  Element,
  HookedChain,
  NftablesPlan,
  Operations,
  ServiceOperations,
} from "../plan/ruleset.ts";

/** A table, and what its sets of clients hold. */
export interface TableAddress {
  /** Family and name as in commands, e.g. `ip kproxy`. */
  readonly table: string;
  readonly addressType: "ipv4_addr" | "ipv6_addr";
}

/** How much some operations write, per kind. Sets are maps, too. */
export type WrittenCounts = Record<"chains" | "elements" | "sets", number>;

/** Containers, chains and elements that are there whatever the Services are; `hooked` false leaves out the chains that the kernel calls. */
export function baseLines(
  { table }: TableAddress,
  base: Operations["base"],
  hooked: boolean,
): readonly string[] {
  return [
    ...deletedElementLines(table, base.deletedElements),
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
  { foreignHooks, deletedElements, staleChains, staleSets }: Operations["leftover"],
): readonly string[] {
  return [
    ...foreignHooks.flatMap((name) => [`flush chain ${table} ${name}`, `delete chain ${table} ${name}`]),
    ...deletedElementLines(table, deletedElements),
    ...staleLines(table, { staleChains, staleSets }),
  ];
}

/** Deletes chains that were flushed before and that nothing goes to any more. */
export function deletedChainLines({ table }: TableAddress, names: readonly string[]): readonly string[] {
  return names.map((name) => `delete chain ${table} ${name}`);
}

/** Chains that these operations flush, to be deleted later. */
export function staleChainNames({ services, leftover }: Operations): readonly string[] {
  return [...services.flatMap((service) => service.staleChains), ...leftover.staleChains];
}

/** Chains that these operations fill. */
export function writtenChainNames({ base, services }: Omit<Operations, "leftover">): readonly string[] {
  const chains: readonly Chain[] = [...base.chains, ...base.sharedChains, ...base.hookedChains];
  return [...chains, ...services.flatMap(({ writtenChains }) => writtenChains)].map(({ name }) => name);
}

/** How much these operations write, beside those of Services. */
export function countWritten({ base, leftover }: Omit<Operations, "services">): WrittenCounts {
  return {
    chains: writtenChainNames({ base, services: [] }).length + leftover.staleChains.length +
      leftover.foreignHooks.length,
    elements: base.deletedElements.length + base.addedElements.length + leftover.deletedElements.length,
    sets: base.containers.length + leftover.staleSets.length,
  };
}

/**
 * What one Service contributes, as text and in numbers. Its operations are some times as large, in many small objects, and would stay
 * for as long as nft takes.
 */
export interface ServiceText extends Pick<ServiceOperations, "name" | "others"> {
  /** Its lines, each ended by a newline. */
  readonly text: string;
  readonly lineCount: number;
  readonly counts: WrittenCounts;
}

/** Makes a {@linkcode ServiceText} of operations. */
export function serviceText(address: TableAddress, operations: ServiceOperations): ServiceText {
  const { name, others, writtenSets, writtenChains, staleChains, staleSets } = operations;
  const lines = serviceLines(address, operations);
  return {
    name,
    others,
    text: [...lines, ""].join("\n"),
    lineCount: lines.length,
    counts: {
      chains: writtenChains.length + staleChains.length,
      elements: operations.deletedElements.length + operations.addedElements.length,
      sets: writtenSets.length + staleSets.length,
    },
  };
}

/** What a chain or a set counts, where an element counts one. */
const OBJECT_WEIGHT = 10;

/** What it counts, in elements. */
export function weightOf({ counts: { chains, elements, sets } }: Pick<ServiceText, "counts">): number {
  return elements + OBJECT_WEIGHT * (chains + sets);
}

/** The Services in groups of about `weight` elements, in their order; never a part of one. */
export function* groupsByWeight<Item extends Pick<ServiceText, "counts">>(
  services: Iterable<Item>,
  weight: number,
): Generator<readonly Item[]> {
  let group: Item[] = [];
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

/** What the Services of a plan count at most, as {@linkcode weightOf} each. */
export function plannedWeight({ services }: NftablesPlan): number {
  let weight = 0;
  for (const rules of services.values()) {
    if (rules === null) continue;
    const { elements, sharedElements, lists, chains, affinitySets } = rules;
    weight += elements.length + sharedElements.length + OBJECT_WEIGHT * (chains.length + affinitySets.length);
    for (const { destinations, endpoints } of lists) weight += destinations.length * endpoints.length;
  }
  return weight;
}

/** The text of several Services, and whose each line of it is. */
export class ServicesText {
  readonly text: string;
  readonly #services: readonly ServiceText[];

  constructor(services: readonly ServiceText[]) {
    this.#services = services;
    this.text = services.map(({ text }) => text).join("");
  }

  /** Whose line it is (1-based). */
  ownerOf(line: number): ServiceText | undefined {
    let end = 0;
    return this.#services.find(({ lineCount }) => line <= (end += lineCount));
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
    const { container } = elements[at]!;
    const start = at;
    while (elements[at]?.container === container) at++;
    lines.push(`${verb} element ${table} ${container} { ${elements.slice(start, at).map(text).join(", ")} }`);
  }
  return lines;
}
