/**
 * A TCP connection that is held open, from a process in a namespace.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import type { Netns } from "./netns.ts";
import { until } from "./until.ts";

const LIMIT_MS = 300_000;
/** As `/proc/net/tcp` writes it. */
const ESTABLISHED = "01";

function start(netns: Netns, role: string, { ip, port }: SocketAddress): Deno.ChildProcess {
  const deno = [Deno.execPath(), "run", "-q", "--no-check", "--allow-net", `${ROOT}/tests/lab/echo.ts`];
  return new Deno.Command("ip", {
    args: ["netns", "exec", netns.name, ...deno, role, ip, String(port)],
    stdin: role === "serve" ? "null" : "piped",
    stdout: role === "serve" ? "null" : "piped",
    stderr: "null",
  }).spawn();
}

/** Serves such connections until disposed of. */
export class EchoServer implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #port: number;
  #isEnded = false;

  constructor(netns: Netns, at: SocketAddress) {
    this.#port = at.port;
    this.#child = start(netns, "serve", at);
  }

  /** Ends such that its connections are reset: a socket that is closed before it was read to its end says so. */
  async reset(): Promise<void> {
    this.#child.kill("SIGSTOP");
    await until(() => this.#holdsUnread(), "a line of the client that nobody reads");
    await this[Symbol.asyncDispose]();
  }

  /** True if the kernel has something for one of its connections that it has not read. */
  async #holdsUnread(): Promise<boolean> {
    const table = await Deno.readTextFile(`/proc/${this.#child.pid}/net/tcp`);
    const port = `:${this.#port.toString(16).toUpperCase().padStart(4, "0")}`;
    return table.split("\n").slice(1).some((line) => {
      const [, local = "", , state, queues = ""] = line.trim().split(/\s+/);
      return local.endsWith(port) && state === ESTABLISHED && !queues.endsWith(":00000000");
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isEnded) return;
    this.#isEnded = true;
    signalChild(this.#child);
    await this.#child.status;
  }
}

/** One connection; each answered line counts. */
export class HeldConnection implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #reading: Promise<void>;
  #answers = 0;
  #isLost = false;
  #hasEnded = false;
  #isClosed = false;

  constructor(netns: Netns, to: SocketAddress) {
    this.#child = start(netns, "connect", to);
    this.#reading = this.#read();
  }

  /** True if the connection ended without being told to. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /**
   * Waits for more answers.
   *
   * @throws {Error} if they do not come
   */
  async answered(count: number): Promise<void> {
    const wanted = this.#answers + count;
    const deadline = performance.now() + LIMIT_MS;
    while (this.#answers < wanted) {
      if (this.#hasEnded || performance.now() > deadline) {
        throw new Error("The held connection is not answered");
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Waits until it is lost. */
  async lost(): Promise<void> {
    await this.#reading;
    if (!this.#isLost) throw new Error("The held connection was closed, not lost");
  }

  /** Closes it properly. */
  async close(): Promise<void> {
    if (!this.#hasEnded) await this.#child.stdin.close();
    this.#isClosed = true;
    await this.#reading;
    await this.#child.status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#hasEnded) signalChild(this.#child);
    await this.#reading;
    await this.#child.status;
    if (!this.#isClosed) await this.#child.stdin.abort();
    this.#isClosed = true;
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of this.#child.stdout) {
      const lines = decoder.decode(chunk, { stream: true }).split("\n").filter((line) => line !== "");
      if (lines.includes("lost")) this.#isLost = true;
      this.#answers += lines.length;
    }
    this.#hasEnded = true;
  }
}
