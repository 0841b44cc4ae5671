/**
 * A node's kproxy as the API server sees it: its own reflectors, connection state, credentials and pace, with objects that nobody reads.
 *
 * @module
 */
import { systemClock } from "../../lib/kernel/clock.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import type { HttpAnswer } from "../../lib/source/kube/kube_answer.ts";
import { KubeConnection } from "../../lib/source/kube/kube_connection.ts";
import { acceptHeader, PROTOBUF } from "../../lib/source/kube/kube_formats.ts";
import { KubeClient } from "../../lib/source/kube/kube_http.ts";
import { Reflector, REFLECTOR_TIMES } from "../../lib/source/kube/kube_reflector.ts";
import {
  ENDPOINT_SLICES,
  nodeResource,
  SERVICES,
  type WatchedResource,
} from "../../lib/source/kube/kube_resources.ts";
import type { ClusterAccess } from "../../lib/source/kube/kubeconfig.ts";
import type { HerdCounts } from "./herd_counts.ts";
import { withoutObjects } from "./herd_frames.ts";

/** What every client of a herd is. */
export interface HerdClientOptions {
  /** Its number. */
  readonly client: number;
  readonly access: ClusterAccess;
  readonly counts: HerdCounts;
  /** A number from 0 (inclusive) to 1 (exclusive); always 0: without jitter. */
  readonly random: () => number;
}

/** kproxy's own defaults. */
const QPS = 5, BURST = 10;

/** Kinds that a client follows. */
export function kindsOf(client: number): readonly WatchedResource[] {
  return [SERVICES, ENDPOINT_SLICES, nodeResource(`node-${client}`)].map((resource) => ({
    ...resource,
    decode: () => [],
  }));
}

/** Runs until `signal` aborts. */
export async function runKproxyClient(
  { client, access, counts, random }: HerdClientOptions,
  signal: AbortSignal,
): Promise<void> {
  const kube = new KubeClient({
    access,
    qps: QPS,
    burst: BURST,
    userAgent: "kproxy",
    accept: acceptHeader(PROTOBUF),
    clock: systemClock,
    onRequest: ({ code }) => counts.answered(code),
  });
  const connection = new KubeConnection({
    server: access.server,
    log: silentLogger,
    clock: systemClock,
    haveCredentialsChanged: (ending) => kube.haveCredentialsChanged(ending),
  });
  try {
    await Promise.all(
      kindsOf(client).map((resource) =>
        new Reflector({
          resource,
          client: new FollowedClient(kube, client, counts),
          connection,
          sink: { events: () => {}, rejected: () => {} },
          log: silentLogger,
          times: REFLECTOR_TIMES,
          clock: systemClock,
          random,
          ifRefused: "retry",
        }).run(signal)
      ),
    );
  } finally {
    kube.close();
  }
}

/** Tells whether one kind is in step: its list is whole and its watch open. */
class FollowedClient {
  readonly #kube: KubeClient;
  readonly #client: number;
  readonly #counts: HerdCounts;
  /** Watches that are whole; two for a moment when one takes over from the other. */
  #open = 0;

  constructor(kube: KubeClient, client: number, counts: HerdCounts) {
    this.#kube = kube;
    this.#client = client;
    this.#counts = counts;
  }

  get server(): string {
    return this.#kube.server;
  }

  async get(...request: Parameters<KubeClient["get"]>): Promise<HttpAnswer> {
    const [path, signal] = request;
    const answer = await this.#kube.get(...request);
    if (answer.status !== 200 || !path.includes("watch=1")) return answer;
    let isWhole = false;
    const whole = (): void => {
      if (isWhole) return;
      isWhole = true;
      if (this.#open++ === 0) this.#counts.follows(this.#client, true);
    };
    const over = (): void => {
      if (isWhole && --this.#open === 0) this.#counts.follows(this.#client, false);
      isWhole = false;
    };
    if (!path.includes("sendInitialEvents")) whole();
    const filter = withoutObjects({ onBytes: (bytes) => this.#counts.received(bytes), onListEnd: whole });
    void answer.body.pipeTo(filter.writable).then(over, over);
    signal.addEventListener("abort", over, { once: true });
    return { ...answer, body: filter.readable };
  }
}
