/**
 * Clients that keep connections open and hardly use them, from a process in a namespace: some are silent, some stop in the middle
 * of a request, some send one and do not read. Closed connections are opened again.
 *
 * @module
 */
import { ROOT } from "../../tools/project_files.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import type { Netns } from "./netns.ts";

/** Input of the process, as JSON. */
interface Order {
  readonly targets: readonly SocketAddress[];
  /** Number of connections to all targets together. */
  readonly count: number;
}

/** Text that a client sends before it falls silent. */
const SAYS: readonly string[] = [
  "",
  "GET /metrics HTTP/1.1\r\nHo",
  "GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n".repeat(40),
  "PUT /debug/flags/v HTTP/1.1\r\nHost: node\r\nContent-Length: 9\r\n\r\n1",
];
const AGAIN_MS = 2_000;

/** Keeps one connection open for ever; `onOpen` is called for the first one. */
async function hold({ ip, port }: SocketAddress, says: string, onOpen: () => void): Promise<never> {
  const bytes = new TextEncoder().encode(says);
  for (;;) {
    try {
      using connection = await Deno.connect({ hostname: ip, port });
      onOpen();
      await connection.write(bytes);
      // Reads one byte, and then no more: further data fills the buffers of both sides.
      while (await connection.read(new Uint8Array(1)) !== null) {
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function main({ targets, count }: Order): Promise<void> {
  let open = 0;
  const all = Promise.withResolvers<void>();
  for (let i = 0; i < count; i++) {
    const target = targets[i % targets.length];
    const says = SAYS[Math.floor(i / targets.length) % SAYS.length] ?? "";
    if (target === undefined) continue;
    void hold(target, says, () => {
      open++;
      if (open === count) all.resolve();
    });
  }
  await all.promise;
  await Deno.stdout.write(new TextEncoder().encode("open\n"));
  for await (const _chunk of Deno.stdin.readable) { /* until it ends */ }
  Deno.exit();
}

/** The process of such clients; disposing of it ends them. */
export class SlowClients implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
  }

  /** Starts the clients and waits until each has connected once. */
  static async start(netns: Netns, targets: readonly SocketAddress[], count: number): Promise<SlowClients> {
    const order: Order = { targets, count };
    const deno = [Deno.execPath(), "run", "-q", "--no-check", "--allow-net"];
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, ...deno, `${ROOT}/tests/support/slow_clients.ts`],
        JSON.stringify(order),
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const timer = setTimeout(() => child.kill("SIGKILL"), 300_000);
    let said = "";
    for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
      said += chunk;
      if (said.includes("\n")) break;
    }
    clearTimeout(timer);
    if (said !== "open\n") throw new Error("the slow clients could not connect");
    return new SlowClients(child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.stdin.close();
    await this.#child.status;
  }
}

if (import.meta.main) await main(JSON.parse(Deno.args[0] ?? "{}"));
