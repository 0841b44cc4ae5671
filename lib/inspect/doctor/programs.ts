/**
 * Checks of the programs that kproxy starts: whether they are installed and new enough, end by themselves, and print valid output.
 *
 * @module
 */
import { MIN_NFT_VERSION } from "../../backend/nftables/node/preflight.ts";
import type { ProxyMode } from "../../config/types.ts";
import { ExecError } from "../../errors.ts";
import { abortable } from "../../kernel/clock.ts";
import { type Exec, type ExecOptions, type ExecResult, OWN_PROGRAMS } from "../../kernel/exec.ts";
import { OLDEST_MAJOR } from "../../kernel/ipset.ts";
import { isAtLeast, MIN_IPTABLES_VERSION } from "../../kernel/iptables.ts";
import { failure, type Finding, ok, unknown, warning } from "./report.ts";

const CHECK = "programs";

interface Program {
  readonly name: string;
  /** Flag that prints the version. @default {"--version"} */
  readonly versionFlag?: string;
  /** Name of the Debian package; other systems have similar names. @default {name} */
  readonly packageName?: string;
  /** Modes that do not work without the program. */
  readonly modes?: readonly ProxyMode[];
  /** What else does not work without the program. */
  readonly otherwise?: string;
  /** Oldest supported version, dotted; absent: any. */
  readonly minVersion?: string;
}

const PROGRAMS: readonly Program[] = [
  { name: "iptables", modes: ["iptables", "ipvs"], minVersion: MIN_IPTABLES_VERSION },
  {
    name: "ip6tables",
    packageName: "iptables",
    otherwise: "in modes iptables and ipvs Services do not answer on IPv6",
    minVersion: MIN_IPTABLES_VERSION,
  },
  { name: "nft", packageName: "nftables", modes: ["nftables"], minVersion: MIN_NFT_VERSION },
  { name: "ipvsadm", modes: ["ipvs"] },
  { name: "ipset", modes: ["ipvs"], minVersion: `${OLDEST_MAJOR}.0` },
  { name: "ip", versionFlag: "-V", packageName: "iproute2", modes: ["ipvs"] },
  { name: "conntrack", otherwise: "UDP flows stay with endpoints that are gone" },
  { name: "sysctl", packageName: "procps", otherwise: "kernel settings are neither read nor set" },
  { name: "nfacct", otherwise: "mode iptables does not count node ports on 127.0.0.1" },
  {
    name: "choom",
    packageName: "util-linux",
    otherwise: "the kernel may end kproxy first when memory is short",
  },
];

/** Checks all programs. @param running the modes that must work here */
export async function checkPrograms(
  exec: Exec,
  running: Promise<readonly ProxyMode[]>,
): Promise<readonly Finding[]> {
  return await Promise.all(
    // A program that hangs costs only its own line.
    PROGRAMS.map((program) => checkProgram(exec, program, running).catch((error) => unknown(CHECK, error))),
  );
}

async function checkProgram(
  exec: Exec,
  { name, versionFlag = "--version", packageName = name, modes = [], otherwise = "", minVersion }: Program,
  running: Promise<readonly ProxyMode[]>,
): Promise<Finding> {
  const lacking = async (what: string, fix: string): Promise<Finding> => {
    const here = await running;
    const needing = modes.filter((mode) => here.includes(mode));
    if (needing.length > 0) {
      return failure(CHECK, `${what}: mode ${needing.join(" and ")} does not work`, fix);
    }
    if (otherwise !== "") return warning(CHECK, `${what}: ${otherwise}`, fix);
    return ok(CHECK, `${what}; only mode ${modes.join(" and ")} needs it`);
  };
  const install = `apt-get install ${packageName} (or your system's package with that program)`;
  try {
    // Some print the version with a status, or on stderr: ipvsadm where the kernel has no IPVS.
    const { code, stdout, stderr } = await exec.run([name, versionFlag]);
    const [version] = code === 0 ? /\d+(?:\.\d+)+/.exec(`${stdout}\n${stderr}`) ?? [] : [];
    if (version === undefined) return ok(CHECK, `${name} is there and tells no version`);
    return minVersion === undefined || isAtLeast(version, minVersion)
      ? ok(CHECK, `${name} ${version}`)
      : await lacking(`${name} ${version} is too old, kproxy needs ${minVersion}`, install);
  } catch (error) {
    if (!(error instanceof ExecError && error.isMissing())) throw error;
    const { NotCapable, PermissionDenied } = Deno.errors;
    // The runtime does not let kproxy start the program.
    const isForbidden = error.cause instanceof NotCapable || error.cause instanceof PermissionDenied;
    return isForbidden
      ? await lacking(`${name} may not be started`, `give kproxy --allow-run=${name}`)
      : await lacking(`${name} is not on the PATH`, install);
  }
}

export interface ProgramTrouble {
  readonly program: string;
  /** `hangs`: still running at the time limit; `killed`: by a signal; `garbage`: its output is invalid. */
  readonly kind: "hangs" | "killed" | "garbage";
  /** One sentence, without the program's name in front. */
  readonly words: string;
}

/** One finding per program and kind of trouble: a start would have the same trouble. */
export function checkTroubles(troubles: readonly ProgramTrouble[]): readonly Finding[] {
  return troubles.map(({ program, kind, words }) => {
    const [what, fix] = TROUBLES[kind];
    return failure(CHECK, `${program} ${what}: ${words}`, fix.replaceAll("PROGRAM", program));
  });
}

const TROUBLES: Readonly<Record<ProgramTrouble["kind"], readonly [what: string, fix: string]>> = {
  hangs: [
    "does not end",
    `see what it waits for: ps -C PROGRAM -o pid,stat,wchan:30,args; docs/operations.md, "Programs that hang"`,
  ],
  killed: [
    "does not come to its end",
    "see who ended it: dmesg tells of the kernel's memory killer; then try PROGRAM by hand",
  ],
  garbage: [
    "prints what is none of its outputs",
    "see which program it is: command -v PROGRAM; then install the real one",
  ],
};

/** Limit of programs in parallel: on a slow node, all at once would end too late. */
const MOST_AT_ONCE = 6;
/** A program that takes longer is waiting rather than computing, so the next may start. */
const SLOW_MS = 250;
/** Time for programs to end once they were asked to; after it they are killed. */
const END_MS = 2_500;

/** Exit statuses above this one stand for a signal, also where a script reports it. */
const FIRST_SIGNAL_CODE = 128;
const LAST_SIGNAL_CODE = 128 + 31;

/** Runs programs until `signal` ends those under way, and records which misbehaved. */
export class DoctorExec implements Exec {
  readonly #exec: Exec;
  readonly #signal: AbortSignal;
  readonly #running = new Map<Promise<ExecResult>, readonly string[]>();
  readonly #troubles = new Map<string, ProgramTrouble>();
  readonly #waiting: (() => void)[] = [];
  #busy = 0;

  constructor(exec: Exec, signal: AbortSignal) {
    this.#exec = exec;
    this.#signal = signal;
  }

  /** Troubles in the order of their detection; the first of each program and kind. */
  get troubles(): readonly ProgramTrouble[] {
    return [...this.#troubles.values()];
  }

  /** Records the programs still running as hanging; to be called before `signal` ends them. */
  noteHanging(afterMs: number): void {
    for (const argv of this.#running.values()) {
      this.#note(argv, "hangs", `${shown(argv)} was still running after ${afterMs / 1000} s`);
    }
  }

  /** Resolves when all programs have ended, or after a time limit. */
  async ended(): Promise<void> {
    const over = Promise.withResolvers<void>();
    const timer = setTimeout(over.resolve, END_MS);
    await Promise.race([Promise.allSettled(this.#running.keys()), over.promise]);
    clearTimeout(timer);
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const leave = await this.#turn();
    try {
      return await this.#run(argv, options);
    } finally {
      leave();
    }
  }

  /** Waits for a place. The latest request goes first: it is in a sequence of programs, each of which waits for the one before. */
  async #turn(): Promise<() => void> {
    if (this.#busy < MOST_AT_ONCE) this.#busy++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let hasLeft = false;
    const leave = (): void => {
      clearTimeout(timer);
      if (hasLeft) return;
      hasLeft = true;
      const next = this.#waiting.pop();
      if (next === undefined) this.#busy--;
      else next();
    };
    const timer = setTimeout(leave, SLOW_MS);
    return leave;
  }

  async #run(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
    this.#signal.throwIfAborted();
    const signal = AbortSignal.any([this.#signal, ...options.signal === undefined ? [] : [options.signal]]);
    const run = this.#exec.run(argv, { ...options, signal });
    this.#running.set(run, argv);
    try {
      // A program that does not end on request is not waited for.
      const result = await abortable(run.finally(() => this.#running.delete(run)), this.#signal);
      this.#check(argv, result);
      return result;
    } catch (error) {
      if (error instanceof ExecError) this.#check(argv, { ...error, stdout: "" });
      throw error;
    }
  }

  #check(argv: readonly string[], { code, stdout, stderr }: ExecResult): void {
    const garbage = code === 0 ? garbageIn(argv, stdout) : null;
    if (garbage !== null) this.#note(argv, "garbage", `${shown(argv)} prints ${garbage}`);
    if (code <= FIRST_SIGNAL_CODE || code > LAST_SIGNAL_CODE) return;
    const { ending } = new ExecError(argv, code, stderr);
    const [first = ""] = stderr.trim().split("\n");
    this.#note(argv, "killed", `${shown(argv)} ${ending}${first === "" ? "" : `: ${first}`}`);
  }

  #note(argv: readonly string[], kind: ProgramTrouble["kind"], words: string): void {
    const [program = ""] = argv;
    const key = `${kind} ${program}`;
    if (!this.#troubles.has(key)) this.#troubles.set(key, { program, kind, words });
  }
}

/** A command line; for programs that a kubeconfig names the name alone, because arguments may be secrets. */
function shown(argv: readonly string[]): string {
  const [program = ""] = argv;
  return OWN_PROGRAMS.includes(program) ? argv.join(" ") : program;
}

/** Valid beginnings of output by command line, the first match; without blank lines and warnings. Other programs may print anything. */
const BEGINNINGS: readonly (readonly [commandLine: RegExp, beginning: RegExp])[] = [
  [/ (?:--version|-V)$/, /\d+(?:\.\d+)+/],
  [/^ip6?tables\S*-save/, /^\*\w/],
  [/^ip6?tables\S* .*-S /, /^-\w /],
  [/^nft .*list chains/, /^table \S+ \S+ \{/],
  [/^ip .*-json/, /^\[/],
  [/^sysctl /, /^[\w.:/@-]+ = ?/],
  [/^ipvsadm -Ln/, /^IP Virtual Server /],
];

const SHOWN = 40;

/** The beginning of invalid output; null if it is valid, or there is none. */
export function garbageIn(argv: readonly string[], stdout: string): string | null {
  const line = argv.join(" ");
  const beginning = BEGINNINGS.find(([commandLine]) => commandLine.test(line))?.[1];
  // The first line, cut: some programs print a megabyte without a line end.
  const first = /^(?!\s*$|#).{0,200}/m.exec(stdout)?.[0];
  if (beginning === undefined || first === undefined || beginning.test(first)) return null;
  return JSON.stringify(first.slice(0, SHOWN));
}
