/**
 * Elements of nftables sets and maps that are read only when a packet's walk looks them up. nft 1.0.6 takes 5 s of processor time to
 * list the 100,000 elements of 10,000 Services with 10 endpoints each, and 0.1 s to say whether single elements are there.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Nft } from "../../kernel/nft.ts";
import { type ListedContainer, type ListedTable, parseNftListing } from "../../netfilter/nft_listing.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { type LiveProblem, type LiveRules, proxyOfTable } from "./live.ts";

const ABSENT = "No such file or directory";

/** Elements of a set or map that were read; keys that were looked up before being read are in `asked`. */
export class UnreadElements extends Map<string, string> {
  readonly asked: Set<string> = new Set();
  readonly #absent = new Set<string>();

  override get(key: string): string | undefined {
    return this.has(key) ? super.get(key) : undefined;
  }

  override has(key: string): boolean {
    const isRead = super.has(key);
    if (!isRead && !this.#absent.has(key)) this.asked.add(key);
    return isRead;
  }

  /** Stores nft's answer. @param value null: there is no such element */
  answer(key: string, value: string | null): void {
    this.asked.delete(key);
    if (value === null) this.#absent.add(key);
    else this.set(key, value);
  }
}

/** Makes listed tables read their elements on demand. */
export function withUnreadElements(tables: readonly ListedTable[]): readonly ListedTable[] {
  return tables.map((table) => ({
    ...table,
    containers: new Map(
      [...table.containers].map(([name, one]) => [name, { ...one, elements: new UnreadElements() }]),
    ),
  }));
}

interface Lookup {
  readonly table: ListedTable;
  readonly name: string;
  readonly container: ListedContainer;
  readonly elements: UnreadElements;
}

/**
 * Repeats a walk, each time with the elements that the last one looked up. Walks of both families run one after the
 * other: Linux 6.18 may end a list early beside a dry run.
 *
 * @param desired desired rules: an element with its desired value is found without listing its map
 * @param walk the walk, which looks up elements
 * @returns the rules with all elements that the walk needs, and why some could not be read
 */
export async function readElements(
  exec: Exec,
  live: LiveRules,
  desired: RulesetSnapshot | null,
  walk: (live: LiveRules) => unknown,
): Promise<LiveRules> {
  const nft = new Nft(exec);
  const problems: LiveProblem[] = [];
  for (;;) {
    walk(live);
    const lookups = lookupsIn(live.nftables);
    if (lookups.length === 0) return { ...live, problems: [...live.problems, ...problems] };
    await tryElements(nft, lookups.filter((one) => !isListed(one)), desired?.nftables ?? []);
    for (const lookup of lookups.filter(({ elements }) => elements.asked.size > 0)) {
      const problem = await listContainer(nft, lookup);
      if (problem !== null) problems.push(problem);
    }
  }
}

function lookupsIn(tables: readonly ListedTable[]): readonly Lookup[] {
  return tables.flatMap((table) =>
    [...table.containers].flatMap(([name, container]): Lookup[] => {
      const { elements } = container;
      const isAsked = elements instanceof UnreadElements && elements.asked.size > 0;
      return isAsked ? [{ table, name, container, elements }] : [];
    })
  );
}

/** True if the container must be listed: another program's table, ranges and counters. */
function isListed({ table, name, container }: Lookup): boolean {
  return proxyOfTable(table.name) === null || container.hasRanges || name.includes("-traffic-");
}

/**
 * Reads elements by two dry runs: one deletes them, which nft refuses for missing ones; the other adds them with their desired value,
 * which nft refuses for those with another value. Keys that stay in `asked` must be listed.
 */
async function tryElements(
  nft: Nft,
  lookups: readonly Lookup[],
  desired: readonly ListedTable[],
): Promise<void> {
  const asked = lookups.flatMap((lookup) => [...lookup.elements.asked].map((key) => ({ ...lookup, key })));
  const deleted = await refusals(
    nft,
    asked.map(({ table, name, key }) => `delete element ${table.name} ${name} { ${key} }`),
  );
  const present = asked.filter(({ elements, key }, index) => {
    if (deleted?.get(index)?.startsWith(ABSENT) === true) elements.answer(key, null);
    return deleted !== null && !deleted.has(index);
  });
  const known = present.flatMap((one) => {
    const { table, name, container, key } = one;
    const wanted = desired.find((other) => other.name === table.name)?.containers.get(name)?.elements;
    const value = container.kind === "set" ? "" : wanted?.get(key);
    return value === undefined ? [] : [{ ...one, value }];
  });
  const added = await refusals(
    nft,
    known.map(({ table, name, key, value }) =>
      `add element ${table.name} ${name} { ${key}${value === "" ? "" : ` : ${value}`} }`
    ),
  );
  for (const [index, { elements, key, value }] of known.entries()) {
    if (added?.has(index) === false) elements.answer(key, value);
  }
}

/** Refused commands, by index; null: nft gave no answer. */
async function refusals(
  nft: Nft,
  commands: readonly string[],
): Promise<ReadonlyMap<number, string> | null> {
  try {
    return await nft.refusals(commands);
  } catch (error) {
    if (error instanceof ExecError) return null;
    throw error;
  }
}

/** Replaces the unread container by its full listing. */
async function listContainer(nft: Nft, lookup: Lookup): Promise<LiveProblem | null> {
  const { table, name, container, elements } = lookup;
  const [word = "", own = ""] = table.name.split(" ");
  try {
    const text = await nft.listSet(word, own, name, container.kind);
    const found = text === null ? undefined : parseNftListing(text).tables[0]?.containers.get(name);
    if (found === undefined) throw new SyntaxError("nft prints something else");
    (table.containers as Map<string, ListedContainer>).set(name, found);
    return null;
  } catch (error) {
    if (!(error instanceof ExecError || error instanceof SyntaxError)) throw error;
    for (const key of [...elements.asked]) elements.answer(key, null);
    return { place: `nft list ${container.kind} ${table.name} ${name}`, message: error.message };
  }
}
