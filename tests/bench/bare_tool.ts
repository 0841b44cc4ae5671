/**
 * The bare program: recorded input fed to it by the same means as kproxy uses, in another network namespace and without
 * anything else. It reads one job per line of standard input and answers each with a line.
 *
 * @module
 */
import { systemExec } from "../../lib/kernel/exec.ts";
import { writeLine } from "../../tools/output.ts";

/** One program to run. */
export interface BareJob {
  readonly argv: readonly string[];
  /** File with its input. */
  readonly stdinFile: string;
}

/** How it went. Times are in milliseconds since the epoch. */
export interface BareRun {
  readonly startMs: number;
  readonly endMs: number;
  readonly code: number;
  readonly stderr: string;
}

function nowMs(): number {
  return performance.timeOrigin + performance.now();
}

async function run(job: BareJob): Promise<BareRun> {
  const stdin = await Deno.readTextFile(job.stdinFile);
  const startMs = nowMs();
  const { code, stderr } = await systemExec.run(job.argv, { stdin });
  return { startMs, endMs: nowMs(), code, stderr };
}

if (import.meta.main) {
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) writeLine(JSON.stringify(await run(JSON.parse(line))));
  }
}
