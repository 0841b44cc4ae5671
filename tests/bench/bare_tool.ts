/**
 * The bare program: recorded input fed to it in another network namespace and without anything else. It reads one job per line of
 * standard input and answers each with a line.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";

/** One program to run. */
export interface BareJob {
  readonly argv: readonly string[];
  /** File with its input. */
  readonly stdinFile: string;
  /** Whether it is started before, as kproxy starts the one for the next change, and waits for its input. */
  readonly isStartedBefore: boolean;
}

/** How it went. Times are in milliseconds since the epoch. */
export interface BareRun {
  /** When it was started or, if it was started before, given its input. */
  readonly startMs: number;
  readonly endMs: number;
  readonly code: number;
  readonly stderr: string;
}

/** Until then it has started and waits. */
const READY_MS = 200;

function nowMs(): number {
  return performance.timeOrigin + performance.now();
}

async function run({ argv, stdinFile, isStartedBefore }: BareJob): Promise<BareRun> {
  const stdin = await Deno.readFile(stdinFile);
  const [program = "", ...args] = argv;
  let startMs = nowMs();
  const child = new Deno.Command(program, { args, stdin: "piped", stdout: "null", stderr: "piped" }).spawn();
  if (isStartedBefore) {
    await new Promise((resolve) => setTimeout(resolve, READY_MS));
    startMs = nowMs();
  }
  const writer = child.stdin.getWriter();
  const fed = writer.write(stdin).then(() => writer.close());
  const { code, stderr } = await child.output();
  const endMs = nowMs();
  // One that has failed has not read all.
  await fed.catch(() => undefined);
  return { startMs, endMs, code, stderr: new TextDecoder().decode(stderr) };
}

if (import.meta.main) {
  let rest = "";
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) writeLine(JSON.stringify(await run(JSON.parse(line))));
  }
}
