/**
 * The program nft: transactions, dry runs, lists, and what it says when it refuses a text.
 *
 * nft 1.0.6 loads all elements of all sets for nearly every list, which takes seconds where there are 100,000: what a list loads is
 * said at each.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import {
  type BaseChain,
  type ListedTable,
  NftTableReader,
  parseBaseChains,
} from "../netfilter/nft_listing.ts";
import type { NftFamily } from "../netfilter/nft_words.ts";
import { type Exec, type ExecOptions, runOk } from "./exec.ts";
import { firstLine } from "../text/lines.ts";
import { isPermissionProblem } from "./tool_errors.ts";

/** A table of any family. */
export interface NftTableName {
  /** Family in nft's words: `ip`, `inet`, `netdev`, … */
  readonly word: string;
  readonly name: string;
}

/** Tables and chains of one family to look for. */
export interface NftNames {
  readonly tables?: readonly string[];
  /** Chains by their table. */
  readonly chains?: Readonly<Record<string, readonly string[]>>;
}

const APPLY: readonly string[] = ["nft", "-f", "-"];
const CHECK: readonly string[] = ["nft", "-c", "-f", "-"];

/** The program nft, found on the PATH. */
export class Nft {
  readonly #exec: Exec;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /**
   * What `nft --version` says, e.g. `1.0.6`; null if it says something else.
   *
   * @throws {ExecError} with `isMissing()` if there is no nft on the PATH
   */
  async version(): Promise<string | null> {
    const text = await this.#print(["--version"]);
    return /nftables v(\d+(?:\.\d+)+)/.exec(text)?.[1] ?? null;
  }

  /**
   * Runs a text as one transaction: all of it or nothing.
   *
   * @throws {ExecError} if nft or the kernel refuses it; see {@linkcode nftErrors} for the lines
   */
  async apply(text: string): Promise<void> {
    await runOk(this.#exec, APPLY, { stdin: text });
  }

  /**
   * Runs a text like {@linkcode Nft.apply}, up to the point where the kernel would commit it.
   *
   * @throws {ExecError} if it would fail
   */
  async check(text: string): Promise<void> {
    await runOk(this.#exec, CHECK, { stdin: text });
  }

  /**
   * True if the table is there. A dry run, because every listing of nft 1.0.6 but those of bare names loads all
   * elements of all tables: seconds, where there are 100,000.
   *
   * @throws {ExecError} if that is unknown
   */
  async hasTable(family: NftFamily, name: string): Promise<boolean> {
    try {
      await this.check(`delete table ${family} ${name}\n`);
      return true;
    } catch (error) {
      if (error instanceof ExecError && error.isNotFound()) return false;
      throw error;
    }
  }

  /**
   * True if there is none of the tables, and in the others none of the chains. A dry run of making them, in one program:
   * 20 ms beside 55,000 chains of iptables, where a dry run of deleting one table takes 250 ms, and a list 10 s.
   *
   * @throws {ExecError} if that is unknown
   */
  async hasNone(family: NftFamily, { tables = [], chains = {} }: NftNames): Promise<boolean> {
    const lines = tables.map((table) => `create table ${family} ${table}`);
    for (const [table, names] of Object.entries(chains)) {
      lines.push(`add table ${family} ${table}`);
      lines.push(...names.map((chain) => `create chain ${family} ${table} ${chain}`));
    }
    if (lines.length === 0) return true;
    try {
      await this.check(`${lines.join("\n")}\n`);
      return true;
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      if (alreadyExists(error)) return false;
      if (isWithoutFamily(error)) return true;
      throw error;
    }
  }

  /**
   * All tables. By way of their flowtables: `nft list tables` loads everything, and this prints each table, with none in most.
   */
  async tables(options?: Pick<ExecOptions, "signal">): Promise<readonly NftTableName[]> {
    const text = await this.#print(["list", "flowtables"], options);
    return Array.from(
      text.matchAll(/^table (\w+) (\S+) \{/gm),
      ([, word = "", name = ""]) => ({ word, name }),
    );
  }

  /**
   * Which of the commands the kernel would refuse, and why, by their position; a dry run, which changes nothing. Unlike a listing it
   * takes as long for 100,000 elements as for ten.
   */
  async refusals(commands: readonly string[]): Promise<ReadonlyMap<number, string>> {
    if (commands.length === 0) return new Map();
    const { code, stderr } = await this.#exec.run(CHECK, { stdin: `${commands.join("\n")}\n` });
    if (code === 0) return new Map();
    const refusals = new Map(nftErrors(stderr).map(({ line, message }) => [line - 1, message]));
    if (refusals.size === 0) throw new ExecError(CHECK, code, stderr);
    return refusals;
  }

  /**
   * A whole table with rule handles; null if there is none. Costs 4 s at 100,000 elements, 90 s at 1,000,000.
   *
   * @param entries about how many elements and rules it should have
   * @throws {ExecError} if it cannot be listed
   */
  async listTable(family: NftFamily, name: string, entries: number = 0): Promise<ListedTable | null> {
    try {
      return await this.#read(new NftTableReader(), ["-a", "list", "table", family, name], entries);
    } catch (error) {
      if (error instanceof ExecError && error.isNotFound()) return null;
      throw error;
    }
  }

  /**
   * The rules of a table with their handles, and the definitions of its sets and maps, without elements; null if there
   * is none. Lists all tables of the family so: 4 ms where there are 100,000 elements, which every other list of nft
   * 1.0.6 loads, and 0.75 s where others have 40,000 rules.
   *
   * @throws {ExecError} if they cannot be listed
   */
  async listRules(family: NftFamily, name: string): Promise<ListedTable | null> {
    const reader = new NftTableReader(`${family} ${name}`);
    const table = await this.#read(reader, ["-t", "-a", "list", "ruleset", family]);
    return table.name === "" ? null : table;
  }

  /**
   * Every base chain, of all tables and families, iptables' own among them; no rules. Costs seconds where
   * there are 100,000 elements.
   *
   * @throws {ExecError} if they cannot be listed
   */
  async baseChains(): Promise<readonly BaseChain[]> {
    return parseBaseChains(await this.#print(["-y", "list", "chains"]));
  }

  /**
   * A set or map with its elements, as text within its table; null if it is not there. Of this one only, unlike
   * {@linkcode Nft.listTable}: 0.25 s at 10,000 elements, however many others the table has.
   *
   * @throws {ExecError} if it cannot be listed
   */
  async listSet(
    family: string,
    table: string,
    name: string,
    kind: "set" | "map" = "set",
  ): Promise<string | null> {
    try {
      return await this.#print(["list", kind, family, table, name]);
    } catch (error) {
      if (error instanceof ExecError && error.isNotFound()) return null;
      throw error;
    }
  }

  /** Reads a list while it is printed. */
  async #read(reader: NftTableReader, args: readonly string[], entries = 0): Promise<ListedTable> {
    const argv = ["nft", ...args];
    const onStdout = (bytes: Uint8Array): void => reader.write(bytes);
    const { code, stdout, stderr } = await this.#exec.run(argv, { entries, onStdout });
    // Fakes of programs print everything at once.
    reader.text(stdout);
    if (code === 0) return reader.end();
    throw new ExecError(argv, code, stderr);
  }

  #print(args: readonly string[], options?: ExecOptions): Promise<string> {
    return runOk(this.#exec, ["nft", ...args], options);
  }

  /**
   * Removes a table with everything in it, in one transaction; one that is not there is fine.
   */
  async deleteTable(family: NftFamily, name: string): Promise<void> {
    // nft before 1.0.7 has no `destroy`; the addition makes the deletion succeed whatever there was.
    await this.apply(`add table ${family} ${name}\ndelete table ${family} ${name}\n`);
  }
}

/** One error that nft reports for a line. */
export interface NftError {
  /** 1-based number of the line of the text. */
  readonly line: number;
  readonly message: string;
}

/** Cause of a failure. */
export type NftFailureKind =
  /** The kernel or nft does not take the text: the same text will fail again. */
  | "rejected"
  /** The process may not do this at all. */
  | "permission"
  /** The machine is out of something, or nft never ran: the text may be fine. */
  | "machine";

// Errors name the file that nft reads; with `-f -` that is /dev/stdin.
const ERROR_REGEXP = /^\S*?:(\d+):\d+-\d+: Error: (.*)$/gm;

/** Every line for which nft reports an error, in order. The kernel goes on after the first: there may be many. */
export function nftErrors(stderr: string): readonly NftError[] {
  return Array.from(stderr.matchAll(ERROR_REGEXP), ([, line, message = ""]) => ({
    line: Number(line),
    message: message.replace(/^Could not process rule: /, ""),
  }));
}

// nft's words where the kernel has no nf_tables.
const NO_NFTABLES_REGEXP = /Protocol not supported|Unable to initialize Netlink socket/;

/** True if the kernel has no nf_tables at all. */
export function isWithoutNftables({ stderr }: ExecError): boolean {
  return NO_NFTABLES_REGEXP.test(stderr);
}

/** True if the kernel has nf_tables, but takes no table of this family. */
export function isWithoutFamily({ stderr }: ExecError): boolean {
  return stderr.includes("Operation not supported");
}

/** 128 + SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV. */
const CRASHED_CODES: readonly number[] = [132, 134, 135, 136, 139];

/** Cause of a failed run of nft. */
export function nftFailureKind(error: ExecError): NftFailureKind {
  const { code, stderr } = error;
  // A crash is no answer, either, but it may well come from the text.
  const hasCrashed = CRASHED_CODES.includes(code) && error.timedOutMs === null;
  if (error.isMissing() || (error.isInconclusive() && !hasCrashed)) return "machine";
  return isPermissionProblem(stderr) ? "permission" : "rejected";
}

/** True if the failure has a reason: nft reports a line, or a kernel or rights without which no text would do. */
export function saysWhy(error: ExecError): boolean {
  const kind = nftFailureKind(error);
  if (kind !== "rejected") return kind === "permission";
  return nftErrors(error.stderr).length > 0 || isWithoutNftables(error) || isWithoutFamily(error);
}

/** True if something was to be added that is there already, with another value. */
export function alreadyExists(error: ExecError): boolean {
  return error.stderr.includes("File exists");
}

const CONTEXT_LENGTH = 300;

/** The first error in one line, with what was wrong in the text: `No such file or directory: add element …`. */
export function describeNftFailure(error: ExecError): string {
  const [first] = nftErrors(error.stderr);
  if (first === undefined) return firstLine(error.stderr) || `nft ${error.ending}`;
  const lines = error.stderr.split("\n");
  const at = lines.findIndex((line) => line.includes(`: Error: `));
  const text = lines[at + 1] ?? "";
  // Below the line, nft marks the place: the text around it is what a reader needs of a line of 10,000 elements.
  const column = Math.max(0, (lines[at + 2] ?? "").indexOf("^"));
  const start = text.length <= CONTEXT_LENGTH ? 0 : Math.max(0, column - CONTEXT_LENGTH / 2);
  return text === ""
    ? first.message
    : `${first.message}: ${text.slice(start, start + CONTEXT_LENGTH).trim()}`;
}
