/**
 * The iptables programs of one IP family: chains, rules, save, restore and the flush monitor.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import { type Clock, systemClock } from "./clock.ts";
import { type Exec, type ExecResult, type Input, wholeText } from "./exec.ts";
import { isLockBusy } from "./iptables_lock.ts";
import { saysUnusable } from "./iptables_refusal.ts";
import { type IptablesVariant, isAtLeast, MIN_IPTABLES_VERSION, waitArgs } from "./iptables_version.ts";
import { Mutex } from "./mutex.ts";
import { describeRestoreFailure } from "./restore_failure.ts";

/** The tables a proxy may touch. */
export type IptablesTable = "filter" | "nat" | "mangle";

/** Where a rule goes: the end of its chain, or its beginning. */
export type RulePosition = "append" | "prepend";

/** The names of one family's programs. */
export interface IptablesPrograms {
  readonly command: string;
  readonly save: string;
  readonly restore: string;
}

/** Which programs to run, and how to wait for the lock. */
export interface IptablesOptions {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
  /** Dotted, e.g. `1.8.9`. */
  readonly version: string;
  readonly programs: IptablesPrograms;
  readonly clock?: Clock;
  /** From 0 to below 1; spreads the retries of the many programs that wait for the same lock. */
  readonly random?: () => number;
  /** How long one command may try for the lock, all attempts together, in milliseconds. Default 30 000. */
  readonly lockDeadlineMs?: number;
}

/** How a restore treats what is there. */
export interface RestoreOptions {
  /** Only this table of the text; the others are skipped. */
  readonly table?: IptablesTable;
  /** True empties each table named in the text first. Default false. */
  readonly flush?: boolean;
  /** True takes the counters of the text over. Default true, as kube-proxy does. */
  readonly counters?: boolean;
}

/** What the flush monitor watches, and whom it tells. */
export interface MonitorOptions {
  /** Chain that nothing jumps to and that only a flush of the whole table removes. */
  readonly canary: string;
  /** Looked at in this order: the first one each period, the others once it is gone. */
  readonly tables: readonly IptablesTable[];
  readonly periodMs: number;
  /** Called after a flush, once the other tables are gone too or were given up on. */
  readonly onFlushed: () => void;
  /** Hears what keeps the monitor from working; it goes on trying. */
  readonly onProblem?: (message: string, error: unknown) => void;
  /** Ends the monitor. */
  readonly signal: AbortSignal;
}

const DEFAULT_LOCK_DEADLINE_MS = 30_000;
const RETRY_BASE_MS = 100;
const RETRY_MAX_MS = 2_000;
const CHECK_TIMEOUT_MS = 300_000;
const FLUSH_POLL_MS = 100;
const FLUSH_PATIENCE_MS = 5_000;

// iptables-nft's word for `-S` of a chain that does not exist.
const MISSING_FOR_NFT_REGEXP = /chain `[^']*' in table `[^']*' is incompatible, use 'nft' tool/;
// What iptables-nft says, in the middle of its text, of a rule that it takes for one of its own and cannot read.
const UNREADABLE_RULE_REGEXP = /Parsing nftables rule failed/;
const READ_TABLES: readonly IptablesTable[] = ["filter", "nat", "mangle"];
const WAIT_INTERVAL_NOTICE_REGEXP = /^Ignoring deprecated --wait-interval option\.\n/m;

/** The iptables programs of one family and variant. Its commands run one after the other. */
export class Iptables {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
  readonly version: string;
  readonly #exec: Exec;
  readonly #programs: IptablesPrograms;
  readonly #wait: readonly string[];
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #lockDeadlineMs: number;
  readonly #mutex = new Mutex();

  /** @throws {UnsupportedError} if the version is older than 1.6.2 */
  constructor(exec: Exec, options: IptablesOptions) {
    if (!isAtLeast(options.version, MIN_IPTABLES_VERSION)) {
      throw new UnsupportedError(
        options.programs.command,
        `iptables ${MIN_IPTABLES_VERSION}`,
        options.version,
      );
    }
    this.family = options.family;
    this.variant = options.variant;
    this.version = options.version;
    this.#exec = exec;
    this.#programs = options.programs;
    this.#wait = waitArgs(options.version);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#lockDeadlineMs = options.lockDeadlineMs ?? DEFAULT_LOCK_DEADLINE_MS;
  }

  /** True if this family works here: the nat table's POSTROUTING chain can be listed. Throws as `absence` does. */
  async present(): Promise<boolean> {
    return await this.absence() === null;
  }

  /**
   * Why this family does not work here; null if it does.
   *
   * @throws {ExecError} if nobody can tell: another program held the lock all the time, this one was killed or hung, or says what no
   *   kernel without the family leads to
   */
  async absence(): Promise<string | null> {
    const args = ["-S", "POSTROUTING", "-t", "nat"];
    try {
      const result = await this.#command(args);
      if (result.code === 0) return null;
      const error = new ExecError(this.#argv(args), result.code, result.stderr);
      if (!saysUnusable(error) || isLockBusy(result)) throw error;
      return error.message;
    } catch (error) {
      if (error instanceof ExecError && error.isMissing()) return error.message;
      throw error;
    }
  }

  /** True if MASQUERADE knows `--random-fully`. */
  hasRandomFully(): boolean {
    return isAtLeast(this.version, "1.6.2");
  }

  /** Makes the chain unless it is there. Resolves true if it was. */
  async ensureChain(table: IptablesTable, chain: string): Promise<boolean> {
    const args = ["-N", chain, "-t", table];
    const result = await this.#command(args);
    if (result.code === 1 && result.stderr.includes("Chain already exists")) return true;
    this.#check(args, result);
    return false;
  }

  /** The chain's rules with their counters, one a line, as `-S -v` writes them. */
  async list(table: IptablesTable, chain: string): Promise<string> {
    const args = ["-S", chain, "-v", "-t", table];
    const result = await this.#command(args);
    this.#check(args, result);
    return result.stdout;
  }

  /** Removes all rules of the chain. */
  async flushChain(table: IptablesTable, chain: string): Promise<void> {
    await this.#commandOk(["-F", chain, "-t", table]);
  }

  /** Removes the chain, which must be empty and without a jump to it. */
  async deleteChain(table: IptablesTable, chain: string): Promise<void> {
    await this.#commandOk(["-X", chain, "-t", table]);
  }

  /** True if the chain is there. */
  async chainExists(table: IptablesTable, chain: string): Promise<boolean> {
    const args = ["-S", chain, "-t", table];
    const result = await this.#command(args);
    if (result.code === 0) return true;
    const error = new ExecError(this.#argv(args), result.code, result.stderr);
    if (error.isNotFound() || MISSING_FOR_NFT_REGEXP.test(result.stderr)) return false;
    throw error;
  }

  /** Adds the rule unless the chain holds it, wherever in it. Resolves true if it did. */
  async ensureRule(
    position: RulePosition,
    table: IptablesTable,
    chain: string,
    args: readonly string[],
  ): Promise<boolean> {
    if (await this.#hasRule(table, chain, args)) return true;
    await this.#commandOk([position === "append" ? "-A" : "-I", chain, "-t", table, ...args]);
    return false;
  }

  /** Removes the first rule that equals this one, if there is one. Resolves true if there was. */
  async deleteRule(table: IptablesTable, chain: string, args: readonly string[]): Promise<boolean> {
    if (!await this.#hasRule(table, chain, args)) return false;
    await this.#commandOk(["-D", chain, "-t", table, ...args]);
    return true;
  }

  /**
   * The text of iptables-save for one table; without `table` for every table that exists.
   *
   * @throws {ExecError} also if it is no such text, or a part of one: what is missing in it would be taken for absent
   */
  async save(table?: IptablesTable): Promise<string> {
    const argv = [this.#programs.save, ...(table === undefined ? [] : ["-t", table])];
    return wholeSave(argv, await this.#mutex.run(() => this.#exec.run(argv)));
  }

  /**
   * As {@linkcode Iptables.save} for every table, but in the place of a table that holds what iptables has no words for stands what it
   * says of most of them: "# Table `nat' is incompatible, use 'nft' tool.".
   *
   * @throws {ExecError} likewise
   */
  async saveReadable(): Promise<string> {
    const argv = [this.#programs.save];
    const result = await this.#mutex.run(() => this.#exec.run(argv));
    const isBroken = result.code !== 0 && UNREADABLE_RULE_REGEXP.test(result.stderr);
    return isBroken ? withUnreadable(result.stdout) : wholeSave(argv, result);
  }

  /**
   * Feeds `text` to iptables-restore and resolves to its standard output. Each `*table … COMMIT` block is one
   * transaction; those before a failing one stay.
   *
   * @throws {ExecError} whose message and stderr hold the lines around the one that failed
   */
  async restore(text: Input, options: RestoreOptions = {}): Promise<string> {
    const argv = [
      this.#programs.restore,
      ...this.#wait,
      ...(options.table === undefined ? [] : ["-T", options.table]),
      ...(options.flush === true ? [] : ["--noflush"]),
      ...(options.counters === false ? [] : ["--counters"]),
    ];
    const result = await this.#runPastLock(argv, { stdin: text });
    if (result.code !== 0) {
      throw new ExecError(argv, result.code, describeRestoreFailure(result.stderr, wholeText(text)));
    }
    return result.stdout;
  }

  /**
   * Keeps a canary chain in each table and calls `onFlushed` whenever something removed it. Resolves when
   * `signal` is aborted, with the canaries removed.
   */
  async monitor(options: MonitorOptions): Promise<void> {
    const { canary, tables, periodMs, signal } = options;
    while (!signal.aborted) {
      if (await this.#setCanaries(options)) await this.#watchCanaries(options);
      else await this.#clock.sleep(periodMs, signal);
    }
    for (const table of tables) {
      try {
        await this.deleteChain(table, canary);
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        if (!error.isNotFound()) options.onProblem?.(`Cannot remove ${canary} from table ${table}`, error);
      }
    }
  }

  async #setCanaries({ canary, tables, onProblem }: MonitorOptions): Promise<boolean> {
    for (const table of tables) {
      try {
        await this.ensureChain(table, canary);
      } catch (error) {
        if (!(error instanceof ExecError)) throw error;
        onProblem?.(`Cannot set ${canary} in table ${table}`, error);
        return false;
      }
    }
    return true;
  }

  async #watchCanaries(options: MonitorOptions): Promise<void> {
    const { canary, tables, periodMs, signal, onFlushed, onProblem } = options;
    const [first, ...others] = tables;
    if (first === undefined) throw new TypeError("Cannot monitor without a table");
    while (!signal.aborted) {
      await this.#clock.sleep(periodMs, signal);
      if (signal.aborted || !await this.#isGone(first, canary)) continue;
      // A flush takes the tables one after the other: rules written now might be flushed again.
      const deadline = this.#clock.nowMs() + FLUSH_PATIENCE_MS;
      let left = others;
      while (!signal.aborted && left.length > 0 && this.#clock.nowMs() < deadline) {
        const still: IptablesTable[] = [];
        for (const table of left) if (!await this.#isGone(table, canary)) still.push(table);
        left = still;
        if (left.length > 0) await this.#clock.sleep(FLUSH_POLL_MS, signal);
      }
      if (left.length > 0) onProblem?.(`Inconsistent flush: ${first} lost ${canary}, not ${left}`, undefined);
      if (!signal.aborted) onFlushed();
      return;
    }
  }

  /** True if the chain is missing for certain; a lock that is held says nothing. */
  async #isGone(table: IptablesTable, chain: string): Promise<boolean> {
    const { code } = await this.#command(["-S", chain, "-t", table]);
    return code !== 0 && code !== 4;
  }

  async #hasRule(table: IptablesTable, chain: string, rule: readonly string[]): Promise<boolean> {
    const args = ["-C", chain, "-t", table, ...rule];
    const result = await this.#command(args, CHECK_TIMEOUT_MS);
    if (result.code === 0) return true;
    const error = new ExecError(this.#argv(args), result.code, result.stderr);
    // Status 2 with "not found": the rule jumps to a chain that does not exist, so it cannot be there either.
    if (result.code === 1 || error.isNotFound()) return false;
    throw error;
  }

  #argv(args: readonly string[]): string[] {
    return [this.#programs.command, ...this.#wait, ...args];
  }

  #command(args: readonly string[], timeoutMs?: number): Promise<ExecResult> {
    return this.#runPastLock(this.#argv(args), timeoutMs === undefined ? {} : { timeoutMs });
  }

  async #commandOk(args: readonly string[]): Promise<void> {
    this.#check(args, await this.#command(args));
  }

  #check(args: readonly string[], result: ExecResult): void {
    if (result.code !== 0) throw new ExecError(this.#argv(args), result.code, result.stderr);
  }

  /** Runs a command, again and again with jittered pauses while its status says that the lock is held. */
  #runPastLock(
    argv: readonly string[],
    options: { stdin?: Input; timeoutMs?: number },
  ): Promise<ExecResult> {
    return this.#mutex.run(async () => {
      const deadline = this.#clock.nowMs() + this.#lockDeadlineMs;
      for (let pauseMs = RETRY_BASE_MS;; pauseMs = Math.min(2 * pauseMs, RETRY_MAX_MS)) {
        const result = await this.#exec.run(argv, options);
        const stderr = withoutNotice(result.stderr);
        if (!isLockBusy({ code: result.code, stderr }) || this.#clock.nowMs() + pauseMs >= deadline) {
          return { ...result, stderr };
        }
        await this.#clock.sleep(pauseMs * (0.5 + this.#random() / 2));
      }
    });
  }
}

/** Of a save that broke off at a rule: the tables that came to their ends, and the word for the others. */
function withUnreadable(text: string): string {
  const end = text.lastIndexOf("\nCOMMIT\n");
  const whole = end < 0 ? "" : text.slice(0, end + "\nCOMMIT\n".length);
  const missing = READ_TABLES.filter((table) => !whole.includes(`*${table}\n`));
  return whole + missing.map((table) => `# Table \`${table}' is incompatible, use 'nft' tool.\n`).join("");
}

/** @throws {ExecError} if it is not the text of tables that came to their ends */
function wholeSave(argv: readonly string[], { code, stdout, stderr }: ExecResult): string {
  if (code !== 0) throw new ExecError(argv, code, withoutNotice(stderr));
  if (!isWholeSave(stdout)) throw new ExecError(argv, code, "It did not print a whole ruleset");
  return stdout;
}

/** True for nothing at all, as where no table exists, and for tables to their ends; only comments follow the last one. */
function isWholeSave(text: string): boolean {
  let end = text.length;
  while (end > 0) {
    const start = text.lastIndexOf("\n", end - 2) + 1;
    const line = text.slice(start, end).trimEnd();
    if (line !== "" && !line.startsWith("#")) return line === "COMMIT";
    end = start;
  }
  return true;
}

function withoutNotice(stderr: string): string {
  return stderr.replace(WAIT_INTERVAL_NOTICE_REGEXP, "");
}
