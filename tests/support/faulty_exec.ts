/**
 * Programs that fail now and then, whatever they are.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";

/** Faults of one run of a program. */
export const EXEC_FAULTS = [
  /** Does nothing, and exits with status 1. */
  "refuses",
  /** Is killed before it does anything. */
  "dies",
  /** Is killed after the first half of its input's lines. */
  "dies half-way",
  /** Does everything, and reports a failure. */
  "reports failure",
  /** Does nothing, and reports success. */
  "lies",
  /** Does nothing, and prints garbage. */
  "garbage",
  /** Cannot be started. */
  "does not start",
] as const;
export type ExecFault = typeof EXEC_FAULTS[number];

/** An {@linkcode Exec} with faults in front of another one. */
export class FaultyExec implements Exec {
  readonly #real: Exec;
  #fault: ExecFault | undefined;
  #after = 0;
  /** Exempts runs from a fault. */
  readonly #isSpared: (fault: ExecFault, argv: readonly string[]) => boolean;

  constructor(real: Exec, isSpared: (fault: ExecFault, argv: readonly string[]) => boolean = () => false) {
    this.#real = real;
    this.#isSpared = isSpared;
  }

  /** Plants a fault for the run after so many more, once. */
  plan(fault: ExecFault, after: number): void {
    this.#fault = fault;
    this.#after = after;
  }

  /** Cancels the planned fault. */
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
        // nft runs one transaction, which begins once all input is read.
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
