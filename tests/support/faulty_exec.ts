/**
 * Programs that now and then do not do what they are asked, whatever they are.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";

/** What becomes of one start of a program. */
export const EXEC_FAULTS = [
  /** Nothing is done, with status 1. */
  "refuses",
  /** Killed before it has done anything. */
  "dies",
  /** It does the first half of its input's lines, and is killed. */
  "dies half-way",
  /** It does everything, and says that it failed. */
  "reports failure",
  /** Nothing is done, and it says that all is well. */
  "lies",
  /** Nothing is done, and it prints garbage. */
  "garbage",
  /** It is not even started. */
  "does not start",
] as const;
export type ExecFault = typeof EXEC_FAULTS[number];

/** An {@linkcode Exec} in front of another one. */
export class FaultyExec implements Exec {
  readonly #real: Exec;
  #fault: ExecFault | undefined;
  #after = 0;
  /** Starts that are spared this. */
  readonly #isSpared: (fault: ExecFault, argv: readonly string[]) => boolean;

  constructor(real: Exec, isSpared: (fault: ExecFault, argv: readonly string[]) => boolean = () => false) {
    this.#real = real;
    this.#isSpared = isSpared;
  }

  /** The start after so many more suffers this, once. */
  plan(fault: ExecFault, after: number): void {
    this.#fault = fault;
    this.#after = after;
  }

  /** Forgets what was planned. */
  heal(): void {
    this.#fault = undefined;
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const fault = this.#fault;
    if (fault === undefined || this.#after-- > 0 || this.#isSpared(fault, argv)) {
      return await this.#real.run(argv, options);
    }
    this.#fault = undefined;
    switch (fault) {
      case "refuses":
        return { code: 1, stdout: "", stderr: `${argv[0]}: not today\n` };
      case "dies":
        return { code: 137, stdout: "", stderr: "" };
      case "dies half-way": {
        // nft is one transaction, which it begins when it has read all.
        if (argv[0] === "nft") return { code: 137, stdout: "", stderr: "" };
        const lines = wholeText(options.stdin ?? "").split("\n");
        const half = lines.slice(0, lines.length >> 1).map((line) => `${line}\n`).join("");
        await this.#real.run(argv, options.stdin === undefined ? options : { ...options, stdin: half });
        return { code: 137, stdout: "", stderr: "" };
      }
      case "reports failure": {
        const { stdout } = await this.#real.run(argv, options);
        return { code: 1, stdout, stderr: `${argv[0]}: it went wrong\n` };
      }
      case "lies":
        return { code: 0, stdout: "", stderr: "" };
      case "garbage":
        return { code: 0, stdout: "\u0001]} *nat\ntable garbage {\n", stderr: "" };
      case "does not start":
        throw new ExecError(argv, -1, "Too many open files (os error 24)");
    }
  }
}
