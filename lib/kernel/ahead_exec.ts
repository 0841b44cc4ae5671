/**
 * Programs that look at a node, started before anybody needs what they say.
 *
 * @module
 */
import type { Exec, ExecOptions, ExecResult } from "./exec.ts";

/** A program that only looks, and that somebody will run soon. */
export interface Look {
  readonly argv: readonly string[];
  readonly stdin?: string;
}

/** Runs programs through another `Exec`; a run of what was begun ahead takes that one's result, once. */
export class AheadExec implements Exec {
  readonly #exec: Exec;
  readonly #begun = new Map<string, Promise<ExecResult>>();

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Starts programs, side by side. How they fail is for whoever runs them. */
  begin(looks: Iterable<Look>): void {
    for (const { argv, stdin } of looks) {
      const result = this.#exec.run(argv, stdin === undefined ? {} : { stdin });
      result.catch(() => undefined);
      this.#begun.set(keyOf(argv, stdin), result);
    }
  }

  /** From now on every run is one: what nobody has taken is old. */
  rest(): void {
    this.#begun.clear();
  }

  async run(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { stdin, ...others } = options;
    const isPlain = Object.keys(others).length === 0 && typeof stdin !== "function";
    const key = isPlain && this.#begun.size > 0 ? keyOf(argv, stdin) : "";
    const begun = this.#begun.get(key);
    if (begun === undefined) return await this.#exec.run(argv, options);
    this.#begun.delete(key);
    return await begun;
  }
}

function keyOf(argv: readonly string[], stdin: string | undefined): string {
  return JSON.stringify([argv, stdin]);
}
