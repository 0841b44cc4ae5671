/**
 * nftables tables of one family: all rules, but of sets and maps only the elements that are looked up.
 *
 * @module
 */
import type { Nft } from "../../kernel/nft.ts";
import {
  type ListedContainer,
  type ListedTable,
  type ListingProblem,
  parseNftListing,
} from "../../netfilter/nft_listing.ts";
import { proxyOfTable } from "./live.ts";
import { NotPartialError, PartialMap } from "./partial_map.ts";

const ABSENT = "No such file or directory";
/** The elements of sets without names, which are never empty. */
const LOST_ELEMENTS = /\{ *\}/;

/** A container and what was looked for in it. */
interface Question {
  readonly table: ListedTable;
  /** Name of the set or map. */
  readonly name: string;
  readonly container: ListedContainer;
  readonly elements: PartialMap<string>;
  readonly keys: readonly string[];
}

/** Tables of one family, and what has been asked of them since they were printed. */
export class PartialNftables {
  readonly #nft: Nft;

  constructor(
    nft: Nft,
    readonly tables: readonly ListedTable[],
    readonly problems: readonly ListingProblem[],
  ) {
    this.#nft = nft;
  }

  /** Reads what was asked for; false if that is nothing. */
  async more(desired: readonly ListedTable[]): Promise<boolean> {
    const questions = this.#questions();
    if (questions.length === 0) return false;
    const [listed, tried] = [questions.filter(isListed), questions.filter((one) => !isListed(one))];
    const unknown = await this.#tryElements(tried, desired);
    await Promise.all([...listed, ...unknown].map((one) => this.#list(one)));
    return true;
  }

  #questions(): readonly Question[] {
    return this.tables.flatMap((table) =>
      [...table.containers].flatMap(([name, container]): Question[] => {
        const { elements } = container;
        if (!(elements instanceof PartialMap) || elements.asked.size === 0) return [];
        return [{ table, name, container, elements, keys: [...elements.asked] }];
      })
    );
  }

  /**
   * By two dry runs: one deletes the elements, which is refused of those that are not there; the other adds them as they should be,
   * which is refused of those that are there with another value.
   *
   * @returns questions about elements with other values
   */
  async #tryElements(
    questions: readonly Question[],
    desired: readonly ListedTable[],
  ): Promise<readonly Question[]> {
    const asked = questions.flatMap((question) => question.keys.map((key) => ({ ...question, key })));
    const refusals = await this.#nft.refusals(
      asked.map(({ table, name, key }) => `delete element ${table.name} ${name} { ${key} }`),
    );
    const present = asked.filter((one, index) => {
      const refusal = refusals.get(index);
      if (refusal === undefined) return true;
      if (!refusal.startsWith(ABSENT)) throw new NotPartialError(refusal);
      one.elements.answer(one.key, undefined);
      return false;
    });
    const maps = present.filter(({ container, elements, key }) => {
      if (container.kind === "map") return true;
      elements.answer(key, "");
      return false;
    });
    const wanted = maps.map((one) => ({ ...one, value: desiredValue(one, desired) }));
    const known = wanted.filter(({ value }) => value !== null);
    const others = await this.#nft.refusals(
      known.map(({ table, name, key, value }) => `add element ${table.name} ${name} { ${key} : ${value} }`),
    );
    for (const [index, { elements, key, value }] of known.entries()) {
      if (!others.has(index) && value !== null) elements.answer(key, value);
    }
    return questions.filter(({ elements }) => elements.asked.size > 0);
  }

  /** Puts the container as it is in the place of the one that asks. */
  async #list({ table, name: own, container: { kind } }: Question): Promise<void> {
    const [word = "", name = ""] = table.name.split(" ");
    const text = await this.#nft.listSet(word, name, own, kind) ?? "";
    const found = parseNftListing(text).tables[0]?.containers.get(own);
    if (found === undefined) throw new NotPartialError(`${kind} ${own} cannot be read`);
    (table.containers as Map<string, ListedContainer>).set(own, found);
  }
}

/** Of others' tables, of ranges and of counters more is wanted than whether an element is there. */
function isListed({ table, name, container }: Question): boolean {
  return proxyOfTable(table.name) === null || container.hasRanges || name.includes("-traffic-");
}

function desiredValue(
  { table, name, key }: Question & { readonly key: string },
  desired: readonly ListedTable[],
): string | null {
  return desired.find((one) => one.name === table.name)?.containers.get(name)?.elements.get(key) ?? null;
}

/** A table that was printed without elements, which are asked for; where nft has left out those of sets without names, read as a whole. */
export async function askingTable(nft: Nft, table: ListedTable): Promise<ListedTable> {
  const { name: label, comment, ownerProblem, chains, handles } = table;
  if (chains.values().some(({ rules }) => rules.some((text) => LOST_ELEMENTS.test(text)))) {
    const [word = "", name = ""] = label.split(" ");
    return parseNftListing(await nft.table({ word, name })).tables[0] ?? table;
  }
  const containers = new Map(
    table.containers.entries().map(([name, container]) => {
      const { kind, type, hasRanges, timeoutSeconds, comments, counters, expiring } = container;
      const elements = new PartialMap<string>();
      return [name, { kind, type, hasRanges, timeoutSeconds, comments, counters, expiring, elements }];
    }),
  );
  return { name: label, comment, ownerProblem, chains, handles, containers };
}
