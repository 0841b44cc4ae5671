/**
 * How long nobody is served while kproxy in mode userspace is away: it is ended and started again at once, in namespaces of the tool's
 * own, while a client connects every few milliseconds. Needs root.
 *
 *     deno run -A tests/bench/userspace_restart.ts [RESTARTS]
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { USERSPACE } from "../support/lab_mode.ts";
import { WEB_CLUSTER_IP, WEB_PORT, WebLab } from "../support/lab_web.ts";

const RESTARTS = Number(Deno.args[0] ?? 12);
const PAUSE_MS = 3;
/** Nothing is measured before it is served so often again. */
const SETTLED = 30;

/** A client that connects without end, and when it was answered last. */
class Client {
  #isOver = false;
  #answers = 0;
  #lastMs = 0;
  /** Between two answers, in milliseconds, since it was last asked. */
  #longestMs = 0;
  #failed = 0;
  readonly #connecting: Promise<void>;

  constructor(web: WebLab) {
    this.#connecting = this.#connect(web);
  }

  async #connect({ pod }: WebLab): Promise<void> {
    const to = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
    while (!this.#isOver) {
      const [result] = await pod.probe({ protocol: "tcp", to, timeoutMs: 1_000 });
      if (result?.kind === "answer") {
        const nowMs = performance.now();
        if (this.#lastMs > 0) this.#longestMs = Math.max(this.#longestMs, nowMs - this.#lastMs);
        this.#lastMs = nowMs;
        this.#answers++;
      } else this.#failed++;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  async served(): Promise<void> {
    const goal = this.#answers + SETTLED;
    while (this.#answers < goal) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  take(): { readonly longestMs: number; readonly failed: number } {
    const taken = { longestMs: this.#longestMs, failed: this.#failed };
    [this.#longestMs, this.#failed] = [0, 0];
    return taken;
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#connecting;
  }
}

function told(name: string, gaps: readonly number[], failed: number): string {
  const sorted = gaps.toSorted((a, b) => a - b);
  const p50 = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return `${name}: p50 ${p50.toFixed(0)} ms, max ${
    (sorted.at(-1) ?? 0).toFixed(0)
  } ms of ${gaps.length} restarts, ${failed} connections failed`;
}

await using web = await WebLab.create(USERSPACE);
let kproxy = await web.start();
const client = new Client(web);
try {
  await client.served();
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    const gaps: number[] = [];
    let failed = 0;
    for (let restart = 0; restart < RESTARTS; restart++) {
      client.take();
      await kproxy.stop(signal);
      kproxy = KproxyProcess.spawn(web.options());
      await client.served();
      const taken = client.take();
      gaps.push(taken.longestMs);
      failed += taken.failed;
    }
    writeLine(told(`${signal}, then a start`, gaps, failed));
  }
} finally {
  await client.stop();
  await kproxy[Symbol.asyncDispose]();
}
