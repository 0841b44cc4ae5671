/**
 * Programs that misbehave for some arguments.
 *
 * @module
 */
import { findProgram } from "../../tools/setup.ts";

/** Limit for the program to be started. */
const WAIT_LIMIT_MS = 300_000;

/** A folder for the PATH, with a program that is the real one except for some arguments. */
export class StubProgram implements AsyncDisposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /**
   * @param args pattern of arguments, joined by blanks, for which it misbehaves; `*` matches anything
   * @param script shell commands to run instead
   * @param times number of misbehaviours, after which it is always the real one; absent: unlimited
   */
  static async create(name: string, args: string, script: string, times?: number): Promise<StubProgram> {
    const folder = await Deno.makeTempDir({ prefix: "kproxy-stub-" });
    const pattern = args.split("*").map((part) => part === "" ? "" : `"${part}"`).join("*");
    const real = `exec ${findProgram(name)} "$@"`;
    for (let left = 1; left <= (times ?? 0); left++) await Deno.writeTextFile(`${folder}/left-${left}`, "");
    // Each removed file permits one misbehaviour, also of two runs in parallel.
    const isSpent = times === undefined
      ? ""
      : `for file in ${folder}/left-*; do rm "$file" 2>/dev/null && break; done || ${real}`;
    const text = `#!/bin/sh
case "$*" in
  ${pattern}) ${isSpent}
    echo $$ > ${folder}/pid; ${script};;
  *) ${real};;
esac
`;
    await Deno.writeTextFile(`${folder}/${name}`, text, { mode: 0o755 });
    return new StubProgram(folder);
  }

  /** Resolves to the process id of the latest misbehaving run, once there is one. */
  async started(): Promise<number> {
    const deadlineMs = performance.now() + WAIT_LIMIT_MS;
    while (performance.now() < deadlineMs) {
      try {
        const text = await Deno.readTextFile(`${this.folder}/pid`);
        if (text.endsWith("\n")) return Number(text);
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error("the program was not started");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}
