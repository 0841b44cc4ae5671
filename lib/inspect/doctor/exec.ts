/**
 * How the doctor starts programs: a few at a time, and none that misbehaves without being named.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import { type Exec, type ExecOptions, type ExecResult, OWN_PROGRAMS } from "../../kernel/exec.ts";

export interface ProgramTrouble {
  readonly program: string;
  /** `hangs`: it was still running at the end; `killed`: by a signal; `garbage`: it printed what is none of its outputs. */
  readonly kind: "hangs" | "killed" | "garbage";
  /** One sentence, without the program's name in front. */
  readonly words: string;
}

/** As many run side by side: a node that is looked at has other work, too. */
const MOST_AT_ONCE = 6;
/** A program that takes longer waits rather than computes, so that the next may start. */
const SLOW_MS = 250;
/** Programs that were asked to end have so long; after that they are killed. */
const END_MS = 2_500;

/** The status of a program that a signal ended is above this one, also where a script says so of its own. */
const FIRST_SIGNAL_CODE = 128;
const LAST_SIGNAL_CODE = 128 + 31;

/** Starts programs until `signal` ends those under way, and remembers which misbehaved. */
export class DoctorExec implements Exec {
  readonly #exec: Exec;
  readonly #signal: AbortSignal;
  readonly #slowMs: number;
  readonly #running = new Map<Promise<ExecResult>, readonly string[]>();
  readonly #waiting: (() => void)[] = [];
  readonly #troubles = new Map<string, ProgramTrouble>();
  #busy = 0;

  constructor(exec: Exec, signal: AbortSignal, slowMs = SLOW_MS) {
    this.#exec = exec;
    this.#signal = signal;
    this.#slowMs = slowMs;
  }

  /** In the order in which they showed; of each program and kind the first. */
  get troubles(): readonly ProgramTrouble[] {
    return [...this.#troubles.values()];
  }

  /** Call when `signal` ends the rest: what runs now hangs. */
  noteHanging(afterMs: number): void {
    for (const argv of this.#running.values()) {
      this.#note(argv, "hangs", `${shown(argv)} was still running after ${afterMs / 1000} s`);
    }
  }

  /** Resolves when all have ended, or after a while. */
  async ended(): Promise<void> {
    const over = Promise.withResolvers<void>();
    const timer = setTimeout(over.resolve, END_MS);
    await Promise.race([Promise.allSettled(this.#running.keys()), over.promise]);
    clearTimeout(timer);
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const leave = await this.#turn();
    try {
      this.#signal.throwIfAborted();
      const signal = AbortSignal.any([this.#signal, ...options.signal === undefined ? [] : [options.signal]]);
      const run = this.#exec.run(argv, { ...options, signal });
      this.#running.set(run, argv);
      const result = await run.finally(() => this.#running.delete(run));
      this.#check(argv, result);
      return result;
    } catch (error) {
      if (error instanceof ExecError) this.#check(argv, { ...error, stdout: "" });
      throw error;
    } finally {
      leave();
    }
  }

  /** Waits for a turn. The last to ask is the first to start: it is in a row of questions, each of which needs the answer before. */
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
    const timer = setTimeout(leave, this.#slowMs);
    return leave;
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

/** A command line; of programs that a kubeconfig names the name alone, because their arguments may be secrets. */
function shown(argv: readonly string[]): string {
  const [program = ""] = argv;
  return OWN_PROGRAMS.includes(program) ? argv.join(" ") : program;
}

/** By the command line, the first that fits: how its output begins, blank lines and warnings left out. Other programs may print anything. */
const BEGINNINGS: readonly (readonly [commandLine: RegExp, beginning: RegExp])[] = [
  [/ (?:--version|-V)$/, /\d+(?:\.\d+)+/],
  [/^ip6?tables\S*-save/, /^\*\w/],
  [/^ip6?tables\S* .*-S /, /^-\w /],
  [/^nft .*list chains/, /^table \S+ \S+ \{/],
  [/^ip .*-json/, /^\[/],
  [/^sysctl -n /, /^[\w.:/-]+(?:\s|$)/],
  [/^sysctl /, /^[\w.:/@-]+ = ?/],
  [/^ipvsadm -Ln/, /^IP Virtual Server /],
];

const SHOWN = 40;

/** The beginning of what a program has printed that is none of its outputs; null if it is well, or there is none. */
export function garbageIn(argv: readonly string[], stdout: string): string | null {
  const line = argv.join(" ");
  const beginning = BEGINNINGS.find(([commandLine]) => commandLine.test(line))?.[1];
  // Without a line end behind it: some print a megabyte in one.
  const first = /^(?!\s*$|#).{0,200}/m.exec(stdout)?.[0];
  if (beginning === undefined || first === undefined || beginning.test(first)) return null;
  return JSON.stringify(first.slice(0, SHOWN));
}
