/**
 * Client and backend whose packets are measured, as processes in network namespaces.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import type { Netns } from "../support/netns.ts";
import { LineReader } from "./line_reader.ts";
import type { LoadJob, LoadResult } from "./load_jobs.ts";

function command(netns: Netns, script: string, args: readonly string[]): string[] {
  const path = new URL(script, import.meta.url).pathname;
  return [
    ...["netns", "exec", netns.name],
    ...[Deno.execPath(), "run", "-q", "--no-prompt", "--allow-ffi", path, ...args],
  ];
}

/** The backend, listening. */
export class LoadServer implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
  }

  static async start(netns: Netns, { ip, port }: SocketAddress): Promise<LoadServer> {
    const child = new Deno.Command("ip", {
      args: command(netns, "./load_server.ts", [ip, String(port)]),
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const lines = new LineReader(child.stdout);
    const isReady = await lines.next() === "ready";
    await lines.cancel();
    const server = new LoadServer(child);
    if (isReady) return server;
    await server[Symbol.asyncDispose]();
    throw new Error("The backend did not start");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#child.status;
  }
}

/** The client. */
export class LoadClient implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #lines: LineReader;

  constructor(netns: Netns) {
    this.#child = new Deno.Command("ip", {
      args: command(netns, "./load_client.ts", []),
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    this.#lines = new LineReader(this.#child.stdout);
  }

  /**
   * Does one job to its end.
   *
   * @throws {Error} if it failed; what failed is on standard error
   */
  async run(job: LoadJob): Promise<LoadResult> {
    await this.#writer.write(new TextEncoder().encode(`${JSON.stringify(job)}\n`));
    const line = await this.#lines.next();
    if (line === null) throw new Error(`The client failed: ${JSON.stringify(job)}`);
    return JSON.parse(line);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#child.status;
    await this.#lines.cancel();
    await this.#writer.abort().catch(() => "it has ended");
  }
}
