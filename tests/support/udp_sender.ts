/**
 * A client that never stops sending from one port, as statsd clients and resolvers do: its flow never expires.
 *
 * @module
 */
import { assert } from "@std/assert";
import type { LabHost } from "./lab_host.ts";
import type { ProbeResult } from "./lab_probe.ts";
import type { SocketAddress } from "./lab_sockets.ts";

/** Source and destination of datagrams. */
export interface UdpRoute {
  readonly host: LabHost;
  readonly from: SocketAddress;
  readonly to: SocketAddress;
  /** Factor of the pauses between datagrams, and of the limit of an answer, on a slow machine. @default {1} */
  readonly slowness?: number;
}

/** Limit of an answer: a later one counts as lost, not as delayed by a busy machine. */
const LIMIT_MS = 3_000;
/** Pause between datagrams. */
const PAUSE_MS = 20;
/** Limit of any wait in a test. */
const WAIT_LIMIT_MS = 300_000;

/** Sends datagrams until disposed of. */
export class UdpSender implements AsyncDisposable {
  /** Outcome of each datagram: the `ip` that answered, `refused` or `silence`. */
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

  /** Resolves when a datagram sent from now on has this outcome. */
  async until(outcome: string): Promise<void> {
    // The datagram under way was sent before.
    const from = this.story.length + 1;
    const deadline = performance.now() + WAIT_LIMIT_MS;
    while (!this.story.slice(from).includes(outcome)) {
      const seen = [...new Set(this.story.slice(from))].join(", ");
      const { ip, port } = this.#route.to;
      assert(performance.now() < deadline, `${ip} ${port}: never "${outcome}", but ${seen}`);
      await new Promise<void>((resolve) => this.#onResult = resolve);
    }
  }

  /** Distinct outcomes of the next `count` datagrams, in order. */
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
