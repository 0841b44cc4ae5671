/**
 * Rules of the kernel as far as a packet or a Service meets them, which is little of 10,000 Services: to list all elements takes nft
 * seconds there. Where something cannot be read in parts, everything is read.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { Nft, type NftTableName } from "../../kernel/nft.ts";
import { FAMILIES, type IpFamily } from "../../model/objects.ts";
import { parseNftListing } from "../../netfilter/nft_listing.ts";
import { NftTable } from "../../netfilter/nft_ruleset.ts";
import { nftFamily } from "../../netfilter/nft_words.ts";
import { emptySnapshot, type RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { isOfIptables, liveOfKernel, readOthers } from "./kernel_rules.ts";
import { BUILTIN_CHAINS, type ChainName, PartialIptables } from "./partial_iptables.ts";
import { askingTable, PartialNftables } from "./partial_nftables.ts";
import { foundProxies, type LiveNode, type LiveProblem, type LiveRules, proxyOfTable } from "./live.ts";
import { NotPartialError } from "./partial_map.ts";

/** Chains jump to chains, sets lead to chains: a way of more steps than this has no end. */
const MAX_ROUNDS = 100;

/** Rules that can be looked at. */
export interface RulesetView {
  /** Looks until nothing is left that was looked for and not read. */
  look<T>(question: RulesetQuestion<T>): Promise<T>;
}

/** What is wanted of one family. */
export interface RulesetQuestion<T> {
  readonly family: IpFamily;
  /** What should be there: its chains and elements are asked for at once. */
  readonly desired?: RulesetSnapshot | null;
  /** Chains that will be wanted. */
  readonly chains?: readonly ChainName[];
  /** Looks at what is known; what it does not find there is read, and it looks again. */
  readonly look: (live: LiveRules) => T;
}

/** What is read at once, of both families. */
interface Begun {
  readonly others: LiveNode;
  readonly iptables: ReadonlyMap<IpFamily, PartialIptables>;
  readonly nftables: ReadonlyMap<IpFamily, PartialNftables>;
  readonly problems: readonly LiveProblem[];
}

/**
 * The kernel of this network namespace. No list of nftables is read beside a dry run: Linux 6.18 ends a list of rules early, without a
 * word, while chains that are only tried come and go.
 */
export class PartialRuleset implements RulesetView {
  readonly #exec: Exec;
  /** Null: not in parts. */
  readonly #begun: Promise<Begun | null>;
  #whole: Promise<LiveNode> | null = null;
  /** Settles once the look under way is done. */
  #free: Promise<unknown> = Promise.resolve();

  /** Begins to read. */
  constructor(exec: Exec) {
    this.#exec = exec;
    this.#begun = begin(exec).catch(nullIfNotPartial);
  }

  look<T>(question: RulesetQuestion<T>): Promise<T> {
    const seen = this.#free.then(() => this.#lookNow(question));
    this.#free = seen.catch(() => undefined);
    return seen;
  }

  async #lookNow<T>({ family, desired, chains = [], look }: RulesetQuestion<T>): Promise<T> {
    const begun = await this.#begun;
    if (begun === null) return look(await this.#wholeOf(family));
    const [iptables, nftables] = [begun.iptables.get(family), begun.nftables.get(family)];
    iptables?.expect(chains);
    try {
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const seen = look(rulesOf(begun, family));
        const isMore = await iptables?.more() ?? false;
        if (!await nftables?.more(desired?.nftables ?? []) && !isMore) return seen;
      }
    } catch (error) {
      nullIfNotPartial(error);
    }
    return look(await this.#wholeOf(family));
  }

  async #wholeOf(family: IpFamily): Promise<LiveRules> {
    this.#whole ??= liveOfKernel(this.#exec);
    const live = (await this.#whole).get(family);
    if (live === undefined) throw new RangeError(`Nothing was read of ${family}`);
    return live;
  }
}

function nullIfNotPartial(error: unknown): null {
  if (error instanceof NotPartialError || error instanceof ExecError) return null;
  throw error;
}

function rulesOf({ others, iptables, nftables, problems }: Begun, family: IpFamily): LiveRules {
  const rest = others.get(family);
  const partial = iptables.get(family);
  const tables = nftables.get(family);
  const held: RulesetSnapshot = {
    ...rest ?? emptySnapshot(family),
    iptables: [
      ...(partial === undefined ? [] : [{ variant: "nft" as const, tables: partial.tables }]),
      ...rest?.iptables ?? [],
    ],
    nftables: tables?.tables ?? [],
  };
  return {
    ...held,
    from: "the kernel",
    proxies: foundProxies(held),
    problems: [...rest?.problems ?? [], ...tables?.problems ?? [], ...problems],
  };
}

/** @throws {NotPartialError | ExecError} if it cannot be read in parts */
async function begin(exec: Exec): Promise<Begun> {
  const nft = new Nft(exec);
  const [others, tables] = await Promise.all([readOthers(exec), nft.tables()]);
  if (tables.length === 0 && (await nft.terseRuleset()).trim() !== "") {
    throw new NotPartialError("nft has rules, and names no tables");
  }
  const ofIptables = tables.filter(isOfIptables);
  const nftables = await partialNftables(nft, tables);
  const iptables = ofIptables.length === 0
    ? new Map<IpFamily, PartialIptables>()
    : await partialIptables(exec, nft, ofIptables);
  return { others, iptables, ...nftables };
}

/**
 * Chains of the kernel's hooks in tables of iptables, by a dry run that makes them, which is refused of those that are there. To list all
 * chains takes seconds where there are 100,000, so another program's chain for a hook is only seen under the usual names.
 */
async function partialIptables(
  exec: Exec,
  nft: Nft,
  tables: readonly NftTableName[],
): Promise<ReadonlyMap<IpFamily, PartialIptables>> {
  const tried = tables.flatMap((table) =>
    [...BUILTIN_CHAINS, ...BUILTIN_CHAINS.map((name) => name.toLowerCase())].map((chain) => ({
      table,
      chain,
    }))
  );
  const refusals = await nft.refusals(
    tried.map(({ table: { word, name }, chain }) => `create chain ${word} ${name} ${chain}`),
  );
  const found = tried.filter((_, index) => {
    const refusal = refusals.get(index);
    if (refusal !== undefined && !refusal.startsWith("File exists")) throw new NotPartialError(refusal);
    return refusal !== undefined;
  });
  const foreign = found.find(({ chain }) => !BUILTIN_CHAINS.includes(chain));
  if (foreign !== undefined) throw new NotPartialError(`chain ${foreign.chain} is not iptables'`);
  return new Map(FAMILIES.flatMap((family): [IpFamily, PartialIptables][] => {
    const word = family === "IPv4" ? "ip" : "ip6";
    const builtin = tables.filter((table) => table.word === word).map((table) =>
      [table.name, found.filter((one) => one.table === table).map(({ chain }) => chain)] as const
    );
    return builtin.length === 0 ? [] : [[family, new PartialIptables(exec, family, new Map(builtin))]];
  }));
}

/** Beside the rules of iptables, which may be many, each other table is read by its name; else all in one go. */
async function partialNftables(
  nft: Nft,
  all: readonly NftTableName[],
): Promise<Pick<Begun, "nftables" | "problems">> {
  const tables = all.filter((table) => !isOfIptables(table));
  const isRead = ({ word }: NftTableName): boolean => word === "ip" || word === "ip6" || word === "inet";
  const problems = tables.filter(({ word }) => word === "netdev" || word === "bridge")
    .map(({ word, name }) => ({
      place: `nft list ruleset: table ${word} ${name}`,
      message: `what it does to packets of family ${word} is not read`,
    }));
  const read = tables.filter(isRead);
  if (read.length === 0) return { nftables: new Map(), problems };
  const isTerse = read.some(({ word, name }) => proxyOfTable(`${word} ${name}`) !== null) ||
    read.length === all.length;
  const text = isTerse
    ? await nft.terseRuleset()
    : (await Promise.all(read.map((table) => nft.table(table)))).join("");
  const listing = parseNftListing(text);
  const listed = await Promise.all(read.map(async ({ word, name }) => {
    const table = listing.tables.find((one) => one.name === `${word} ${name}`);
    if (table === undefined) throw new NotPartialError(`nft does not list table ${word} ${name}`);
    return isTerse ? await askingTable(nft, table) : table;
  }));
  const nftables = new Map(FAMILIES.map((family) => {
    const words = [nftFamily(family), "inet"];
    const own = listed.filter(({ name }) => words.includes(name.split(" ", 1)[0] ?? ""));
    const unread = own.flatMap((table) => [...new NftTable(table, family).problems()]);
    return [family, new PartialNftables(nft, own, [...listing.problems, ...unread])];
  }));
  return { nftables, problems };
}
