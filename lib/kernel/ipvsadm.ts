/**
 * IPVS through the `ipvsadm` program.
 *
 * @module
 */
import { ExecError, UnsupportedError } from "../errors.ts";
import {
  addVirtualServerLine,
  deleteVirtualServerLine,
  type IpvsTable,
  parseIpvsLoads,
  parseIpvsTable,
  type RealServerLoad,
  virtualServerKey,
  type VirtualServerLoad,
  type VirtualServerName,
  virtualServerOption,
} from "../netfilter/ipvs.ts";
import { type Exec, type ExecResult, type Input, runOk } from "./exec.ts";
import { isPermissionProblem, mayBlameLines, type RefusedLine, type RestoreOutcome } from "./tool_errors.ts";

/** Idle times after which connections are forgotten. */
export interface IpvsTimeouts {
  readonly tcpSeconds: number;
  readonly tcpFinSeconds: number;
  readonly udpSeconds: number;
}

// The program's own words; it never translates them.
const NOT_FOUND_REGEXP = /No such (service|destination)/;
const NO_SCHEDULER_REGEXP = /Scheduler or persistence engine not found/;
const NO_IPVS_REGEXP = /Can't initialize ipvs: (?!Permission|Operation not permitted)/;

// Errors of a table that is not what the lines are meant for: another process changed it.
const OTHERWISE_REGEXP = /already exists|No such (service|destination)/;

const RESTORE = ["ipvsadm", "-R"];

/** The IPVS of this network namespace. */
export class Ipvsadm {
  readonly #exec: Exec;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Deletes all virtual servers, those of others among them. */
  async flush(): Promise<void> {
    await runOk(this.#exec, ["ipvsadm", "-C"]);
  }

  /**
   * True if the kernel has the scheduler: adds a virtual server with it, where kube-proxy tries it too, and deletes it again.
   *
   * @throws {ExecError} if something else failed
   */
  async hasScheduler(scheduler: string): Promise<boolean> {
    const add = addVirtualServerLine({ ...NO_SERVER, scheduler, flags: [], timeoutSeconds: 0 });
    const remove = deleteVirtualServerLine(NO_SERVER);
    // The first line fails, unless a try was killed and left the server. The program's status is that of the last one.
    const { code, stderr } = await this.#restore([remove, add, remove]);
    const said = linesOf(stderr);
    const others = said.filter((line) => !NOT_FOUND_REGEXP.test(line));
    const isMissing = others.length === 1 && NO_SCHEDULER_REGEXP.test(others[0]!) &&
      NOT_FOUND_REGEXP.test(said.at(-1)!);
    if (others.length > (isMissing ? 1 : 0) || isMissing !== (code !== 0)) {
      throw new ExecError(RESTORE, code, oneLine(stderr));
    }
    return !isMissing;
  }

  /** All virtual servers, those of others among them, with their real servers. */
  async save(): Promise<IpvsTable> {
    return parseIpvsTable(await runOk(this.#exec, ["ipvsadm", "-Sn"]));
  }

  /** The real servers of one virtual server with their connections; null if there is none of this name. */
  async listRealServers(virtual: VirtualServerName): Promise<readonly RealServerLoad[] | null> {
    const argv = ["ipvsadm", "-Ln", ...virtualServerOption(virtual).split(" ")];
    try {
      const load = parseIpvsLoads(await runOk(this.#exec, argv)).get(virtualServerKey(virtual));
      return load === undefined ? null : [...load.realServers.values()];
    } catch (error) {
      if (isAbout(error, NOT_FOUND_REGEXP)) return null;
      throw error;
    }
  }

  /** The connections of all real servers; by key of the virtual server. */
  async loads(): Promise<ReadonlyMap<string, VirtualServerLoad>> {
    return parseIpvsLoads(await runOk(this.#exec, ["ipvsadm", "-Ln"]));
  }

  /**
   * Carries out lines (without line ends) in their order, in one run of the program.
   *
   * @throws {ExecError} if a command failed; those around it have been carried out, and it is not known which one it was
   */
  async restore(lines: Iterable<string>): Promise<void> {
    const { code, stderr } = await this.#restore(lines);
    // A line that the kernel refuses does not change the program's status.
    if (code !== 0 || stderr.trim() !== "") throw new ExecError(RESTORE, code, oneLine(stderr));
  }

  /**
   * As {@linkcode Ipvsadm.restore}, but where the kernel refuses lines that add or change something, all others are carried out. Costs
   * one run more if there are some.
   *
   * @returns with the refused lines, without those of real servers whose virtual server is refused
   * @throws {ExecError} if no line is to blame: another process changed the table, or the machine is out of something
   */
  async restoreOthers(lines: readonly string[]): Promise<RestoreOutcome> {
    const refused: RefusedLine[] = [];
    let [first, runs] = [0, 0];
    while (first < lines.length) {
      const failed = await this.#restore(first === 0 ? lines : lines.slice(first));
      runs++;
      if (failed.code === 0 && failed.stderr.trim() === "") break;
      const errors = mayBlameLines(failed) && !OTHERWISE_REGEXP.test(failed.stderr)
        ? await this.#errors(lines, first, failed)
        : null;
      if (errors === null) throw new ExecError(RESTORE, failed.code, oneLine(failed.stderr));
      runs++;
      refused.push(...errors.refused);
      if (errors.end === null) break;
      first = errors.end + 1;
    }
    return { refused, runs };
  }

  async #errors(
    lines: readonly string[],
    first: number,
    failed: ExecResult,
  ): Promise<LineErrors | null> {
    const marked = new MarkedLines(lines, first);
    return marked.errors(failed, await this.#restore(marked.text));
  }

  #restore(lines: Iterable<string>): Promise<ExecResult> {
    return this.#exec.run(RESTORE, { stdin: inPieces(lines) });
  }

  /** Sets idle times; 0 leaves one as it is. */
  async setTimeouts({ tcpSeconds, tcpFinSeconds, udpSeconds }: IpvsTimeouts): Promise<void> {
    await runOk(this.#exec, ["ipvsadm", "--set", ...[tcpSeconds, tcpFinSeconds, udpSeconds].map(String)]);
  }
}

/** Lines per piece of text: a piece is written at once. */
const PIECE_LINES = 512;

function inPieces(lines: Iterable<string>): Input {
  return function* () {
    let piece: string[] = [];
    for (const line of lines) {
      piece.push(`${line}\n`);
      if (piece.length < PIECE_LINES) continue;
      yield piece.join("");
      piece = [];
    }
    yield piece.join("");
  };
}

/** Each error once, with its count: the same one may come for each of 10,000 lines. */
function oneLine(stderr: string): string {
  const counts = new Map<string, number>();
  for (const line of stderr.split("\n")) {
    if (line !== "") counts.set(line, (counts.get(line) ?? 0) + 1);
  }
  return [...counts].map(([line, count]) => count === 1 ? line : `${line} (${count} times)`).join("; ");
}

function isAbout(error: unknown, regexp: RegExp): boolean {
  return error instanceof ExecError && regexp.test(error.stderr);
}

/** Error for a scheduler that the kernel does not have. */
export function missingScheduler(scheduler: string): UnsupportedError {
  return new UnsupportedError(
    `IPVS scheduler ${scheduler}`,
    `the kernel module ip_vs_${scheduler}`,
    "no such scheduler in this kernel",
  );
}

/** True if the failure says that there is no IPVS in this kernel, and therefore nothing in it. */
export function isWithoutIpvs({ stderr }: ExecError): boolean {
  return NO_IPVS_REGEXP.test(stderr);
}

/** Why IPVS cannot be used at all, if the failure says so: program, module or rights are missing. */
export function ipvsAbsence(error: ExecError): UnsupportedError | null {
  if (error.isMissing()) {
    return absence("the program ipvsadm (package ipvsadm)", "none on the PATH", error);
  }
  if (isWithoutIpvs(error)) {
    return absence(
      "the kernel module ip_vs (modprobe of package kmod loads it)",
      "none in this kernel",
      error,
    );
  }
  if (isPermissionProblem(error.stderr)) {
    return absence("root or CAP_NET_ADMIN", error.stderr.trim(), error);
  }
  return null;
}

function absence(needs: string, found: string, cause: ExecError): UnsupportedError {
  return new UnsupportedError("IPVS", needs, found, { cause });
}

/** A server in a network for documentation, where none is. */
const NO_SERVER: VirtualServerName = { address: "198.51.100.0", protocol: "TCP", port: 20_000 };
/** Line that always fails, with an error that no adding or changing line can cause, and changes nothing. */
const MARK_LINE = `-Z ${virtualServerOption(NO_SERVER)}`;
const MARK = "No such service";
const EXISTS_REGEXP = /already exists/;
const NO_VIRTUAL_SERVER_REGEXP = /Service not defined/;
/** Statuses for a line which the program itself does not take: it ends there, and does not read on. */
const UNREADABLE_CODES: readonly number[] = [2, 255];

/** Errors of a run, by line. */
export interface LineErrors {
  /** Refused lines, without real servers whose virtual server is refused. */
  readonly refused: readonly RefusedLine[];
  /** Index of the line at which the program ended, so that those behind it were not carried out; null: it read all. */
  readonly end: number | null;
}

/** Lines repeated from the `first` on, with marks between them, so that the output shows which of them fail. */
export class MarkedLines {
  readonly #tried: readonly { readonly line: string; readonly index: number }[];

  /** Deletions are left out: where they fail, no line is refused. */
  constructor(lines: readonly string[], first: number) {
    this.#tried = lines.flatMap((line, index) =>
      index < first || /^-[Dd] /.test(line) ? [] : [{ line, index }]
    );
  }

  get text(): readonly string[] {
    return this.#tried.flatMap(({ line }) => [line, MARK_LINE]);
  }

  /**
   * @param failed result of the lines alone
   * @param marked result of {@linkcode text}
   * @returns null if the lines are not to blame: others changed the table, or what failed does not fail any more
   */
  errors(failed: ExecResult, marked: ExecResult): LineErrors | null {
    const groups = saidBetweenMarks(marked.stderr);
    // Behind the last mark there is nothing, unless the program ended at a line that it cannot read.
    const rest = groups.at(-1) ?? [];
    const end = rest.length === 0 ? null : this.#tried[groups.length - 1]?.index ?? null;
    const isWhole = end === null
      ? groups.length === this.#tried.length + 1
      : UNREADABLE_CODES.includes(marked.code);
    const said = this.#tried.flatMap((tried, at) => {
      const words = groups[at] ?? [];
      return words.length === 0 || EXISTS_REGEXP.test(words[0] ?? "") ? [] : [{ ...tried, words }];
    });
    const before = linesOf(failed.stderr).join("\n");
    if (!isWhole || said.length === 0 || said.flatMap(({ words }) => words).join("\n") !== before) {
      return null;
    }
    const missing = new Set(said.flatMap(({ line }) => line.startsWith("-A ") ? [serverOf(line)] : []));
    const refused: RefusedLine[] = [];
    for (const { line, index, words: [problem = ""] } of said) {
      if (!NO_VIRTUAL_SERVER_REGEXP.test(problem)) refused.push({ index, problem });
      else if (!missing.has(serverOf(line))) return null;
    }
    return { refused, end };
  }
}

/** Errors of the program before each mark, and after the last one. */
function saidBetweenMarks(stderr: string): readonly string[][] {
  const groups: string[][] = [[]];
  for (const line of linesOf(stderr)) {
    if (line === MARK) groups.push([]);
    else groups.at(-1)?.push(line);
  }
  return groups;
}

function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** Protocol and address of a line's virtual server. */
function serverOf(line: string): string {
  return line.split(" ", 3).slice(1).join(" ");
}
