/**
 * Asks iptables for single chains and rules, where it cannot read a whole table: rules that were added with nft, and for which it
 * has no words, keep it from that, but not from finding these.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type JumpRule, listingText } from "../netfilter/iptables_jumps.ts";
import { type NamedChain, parseListedChains, type SavedChain } from "../netfilter/iptables_save.ts";
import type { Iptables } from "./iptables.ts";
import { isLockBusy } from "./tool_errors.ts";
import type { IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";

/** iptables' status for rules that it cannot read. */
const UNREADABLE_STATUS = 3;

type Table = "filter" | "nat";

/** Chains and jumps of a table, found by name. */
export interface FoundByName {
  readonly chains: ReadonlyMap<string, SavedChain>;
  /** Built-in chains of which only the jumps that were asked for are known, each once and not in their order. */
  readonly jumpsOnly: ReadonlySet<string>;
}

/**
 * Lists chains of several tables, in one start of a program.
 *
 * @param asked each chain once
 * @throws {ExecError} also if a chain is not there
 */
export async function listChains(
  iptables: Iptables,
  asked: readonly (readonly [table: string, chains: readonly string[]])[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, SavedChain>>> {
  const listed = parseListedChains(await iptables.restore(listingText(asked), { counters: false })).values();
  return new Map(asked.map(([table, { length }]) => [table, byName(listed.take(length))]));
}

/**
 * Finds the chains that exist and can be read, in as few runs as it takes; of unreadable ones with jumps, those jumps.
 *
 * @param chains each once, without those of `jumps`
 * @param jumps chain → the jumps that are looked for in it
 * @throws {ExecError} if nothing is known: the lock was held all the time, the program was killed or is missing; or whether a jump is there
 */
export async function findByName(
  iptables: Iptables,
  table: Table,
  { chains, jumps }: {
    readonly chains: readonly string[];
    readonly jumps: ReadonlyMap<string, readonly JumpRule[]>;
  },
): Promise<FoundByName> {
  const found = new Map(await findChains(iptables, table, [...chains, ...jumps.keys()]));
  const jumpsOnly = new Set<string>();
  for (const [chain, wanted] of jumps) {
    if (found.has(chain)) continue;
    jumpsOnly.add(chain);
    const rules: string[] = [];
    for (const { args } of wanted) {
      if (await ask(iptables, table, `-C ${chain} ${args}`) !== null) rules.push(args);
    }
    found.set(chain, { policy: "-", rules });
  }
  return { chains: found, jumpsOnly };
}

/** Finds the chains that exist and that iptables can print: absent and unprintable ones look the same. */
async function findChains(
  iptables: Iptables,
  table: Table,
  chains: readonly string[],
): Promise<ReadonlyMap<string, SavedChain>> {
  const text = await ask(iptables, table, chains.map((chain) => `-S ${chain}\n`).join("").trimEnd(), "any");
  if (text !== null) return byName(parseListedChains(text));
  if (chains.length <= 1) return new Map();
  const middle = chains.length >> 1;
  return new Map([
    ...await findChains(iptables, table, chains.slice(0, middle)),
    ...await findChains(iptables, table, chains.slice(middle)),
  ]);
}

function byName(chains: Iterable<NamedChain>): ReadonlyMap<string, SavedChain> {
  return new Map(Array.from(chains, ({ name, chain }) => [name, chain]));
}

/** True if the failure says neither that something is missing nor that it cannot be read. */
function tellsNothing(error: unknown): boolean {
  return !(error instanceof ExecError) || error.isMissing() || error.isInconclusive() || isLockBusy(error);
}

/**
 * Output of iptables for the line; null if the kernel does not have the chain or rule that it names.
 *
 * @param unreadable `any`: null also if it cannot be read
 */
async function ask(
  iptables: Iptables,
  table: Table,
  line: string,
  unreadable?: "any",
): Promise<string | null> {
  try {
    return await iptables.restore(`*${table}\n${line}\nCOMMIT\n`, { counters: false });
  } catch (error) {
    if (tellsNothing(error) || !(error instanceof ExecError)) throw error;
    if (unreadable === "any" || error.code !== UNREADABLE_STATUS) return null;
    const problem =
      `iptables cannot tell whether table ${table} has "${line}", because of rules that nft added to it; ` +
      `put them into a table of their own: ${error.stderr}`;
    throw new ExecError(error.argv, error.code, problem, { cause: error });
  }
}

/** Options of {@linkcode UnreadableTables}. */
interface UnreadableTablesOptions {
  readonly family: IpFamily;
  readonly log: Logger;
  /** Further consequence, after "Our rules there are looked for by name". @default {""} */
  readonly consequence?: string;
}

/** Warns of unreadable tables whenever they are other ones than before. */
export class UnreadableTables {
  readonly #options: UnreadableTablesOptions;
  #reported = "";

  constructor(options: UnreadableTablesOptions) {
    this.#options = options;
  }

  /** @param unreadable the tables that are unreadable now */
  report(unreadable: Iterable<string>): void {
    const { family, log, consequence = "" } = this.#options;
    const tables = [...unreadable].join(" ");
    if (tables === this.#reported) return;
    this.#reported = tables;
    if (tables === "") return;
    log.warn(
      "iptables cannot read a table: nft added rules to it that iptables has no words for. Our rules there are " +
        `looked for by name${consequence}. Put the other rules into a table of their own`,
      { family, tables },
    );
  }
}
