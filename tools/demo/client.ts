/**
 * The demo's side of its client: orders out, replies in, and what they add up to.
 *
 * @module
 */
import { ROOT } from "../project_files.ts";
import type { Child } from "./child.ts";
import { tcpCounters } from "./tcp_counters.ts";
import type { LoadProgress, Reply } from "./web_client.ts";
import { DemoError, type World } from "./world.ts";

/** The client in its namespace. */
export class Client {
  readonly #world: World;
  readonly #child: Child;
  #waiting: ((replies: Reply[]) => void)[] = [];
  #onProgress: (progress: LoadProgress) => void = () => {};

  constructor(world: World) {
    this.#world = world;
    this.#child = world.start("client", {
      name: "the client",
      argv: roleArgv("web_client.ts"),
      onLine: (line) => this.#take(JSON.parse(line)),
    });
  }

  /** Makes requests one after another. */
  spread(target: string, count: number): Promise<Reply[]> {
    return this.#order(`spread ${target} ${count}`);
  }

  /** Starts to make `rate` connections a second, to the targets in turn. */
  async startLoad(
    rate: number,
    targets: readonly string[],
    onProgress: (progress: LoadProgress) => void,
  ): Promise<void> {
    this.#onProgress = onProgress;
    await this.#order(`load ${rate} ${targets.join(" ")}`);
  }

  /** Ends that, and returns what came of it. */
  stopLoad(): Promise<Reply[]> {
    return this.#order("stop");
  }

  /** How often the client's kernel has sent the first packet of a connection again, as nobody answered it well. */
  async synsSentAgain(): Promise<number> {
    const text = await this.#world.run("client", ["cat", "/proc/net/netstat"]);
    const count = tcpCounters(text).get("TCPSynRetrans") ?? NaN;
    if (Number.isNaN(count)) {
      throw new DemoError("The client's kernel does not count the SYNs it sends again");
    }
    return count;
  }

  #take(answer: Reply[] | LoadProgress): void {
    if (Array.isArray(answer)) this.#waiting.shift()?.(answer);
    else this.#onProgress(answer);
  }

  async #order(line: string): Promise<Reply[]> {
    const replies = new Promise<Reply[]>((resolve) => this.#waiting.push(resolve));
    await this.#world.within("the client to take an order", this.#child.send(line));
    return await this.#world.within(`the client's answer to "${line}"`, replies);
  }
}

/** How a program of the demo's own is started: with the network and nothing else. */
export function roleArgv(file: string, ...args: readonly string[]): string[] {
  const flags = ["-q", "--no-config", "--no-lock", "--no-prompt", "--allow-net"];
  return [Deno.execPath(), "run", ...flags, `${ROOT}/tools/demo/${file}`, ...args];
}

/** Number of replies of each backend. */
export function countByBackend(replies: readonly Reply[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { backend, failure } of replies) {
    if (failure === "") counts.set(backend, (counts.get(backend) ?? 0) + 1);
  }
  return counts;
}
