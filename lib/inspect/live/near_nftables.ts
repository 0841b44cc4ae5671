/**
 * nftables tables of one family as far as somebody looks: all rules, but of sets and maps only the elements that are looked for.
 *
 * @module
 */
import type { NftLook } from "../../kernel/nft_look.ts";
import type { IpFamily } from "../../model/objects.ts";
import { type ListingProblem, parseNftListing } from "../../netfilter/nft_listing.ts";
import type { NftContainer, NftTable } from "../../netfilter/nft_tables.ts";
import { AskedMap } from "./asked_map.ts";
import { UntoldError } from "./untold.ts";

/** The tables whose elements may be many: those of service proxies. */
const PROXY_TABLES: ReadonlySet<string> = new Set(["kproxy", "kube-proxy"]);
const ABSENT = "No such file or directory";
/** The elements of sets without names, which are never empty. */
const LOST_ELEMENTS = /\{ *\}/;

/** A container and what was looked for in it. */
interface Question {
  readonly table: NftTable;
  readonly container: NftContainer;
  readonly elements: AskedMap<string>;
  readonly keys: readonly string[];
}

/** Tables as they were printed, and what has been asked of them since. */
export class NearNftables {
  readonly #look: NftLook;
  readonly #family: IpFamily;
  readonly problems: readonly ListingProblem[];
  tables: readonly NftTable[];

  private constructor(
    look: NftLook,
    family: IpFamily,
    tables: readonly NftTable[],
    problems: readonly ListingProblem[],
  ) {
    this.#look = look;
    this.#family = family;
    this.tables = tables;
    this.problems = problems;
  }

  /**
   * Tables of one family, of a text without elements.
   *
   * @param isWanted tables that are not are passed over
   */
  static async ofTerse(
    look: NftLook,
    family: IpFamily,
    text: string,
    isWanted: (word: string, table: string) => boolean,
  ): Promise<NearNftables> {
    const { tables, problems } = parseNftListing(text, family, isWanted);
    const near = new NearNftables(look, family, tables.map(asking), problems);
    near.tables = await Promise.all(near.tables.map((table) => near.#withLostElements(table)));
    return near;
  }

  /** Tables that were printed whole. */
  static ofWhole(look: NftLook, family: IpFamily, text: string): NearNftables {
    const { tables, problems } = parseNftListing(text, family);
    return new NearNftables(look, family, tables, problems);
  }

  /** Reads what was asked for; false if that is nothing. */
  async more(desired: readonly NftTable[]): Promise<boolean> {
    const questions = this.#questions();
    if (questions.length === 0) return false;
    const [listed, tried] = [questions.filter(isListed), questions.filter((one) => !isListed(one))];
    const unknown = await this.#tryElements(tried, desired);
    await Promise.all([...listed, ...unknown].map((one) => this.#list(one)));
    return true;
  }

  #questions(): readonly Question[] {
    return this.tables.flatMap((table) =>
      table.containers.values().toArray().flatMap((container): Question[] => {
        const { elements } = container;
        if (!(elements instanceof AskedMap) || elements.asked.size === 0) return [];
        return [{ table, container, elements, keys: [...elements.asked] }];
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
    desired: readonly NftTable[],
  ): Promise<readonly Question[]> {
    const asked = questions.flatMap((question) => question.keys.map((key) => ({ ...question, key })));
    const refusals = await this.#look.refusals(
      asked.map(({ table, container, key }) =>
        `delete element ${labelOf(table)} ${container.name} { ${elementKey(container, key)} }`
      ),
    );
    const present = asked.filter((one, index) => {
      const refusal = refusals.get(index);
      if (refusal === undefined) return true;
      if (!refusal.startsWith(ABSENT)) throw new UntoldError(refusal);
      one.elements.answer(one.key, undefined);
      return false;
    });
    const maps = present.filter(({ container, elements, key }) => {
      if (container.values !== null) return true;
      elements.answer(key, "");
      return false;
    });
    const wanted = maps.map((one) => ({ ...one, value: desiredValue(one.table, one, desired) }));
    const known = wanted.filter(({ value }) => value !== null);
    const others = await this.#look.refusals(
      known.map(({ table, container, key, value }) =>
        `add element ${labelOf(table)} ${container.name} { ${elementKey(container, key)} : ${value} }`
      ),
    );
    for (const [index, { elements, key, value }] of known.entries()) {
      if (!others.has(index) && value !== null) elements.answer(key, value);
    }
    return questions.filter(({ elements }) => elements.asked.size > 0);
  }

  /** Puts the container as it is in the place of the one that asks. */
  async #list({ table, container }: Question): Promise<void> {
    const [word = "", name = ""] = labelOf(table).split(" ");
    const kind = container.values === null ? "set" : "map";
    const text = await this.#look.container({ word, name }, kind, container.name);
    // Verdicts lead to chains, which are not printed beside it.
    const found = parseNftListing(withChains(text, table), this.#family).tables[0]?.containers
      .get(container.name);
    if (found === undefined) throw new UntoldError(`${kind} ${container.name} cannot be read`);
    (table.containers as Map<string, NftContainer>).set(container.name, found);
  }

  /** Where nft has left out the elements of sets without names, the table is read as a whole. */
  async #withLostElements(table: NftTable): Promise<NftTable> {
    const isWhole = table.chains.values().every(({ rules }) =>
      rules.every(({ text }) => !LOST_ELEMENTS.test(text))
    );
    if (isWhole) return table;
    const [word = "", name = ""] = labelOf(table).split(" ");
    const text = await this.#look.table({ word, name });
    return parseNftListing(text, this.#family).tables[0] ?? table;
  }
}

/** Of others' tables, of ranges and of counters more is wanted than whether an element is there. */
function isListed({ table, container }: Question): boolean {
  return !PROXY_TABLES.has(table.name) || container.hasRanges === true ||
    container.name.includes("-traffic-");
}

function labelOf({ family, name, label }: NftTable): string {
  return label ?? `${family === "IPv4" ? "ip" : "ip6"} ${name}`;
}

/** Interfaces are the one kind of words that nft wants in quotes. */
function elementKey({ keys }: NftContainer, key: string): string {
  return key.split(" . ").map((part, index) => keys[index] === "ifname" ? `"${part}"` : part).join(" . ");
}

function desiredValue(
  table: NftTable,
  { container, key }: { readonly container: NftContainer; readonly key: string },
  desired: readonly NftTable[],
): string | null {
  const same = desired.find((one) => labelOf(one) === labelOf(table));
  return same?.containers.get(container.name)?.elements.get(key) ?? null;
}

function asking(table: NftTable): NftTable {
  const containers = new Map(
    table.containers.entries().map(([name, container]) => [
      name,
      { ...container, elements: new AskedMap<string>() },
    ]),
  );
  return { ...table, containers };
}

/** The text of one container with the chains of its table, empty. */
function withChains(text: string, { chains }: NftTable): string {
  const end = text.lastIndexOf("}");
  const empty = Array.from(chains.keys(), (name) => `\tchain ${name} {\n\t}\n`).join("");
  return `${text.slice(0, end)}${empty}}\n`;
}
