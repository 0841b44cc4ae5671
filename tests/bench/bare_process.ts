/**
 * {@linkcode BareJob}s run in a network namespace.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import type { BareJob, BareRun } from "./bare_tool.ts";
import { LineReader } from "./line_reader.ts";

/** A process in the namespace that runs bare programs and times them. */
export class BareProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #lines: LineReader;

  constructor(netns: Netns) {
    const script = new URL("./bare_tool.ts", import.meta.url).pathname;
    this.#child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt"],
        ...["--allow-run", "--allow-read", script],
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    this.#lines = new LineReader(this.#child.stdout);
  }

  /**
   * Runs one program to its end.
   *
   * @throws {Error} if its status is not 0
   */
  async run(job: BareJob): Promise<BareRun> {
    await this.#writer.write(new TextEncoder().encode(JSON.stringify(job) + "\n"));
    const line = await this.#lines.next();
    if (line === null) throw new Error("The bare programs' process ended");
    const run: BareRun = JSON.parse(line);
    if (run.code !== 0) throw new Error(`${job.argv.join(" ")} ended with ${run.code}: ${run.stderr}`);
    return run;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writer.close();
    await this.#lines.cancel();
    await this.#child.status;
  }
}
