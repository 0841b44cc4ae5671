/**
 * A working iptables in memory, for both families and variants: `iptables`, `ip6tables` and their `-save`, `-restore`,
 * `-nft` and `-legacy` names. `tests/kernel` runs the same cases on it and on the real programs.
 *
 * Not modelled: loops of jumps, counters, and extensions beyond those a service proxy writes.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import type { IptablesVariant } from "../../lib/kernel/iptables.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { splitWords } from "../../lib/netfilter/iptables_rule.ts";
import type { SavedTable } from "../../lib/netfilter/iptables_save.ts";
import { startRecording } from "./fake_record.ts";
import { BUILTIN_CHAINS, FakeTable, Refusal } from "./fake_iptables_tables.ts";

/** Equipment of the fake machine. */
export interface FakeIptablesOptions {
  /** Variant of `iptables` without a variant in its name. Default nft. */
  readonly variant?: IptablesVariant;
  /** Default version 1.8.9. */
  readonly version?: string;
  /** Programs that are not installed. */
  readonly missing?: readonly string[];
}

interface Program {
  readonly name: string;
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
  readonly action: "command" | "save" | "restore";
}

interface Kernel {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
  readonly tables: Map<string, FakeTable>;
}

const PROGRAM_REGEXP = /^(ip6?tables)(?:-(nft|legacy))?(?:-(save|restore))?$/;
const LOCK_HELD =
  "Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...\n" +
  "Another app is currently holding the xtables lock. Perhaps you want to use the -w option?\n";

/** An {@linkcode Exec} with iptables programs that work in memory. */
export class FakeIptables implements Exec {
  /** Programs started, in order. */
  readonly runs: { readonly argv: readonly string[]; readonly stdin: string }[] = [];
  /** Called after each committed transaction, with a function that yields iptables-save's output then. */
  onCommit: ((family: IpFamily, save: () => string) => void) | undefined;
  /**
   * Refuses a line that adds a rule: either the program does when it reads the line, or the kernel when the table is committed. The
   * nft variant's kernel reports each line, the legacy variant's only the table, so its program names the line of COMMIT.
   */
  refuse: (line: string) => { readonly by: "program" | "kernel"; readonly problem: string } | undefined =
    () => undefined;
  readonly #refusesNothing = this.refuse;
  readonly #variant: IptablesVariant;
  readonly #version: string;
  readonly #missing: ReadonlySet<string>;
  readonly #kernels = new Map<string, Kernel>();
  readonly #recorder = startRecording("iptables", () =>
    Object.fromEntries(
      [...this.#kernels.values()].map((kernel) => [programOf(kernel, "-save"), save(kernel)]),
    ));
  #lockedRuns = 0;
  #failingRestores: { readonly atBlock: number; readonly stderr: string; readonly code: number }[] = [];

  constructor(options: FakeIptablesOptions = {}) {
    this.#variant = options.variant ?? "nft";
    this.#version = options.version ?? "1.8.9";
    this.#missing = new Set(options.missing);
  }

  /** Makes the next `count` commands find the xtables lock held (status 4). */
  holdLock(count: number): void {
    this.#lockedRuns = count;
  }

  /** Makes the next `count` restores fail at block number `atBlock` (from 0); the blocks before it are committed. */
  failRestores(count: number, atBlock = 0, code = 1, stderr = "iptables-restore: line 2 failed\n"): void {
    for (let i = 0; i < count; i++) this.#failingRestores.push({ atBlock, code, stderr });
  }

  /** Cancels planned failures of restores. */
  healRestores(): void {
    this.#failingRestores.length = 0;
  }

  /** Output of iptables-save for one table, or for all existing tables. */
  saved(family: IpFamily, table?: string, variant = this.#variant): string {
    return save(this.#kernel(family, variant), table);
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    // A process takes at least one turn, so that races with it show here, too.
    await Promise.resolve();
    const program = this.#find(argv);
    const stdin = wholeText(options.stdin ?? "");
    this.runs.push({ argv, stdin });
    const args = argv.slice(1);
    const isPlain = this.#lockedRuns === 0 && this.#failingRestores.length === 0 &&
      this.refuse === this.#refusesNothing;
    if (!isPlain) this.#recorder?.end();
    const kernel = this.#kernel(program.family, program.variant);
    const real = programOf(kernel, program.action === "command" ? "" : `-${program.action}`);
    const ended = args.includes("--version") ? undefined : this.#recorder?.begin([real, ...args], stdin);
    const result = this.#do(program, args, stdin);
    ended?.(result);
    return result;
  }

  #do(program: Program, args: readonly string[], stdin: string): ExecResult {
    if (args.includes("--version")) {
      return done(
        `${program.name} v${this.#version} (${program.variant === "nft" ? "nf_tables" : "legacy"})\n`,
      );
    }
    if (program.action === "save") return this.#save(program, args);
    if (this.#lockedRuns > 0) {
      this.#lockedRuns--;
      return { code: 4, stdout: "", stderr: LOCK_HELD };
    }
    return program.action === "restore" ? this.#restore(program, args, stdin) : this.#command(program, args);
  }

  #find(argv: readonly string[]): Program {
    const name = argv[0] ?? "";
    const match = PROGRAM_REGEXP.exec(name);
    if (match === null || this.#missing.has(name)) {
      throw new ExecError(argv, -1, `entity not found: ${name}`);
    }
    const [, base, variant, action] = match;
    return {
      name,
      family: base === "iptables" ? "IPv4" : "IPv6",
      variant: variant === "nft" || variant === "legacy" ? variant : this.#variant,
      action: action === "save" || action === "restore" ? action : "command",
    };
  }

  #kernel(family: IpFamily, variant: IptablesVariant): Kernel {
    const key = `${family} ${variant}`;
    const found = this.#kernels.get(key) ?? { family, variant, tables: new Map<string, FakeTable>() };
    this.#kernels.set(key, found);
    return found;
  }

  #save(program: Program, args: readonly string[]): ExecResult {
    const kernel = this.#kernel(program.family, program.variant);
    const at = args.indexOf("-t");
    const table = at < 0 ? undefined : args[at + 1];
    if (table !== undefined && kernel.variant === "legacy") openTable(kernel, table);
    return done(save(kernel, table));
  }

  #command(program: Program, args: readonly string[]): ExecResult {
    const kernel = this.#kernel(program.family, program.variant);
    try {
      const { tableName, words } = takeTable(skipWait(args));
      const draft = openTable(kernel, tableName).draft();
      const stdout = execute(draft, words);
      this.#commit(kernel, draft);
      return done(stdout);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const tool = program.family === "IPv4" ? "iptables" : "ip6tables";
      const version = `${tool} v${this.#version} (${program.variant === "nft" ? "nf_tables" : "legacy"}): `;
      const prefix = error.kernel ? `${version} ` : error.parser ? version : `${tool}: `;
      return { code: error.code, stdout: "", stderr: `${prefix}${error.message}\n` };
    }
  }

  #restore(program: Program, args: readonly string[], text: string): ExecResult {
    const kernel = this.#kernel(program.family, program.variant);
    const failing = this.#failingRestores.shift();
    const at = args.findIndex((word) => word === "-T" || word === "--table");
    const run: RestoreRun = {
      kernel,
      flush: !args.includes("--noflush") && !args.includes("-n"),
      only: at < 0 ? undefined : args[at + 1],
      stdout: "",
      draft: null,
      skipping: false,
      refused: [],
    };
    let number = 0;
    let block = -1;
    try {
      for (const line of text.split("\n")) {
        number++;
        if (line.startsWith("*")) block++;
        if (failing !== undefined && block === failing.atBlock && line.startsWith("*")) {
          return { code: failing.code, stdout: run.stdout, stderr: failing.stderr };
        }
        this.#refuse(run, line, number);
        const committed = restoreLine(run, line);
        if (committed !== null) this.#commit(kernel, committed);
      }
      if (run.draft !== null) {
        return {
          code: 1,
          stdout: run.stdout,
          stderr: `${program.name}: COMMIT expected at line ${number}\n`,
        };
      }
      return done(run.stdout);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { code: error.code, stdout: run.stdout, stderr: this.#refusal(program, error, number) };
    }
  }

  #refuse(run: RestoreRun, line: string, number: number): void {
    const refusal = /^-[AI] /.test(line) ? this.refuse(line) : undefined;
    if (refusal?.by === "program") throw new Refusal(2, refusal.problem, "parser");
    const { variant } = run.kernel;
    if (refusal !== undefined) run.refused.push(`line ${number}: RULE_APPEND failed (${refusal.problem})`);
    if (line !== "COMMIT" || run.refused.length === 0) return;
    throw variant === "nft" ? new Refusal(4, run.refused.join("\n"), "lines") : new Refusal(1, "");
  }

  #refusal(program: Program, error: Refusal, line: number): string {
    const nft = program.variant === "nft";
    if (error.lines) return `${program.name} v${this.#version} (nf_tables): \n${error.message}\n`;
    const version = `${program.name} v${this.#version} (${nft ? "nf_tables" : "legacy"}): `;
    if (error.kernel) return `${version}\nline ${line}: ${error.message}\n`;
    if (error.parser) {
      return `${version}${error.message}\nError occurred at line: ${line}\n` +
        `Try \`${program.name} -h' or '${program.name} --help' for more information.\n`;
    }
    return `${program.name}: line ${line} failed${nft && error.message !== "" ? `: ${error.message}` : ""}\n`;
  }

  #commit(kernel: Kernel, draft: FakeTable): void {
    kernel.tables.set(draft.name, draft);
    this.onCommit?.(kernel.family, () => save(kernel));
  }
}

interface RestoreRun {
  readonly kernel: Kernel;
  readonly flush: boolean;
  readonly only: string | undefined;
  stdout: string;
  draft: FakeTable | null;
  skipping: boolean;
  /** Lines of this block that the kernel will refuse, with its errors. */
  readonly refused: string[];
}

/** Tables of one family without programs, for property tests that load thousands of texts. */
export class RestoredTables {
  readonly #kernel: Kernel = { family: "IPv4", variant: "legacy", tables: new Map() };

  /** The table as read from iptables-save. */
  saved(table: string): SavedTable {
    return openTable(this.#kernel, table).chains;
  }

  /** Chain → its rules, without `-A CHAIN `. */
  chains(table: string): ReadonlyMap<string, readonly string[]> {
    return new Map([...this.saved(table)].map(([name, { rules }]) => [name, rules]));
  }

  /**
   * Applies the blocks of a restore text, each all or nothing; yields its output.
   *
   * @throws {Refusal} at the first refused line; earlier blocks stay applied
   */
  restore(text: string): string {
    const run: RestoreRun = {
      kernel: this.#kernel,
      flush: false,
      only: undefined,
      stdout: "",
      draft: null,
      skipping: false,
      refused: [],
    };
    for (const line of text.split("\n")) {
      const committed = restoreLine(run, line);
      if (committed !== null) this.#kernel.tables.set(committed.name, committed);
    }
    if (run.draft !== null || !text.endsWith("\n")) throw new Refusal(1, "no COMMIT and newline at the end");
    return run.stdout;
  }
}

/** Handles one line; yields the table to commit if the line ends a block. */
function restoreLine(run: RestoreRun, line: string): FakeTable | null {
  if (line === "" || line.startsWith("#")) return null;
  if (run.skipping) {
    run.skipping = line !== "COMMIT";
    return null;
  }
  if (line.startsWith("*") && run.draft === null) {
    const name = line.slice(1).trim();
    if (run.only !== undefined && name !== run.only) {
      run.skipping = true;
      return null;
    }
    run.draft = openTable(run.kernel, name).draft();
    if (run.flush) run.draft.reset();
    return null;
  }
  const { draft } = run;
  if (draft === null) throw new Refusal(1, "");
  if (line === "COMMIT") {
    run.draft = null;
    return draft;
  }
  if (line.startsWith(":")) {
    const [chain = "", policy = ""] = splitWords(line.slice(1));
    draft.declare(chain, policy);
  } else {
    run.stdout += execute(draft, splitWords(line));
  }
  return null;
}

/** Runs one command on a draft; yields its output. */
function execute(table: FakeTable, words: readonly string[]): string {
  // The fake has no counters.
  const [command = "", chain = "", ...rest] = words[0] === "-v" ? words.slice(1) : words;
  const index = /^\d+$/.test(rest[0] ?? "") ? Number(rest[0]) : undefined;
  switch (command) {
    case "-N":
      table.create(chain);
      return "";
    case "-F":
      table.flush(chain);
      return "";
    case "-X":
      table.remove(chain);
      return "";
    case "-A":
      table.insert(chain, rest);
      return "";
    case "-I":
      if (index === undefined) table.insert(chain, rest, 1);
      else table.insert(chain, rest.slice(1), index);
      return "";
    case "-R":
      if (index === undefined) throw new Refusal(2, "-R requires a rule number", "parser");
      table.replace(chain, index, rest.slice(1));
      return "";
    case "-D":
      if (index === undefined) table.deleteRule(chain, rest);
      else table.deleteAt(chain, index);
      return "";
    case "-C":
      table.check(chain, rest);
      return "";
    case "-S":
      return chain === "" ? table.listAll() : table.list(chain);
    default:
      throw new Refusal(2, `Unknown arg "${command}"`, "parser");
  }
}

function openTable(kernel: Kernel, name: string): FakeTable {
  if (BUILTIN_CHAINS[name] === undefined) {
    throw new Refusal(
      2,
      kernel.variant === "nft" ? `table name '${name}' invalid` : `unable to initialize table '${name}'`,
      "parser",
    );
  }
  const found = kernel.tables.get(name) ?? new FakeTable(name, kernel.variant);
  kernel.tables.set(name, found);
  return found;
}

function save(kernel: Kernel, table?: string): string {
  const names = table === undefined ? [...kernel.tables.keys()].sort() : [table];
  return names.map((name) => kernel.tables.get(name)?.save() ?? "").join("");
}

function skipWait(args: readonly string[]): readonly string[] {
  let rest = args;
  while (rest[0] === "-w" || rest[0] === "-W") rest = rest.slice(/^\d+$/.test(rest[1] ?? "") ? 2 : 1);
  return rest;
}

function takeTable(args: readonly string[]): { tableName: string; words: readonly string[] } {
  const at = args.indexOf("-t");
  if (at < 0) return { tableName: "filter", words: args };
  return { tableName: args[at + 1] ?? "", words: [...args.slice(0, at), ...args.slice(at + 2)] };
}

/** Name of a variant's program, also if that variant is not the default. */
function programOf({ family, variant }: Kernel, action: "" | `-${string}`): string {
  return `${family === "IPv4" ? "iptables" : "ip6tables"}-${variant}${action}`;
}

function done(stdout: string): ExecResult {
  return { code: 0, stdout, stderr: "" };
}
