/**
 * A machine with the program `toyctl`, which keeps the toy's rules: stateful, in memory.
 *
 * @module
 */
import { ExecError } from "../../lib/errors.ts";
import { type Exec, type ExecOptions, type ExecResult, wholeText } from "../../lib/kernel/exec.ts";
import { parseToy, renderToy } from "./toy_plan.ts";

/** Runs `toyctl show` and `toyctl load`; no other program is there. */
export class ToyMachine implements Exec {
  /** What it holds, by destination. */
  readonly rules: Map<string, string> = new Map();
  /** Lines that were loaded, in order. */
  readonly loaded: string[] = [];
  /** False: the program is missing. */
  hasProgram = true;
  /** The load with this line fails in the middle: what comes before it is in force. */
  refusedLine: string | null = null;

  run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const [program, verb] = argv;
    if (program !== "toyctl" || !this.hasProgram) {
      return Promise.reject(new ExecError(argv, -1, "", { cause: new Error("not found") }));
    }
    if (verb === "show") return Promise.resolve({ code: 0, stdout: renderToy(this.rules), stderr: "" });
    const lines = wholeText(options.stdin ?? "").split("\n").filter((line) => line !== "");
    for (const line of lines) {
      if (line === this.refusedLine) {
        return Promise.resolve({ code: 1, stdout: "", stderr: `toyctl: refused: ${line}\n` });
      }
      this.#take(line);
    }
    return Promise.resolve({ code: 0, stdout: "", stderr: "" });
  }

  #take(line: string): void {
    this.loaded.push(line);
    const [verb, ...rest] = line.split(" ");
    if (verb === "delete") this.rules.delete(rest.join(" "));
    else {for (const [destination, endpoints] of parseToy(rest.join(" "))) {
        this.rules.set(destination, endpoints);
      }}
  }
}
