/**
 * The programs that the doctor starts: so many at a time, and none that misbehaves without being named.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec, ExecOptions, ExecResult } from "../../kernel/exec.ts";
import { OWN_PROGRAMS } from "../../kernel/own_programs.ts";
import { garbageIn } from "./program_output.ts";

/** A program that did not do what it should. */
export interface ProgramTrouble {
  readonly program: string;
  /** `hangs`: it was still running at the end; `killed`: somebody else ended it, or it printed without an end. */
  readonly kind: "hangs" | "killed" | "garbage";
  /** One sentence, without the program's name in front. */
  readonly words: string;
}

/** As many run side by side: a node that is looked at has other work, too. */
const MOST_AT_ONCE = 6;
/** One that takes longer waits rather than computes. */
const SLOW_MS = 250;

/** The status of a program that a signal ended is above this one, also where a script says so of its own. */
const FIRST_SIGNAL_CODE = 128;
const LAST_SIGNAL_CODE = 128 + 31;

/** Starts programs, and remembers those that hang, are killed, or print what is none of their outputs. */
export class ProgramRuns implements Exec {
  readonly #exec: Exec;
  readonly #running = new Map<Promise<unknown>, readonly string[]>();
  readonly #troubles = new Map<string, ProgramTrouble>();
  /** Those that wait for their turn. */
  readonly #waiting: (() => void)[] = [];
  readonly #slowMs: number;
  #busy = 0;

  /** @param slowMs a program that takes longer does not keep others from being started */
  constructor(exec: Exec, slowMs = SLOW_MS) {
    this.#exec = exec;
    this.#slowMs = slowMs;
  }

  /** In the order in which they showed; of each program and kind the first. */
  get troubles(): readonly ProgramTrouble[] {
    return [...this.#troubles.values()];
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const giveBack = await this.#turn(options.signal);
    const run = this.#exec.run(argv, options);
    this.#running.set(run, argv);
    try {
      const result = await run;
      this.#judge(argv, result);
      return result;
    } catch (error) {
      if (error instanceof ExecError) this.#judge(argv, { ...error, stdout: "" });
      throw error;
    } finally {
      this.#running.delete(run);
      giveBack();
    }
  }

  /** Whatever runs now hangs. */
  noteHanging(afterMs: number): void {
    for (const argv of this.#running.values()) {
      this.#note(argv, "hangs", `${shown(argv)} was still running after ${afterMs / 1000} s`);
    }
  }

  /** Resolves when all have ended, or after so long. */
  async ended(limitMs: number): Promise<void> {
    if (this.#running.size === 0) return;
    const over = Promise.withResolvers<void>();
    const timer = setTimeout(over.resolve, limitMs);
    await Promise.race([Promise.allSettled(this.#running.keys()), over.promise]);
    clearTimeout(timer);
  }

  #judge(argv: readonly string[], { code, stdout, stderr }: ExecResult): void {
    const garbage = code === 0 ? garbageIn(argv, stdout) : null;
    if (garbage !== null) this.#note(argv, "garbage", `${shown(argv)} prints ${garbage}`);
    if (code <= FIRST_SIGNAL_CODE || code > LAST_SIGNAL_CODE) return;
    const { ending } = new ExecError(argv, code, stderr);
    const [first = ""] = stderr.trim().split("\n");
    this.#note(argv, "killed", `${shown(argv)} ${ending}${first === "" ? "" : `: ${first}`}`);
  }

  #note(argv: readonly string[], kind: ProgramTrouble["kind"], words: string): void {
    const program = argv[0] ?? "";
    const key = `${kind} ${program}`;
    if (!this.#troubles.has(key)) this.#troubles.set(key, { program, kind, words });
  }

  /** Waits for a turn; what is returned gives it back. */
  async #turn(signal: AbortSignal | undefined): Promise<() => void> {
    if (this.#busy >= MOST_AT_ONCE) await this.#wait(signal);
    else this.#busy++;
    let isGiven = false;
    const give = (): void => {
      clearTimeout(timer);
      if (isGiven) return;
      isGiven = true;
      // Whoever asks last is in the middle of a row of questions, each of which needs the answer before; the first ask single ones.
      const next = this.#waiting.pop();
      if (next === undefined) this.#busy--;
      else next();
    };
    const timer = setTimeout(give, this.#slowMs);
    return give;
  }

  async #wait(signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => {
      const at = this.#waiting.indexOf(resolve);
      if (at >= 0) this.#waiting.splice(at, 1);
      reject(signal?.reason);
    };
    this.#waiting.push(resolve);
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }
}

/** A command line; of programs that a kubeconfig names the name alone, because their arguments may be secrets. */
function shown(argv: readonly string[]): string {
  const [program = ""] = argv;
  return OWN_PROGRAMS.includes(program) ? argv.join(" ") : program;
}
