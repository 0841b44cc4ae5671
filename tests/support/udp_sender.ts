/**
 * A client that never stops sending from one port, as statsd clients and resolvers do: its flow is never forgotten.
 *
 * @module
 */
import { assert } from "@std/assert";
import type { LabHost } from "./lab_host.ts";
import type { ProbeResult } from "./lab_probe.ts";
import type { SocketAddress } from "./lab_sockets.ts";

/** Where and from where. */
export interface UdpRoute {
  readonly host: LabHost;
  readonly from: SocketAddress;
  readonly to: SocketAddress;
  /** How many times longer the pauses between datagrams are, and the limit of an answer, on a machine that cannot do as much. @default {1} */
  readonly slowness?: number;
}

/** How long a datagram's answer is waited for: what comes later was lost, and not kept waiting by a busy machine. */
const LIMIT_MS = 3_000;
/** From one datagram to the next. */
const PAUSE_MS = 20;
/** How long anything may take that a test waits for. */
const WAIT_LIMIT_MS = 300_000;

/** Sends until disposed of. */
export class UdpSender implements AsyncDisposable {
  /** What became of each datagram: the `ip` that answered, `refused` or `silence`. */
  readonly story: string[] = [];
  readonly #route: UdpRoute;
  readonly #slowness: number;
  readonly #ended: Promise<void>;
  #stopped = false;
  #onResult: () => void = () => {};

  constructor(route: UdpRoute) {
    this.#route = route;
    this.#slowness = route.slowness ?? 1;
    this.#ended = this.#send();
  }

  /** Resolves when one more datagram sent from now on ended so. */
  async until(outcome: string): Promise<void> {
    // The one under way was sent before.
    const from = this.story.length + 1;
    const deadline = performance.now() + WAIT_LIMIT_MS;
    while (!this.story.slice(from).includes(outcome)) {
      const seen = [...new Set(this.story.slice(from))].join(", ");
      const { ip, port } = this.#route.to;
      assert(performance.now() < deadline, `${ip} ${port}: never "${outcome}", but ${seen}`);
      await new Promise<void>((resolve) => this.#onResult = resolve);
    }
  }

  /** What became of the next `count` datagrams, each outcome once, in order. */
  async next(count: number): Promise<string[]> {
    const from = this.story.length + 1;
    while (this.story.length < from + count) await new Promise<void>((resolve) => this.#onResult = resolve);
    return [...new Set(this.story.slice(from, from + count))];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    await this.#ended;
  }

  async #send(): Promise<void> {
    const { host, from, to } = this.#route;
    while (!this.#stopped) {
      const [result] = await host.probe({
        protocol: "udp",
        source: from.ip,
        sourcePort: from.port,
        to,
        timeoutMs: LIMIT_MS * this.#slowness,
      });
      this.story.push(result === undefined ? "silence" : outcomeOf(result));
      this.#onResult();
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * this.#slowness));
    }
  }
}

function outcomeOf(result: ProbeResult): string {
  if (result.kind === "answer") return result.answer.local.ip;
  return result.kind === "error" ? result.message : result.kind;
}
