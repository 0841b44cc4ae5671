/**
 * {@linkcode BareJob}s run in a network namespace.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import type { BareJob, BareRun } from "./bare_tool.ts";

/** A process in the namespace that runs bare programs and times them. */
export class BareProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<string>;
  #rest = "";

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
    this.#reader = this.#child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  }

  /**
   * Runs one program to its end.
   *
   * @throws {Error} if its status is not 0
   */
  async run(job: BareJob): Promise<BareRun> {
    await this.#writer.write(new TextEncoder().encode(JSON.stringify(job) + "\n"));
    const run: BareRun = JSON.parse(await this.#line());
    if (run.code !== 0) throw new Error(`${job.argv.join(" ")} ended with ${run.code}: ${run.stderr}`);
    return run;
  }

  async #line(): Promise<string> {
    while (!this.#rest.includes("\n")) {
      const { value } = await this.#reader.read();
      if (value === undefined) throw new Error("The bare programs' process ended");
      this.#rest += value;
    }
    const end = this.#rest.indexOf("\n");
    const line = this.#rest.slice(0, end);
    this.#rest = this.#rest.slice(end + 1);
    return line;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writer.close();
    await this.#reader.cancel();
    await this.#child.status;
  }
}
