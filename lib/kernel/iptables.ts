/**
 * The iptables programs of one IP family: version, chains, rules, save, restore, and the lock of all that write rules.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import { unreadableNotice } from "../netfilter/iptables_save.ts";
import { type Clock, Mutex, systemClock } from "./clock.ts";
import { type Exec, type ExecResult, type Input, wholeText } from "./exec.ts";
import { describeRestoreFailure, isLockBusy, saysUnusable } from "./tool_errors.ts";

/** The tables a proxy may touch. */
export type IptablesTable = "filter" | "nat" | "mangle";

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

/** Options of a restore. Chains that its text does not name stay. */
export interface RestoreOptions {
  /** True takes the counters of the text over. Default true, as kube-proxy does. */
  readonly counters?: boolean;
  /** True changes nothing, and only checks that the text can be read and the kernel knows its words. Default false. */
  readonly test?: boolean;
}

const DEFAULT_LOCK_DEADLINE_MS = 30_000;
const RETRY_BASE_MS = 100;
const RETRY_MAX_MS = 2_000;

// Error of iptables-nft, in the middle of its text, for a rule that it takes for one of its own and cannot read.
const UNREADABLE_RULE_REGEXP = /Parsing nftables rule failed/;
const READ_TABLES: readonly IptablesTable[] = ["filter", "nat", "mangle"];
const WAIT_INTERVAL_NOTICE_REGEXP = /^Ignoring deprecated --wait-interval option\.\n/m;

/** The iptables programs of one family and variant. Its commands run one after the other. */
export class Iptables {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
  readonly version: string;
  readonly #exec: Exec;
  readonly #options: Required<IptablesOptions>;
  readonly #programs: IptablesPrograms;
  readonly #wait: readonly string[];
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
    this.#options = {
      clock: systemClock,
      random: Math.random,
      lockDeadlineMs: DEFAULT_LOCK_DEADLINE_MS,
      ...options,
    };
    this.#programs = options.programs;
    this.#wait = waitArgs(options.version);
  }

  /** The same programs, started by another {@linkcode Exec}. */
  with(exec: Exec): Iptables {
    return new Iptables(exec, this.#options);
  }

  /**
   * Why this family does not work here; null if it does: the nat table's POSTROUTING chain can be listed.
   *
   * @throws {ExecError} if that is unknown: another program held the lock all the time, this one was killed or hung, or
   *   its error is none to which a kernel without the family leads
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

  /** The chain's rules with their counters, one a line, as `-S -v` writes them. */
  async list(table: IptablesTable, chain: string): Promise<string> {
    const args = ["-S", chain, "-v", "-t", table];
    const result = await this.#command(args);
    if (result.code !== 0) throw new ExecError(this.#argv(args), result.code, result.stderr);
    return result.stdout;
  }

  /**
   * Tries whether rules may name the counter of `nfacct`: a kernel without this match refuses every table whose rules do.
   *
   * @throws {ExecError} if they may not
   */
  async tryCounter(name: string): Promise<void> {
    const text = `*filter\n-A INPUT -m nfacct --nfacct-name ${name}\nCOMMIT\n`;
    await this.restore(text, { test: true });
  }

  /**
   * The text of iptables-save for one table; without `table` for every table that exists.
   *
   * @throws {ExecError} also if the text is not whole: what is missing in it would be taken for absent
   */
  async save(table?: IptablesTable): Promise<string> {
    const argv = [this.#programs.save, ...(table === undefined ? [] : ["-t", table])];
    return wholeSave(argv, await this.#mutex.run(() => this.#exec.run(argv)));
  }

  /**
   * As {@linkcode Iptables.save} for every table, but instead of a table that iptables cannot print there is
   * the comment that it prints for most of them: "# Table `nat' is incompatible, use 'nft' tool.".
   *
   * @throws {ExecError} as {@linkcode Iptables.save}
   * @throws the reason of `signal`, which ends it
   */
  async saveReadable(signal?: AbortSignal): Promise<string> {
    const argv = [this.#programs.save];
    const result = await this.#mutex.run(() => this.#exec.run(argv, signal === undefined ? {} : { signal }));
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
      "--noflush",
      ...(options.counters === false ? [] : ["--counters"]),
      ...(options.test === true ? ["--test"] : []),
    ];
    const result = await this.#runPastLock(() => this.#exec.run(argv, { stdin: text }));
    if (result.code !== 0) {
      throw new ExecError(argv, result.code, describeRestoreFailure(result.stderr, wholeText(text)));
    }
    return result.stdout;
  }

  #argv(args: readonly string[]): string[] {
    return [this.#programs.command, ...this.#wait, ...args];
  }

  #command(args: readonly string[]): Promise<ExecResult> {
    return this.#runPastLock(() => this.#exec.run(this.#argv(args)));
  }

  /** Runs a command, again and again with jittered pauses while its status says that the lock is held. */
  #runPastLock(run: () => Promise<ExecResult>): Promise<ExecResult> {
    const { clock, random, lockDeadlineMs } = this.#options;
    return this.#mutex.run(async () => {
      const deadline = clock.nowMs() + lockDeadlineMs;
      for (let pauseMs = RETRY_BASE_MS;; pauseMs = Math.min(2 * pauseMs, RETRY_MAX_MS)) {
        const result = await run();
        const stderr = withoutNotice(result.stderr);
        if (!isLockBusy({ code: result.code, stderr }) || clock.nowMs() + pauseMs >= deadline) {
          return { ...result, stderr };
        }
        await clock.sleep(pauseMs * (0.5 + random() / 2));
      }
    });
  }
}

/** From a save that broke off at a rule: the whole tables, and the comment for the others. */
function withUnreadable(text: string): string {
  const end = text.lastIndexOf("\nCOMMIT\n");
  const whole = end < 0 ? "" : text.slice(0, end + "\nCOMMIT\n".length);
  const missing = READ_TABLES.filter((table) => !whole.includes(`*${table}\n`));
  return whole + missing.map((table) => `${unreadableNotice(table)}\n`).join("");
}

/** @throws {ExecError} if it is not the text of whole tables */
function wholeSave(argv: readonly string[], { code, stdout, stderr }: ExecResult): string {
  if (code !== 0) throw new ExecError(argv, code, withoutNotice(stderr));
  if (!isWholeSave(stdout)) throw new ExecError(argv, 0, "It did not print a whole ruleset");
  return stdout;
}

/** True for an empty text, as where no table exists, and for whole tables; only comments follow the last one. */
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

/** Which kernel interface an iptables program speaks: nf_tables, or the older x_tables. */
export type IptablesVariant = "nft" | "legacy";

/** Version and variant of one iptables program. */
export interface IptablesVersion {
  /** Dotted, e.g. `1.8.9`. */
  readonly version: string;
  readonly variant: IptablesVariant;
}

/** The oldest version whose `iptables-restore` waits for the lock by itself, and whose MASQUERADE knows `--random-fully`. */
export const MIN_IPTABLES_VERSION = "1.6.2";

/** Since this version `-W` only prints that it is ignored. */
const WAIT_INTERVAL_IGNORED_SINCE = "1.8.8";

/** Reads `iptables v1.8.9 (nf_tables)`; null for any other text. Before 1.8 there was only the legacy variant. */
export function parseIptablesVersion(text: string): IptablesVersion | null {
  const match = /v([0-9]+(?:\.[0-9]+)+)(?:\s+\((\w+)\))?/.exec(text);
  if (match === null) return null;
  return { version: match[1] ?? "", variant: match[2] === "nf_tables" ? "nft" : "legacy" };
}

/** True if dotted version `version` is `minimum` or newer. */
export function isAtLeast(version: string, minimum: string): boolean {
  const parts = version.split(".").map(Number);
  const wanted = minimum.split(".").map(Number);
  for (const [i, want] of wanted.entries()) {
    const part = parts[i] ?? 0;
    if (part !== want) return part > want;
  }
  return true;
}

/** The arguments that make `iptables` and `iptables-restore` wait up to 5 s for the xtables lock. */
export function waitArgs(version: string): readonly string[] {
  // Older programs look for the lock once a second unless an option says every 100 ms.
  return isAtLeast(version, WAIT_INTERVAL_IGNORED_SINCE) ? ["-w", "5"] : ["-w", "5", "-W", "100000"];
}

/** Path of the lock unless iptables was built otherwise. */
const XTABLES_LOCK = "/run/xtables.lock";

/** State of the xtables lock. */
export interface XtablesLock {
  readonly path: string;
  readonly exists: boolean;
  /** True if the file is on another file system than its folder, as one that a container was given from its host. */
  readonly isMounted: boolean;
  /** True if another program held it all the time; null if this process may not try. */
  readonly isHeld: boolean | null;
}

/** How often, and how far apart, the lock is tried: a sync of iptables holds it for some milliseconds. */
const TRIES = 5;
const PAUSE_MS = 100;

/** Reads the state of the lock. It is held for no longer than it takes to let it go, and never waited for. */
export async function readXtablesLock(path: string = XTABLES_LOCK): Promise<XtablesLock> {
  try {
    const [file, folder] = [await Deno.stat(path), await Deno.stat(path.replace(/\/[^/]*$/, "") || "/")];
    return { path, exists: true, isMounted: file.dev !== folder.dev, isHeld: await isHeld(path) };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return { path, exists: false, isMounted: false, isHeld: false };
  }
}

async function isHeld(path: string): Promise<boolean | null> {
  try {
    using file = await Deno.open(path, { read: true });
    for (let left = TRIES; left > 0; left--) {
      // Shared: readers do not disturb one another, and a writer of rules holds it alone.
      if (await file.tryLock(false)) return false;
      if (left > 1) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) return null;
    throw error;
  }
}
