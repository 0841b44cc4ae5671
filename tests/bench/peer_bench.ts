/**
 * The peer's part of a benchmark: measured in the same rounds and by the same changes as kproxy, in a network namespace of its own.
 *
 * @module
 */
import type { ClusterSize } from "./fake_objects.ts";
import { type Distribution, distribution } from "./figures.ts";
import type { BenchMode } from "./mode.ts";
import { type Peer, startPeer } from "./peer_process.ts";
import { CostMeter, type ProxyCosts } from "./proxy_costs.ts";
import type { ProxyProcess } from "./proxy_process.ts";
import { changesRules, type Step } from "./recording.ts";
import { type ProxySetup, type RunningProxy, signOf, withRunningProxy } from "./running_proxy.ts";

/** What a peer is measured with. */
export interface PeerBenchOptions {
  readonly peer: Peer;
  readonly mode: BenchMode;
  readonly size: ClusterSize;
  readonly spacingMs: number;
}

/** What was measured. Times in milliseconds, memory in megabytes. */
export interface PeerResult extends ProxyCosts {
  /** What it says of itself. */
  readonly version: string;
  readonly firstSync: {
    /** From the start of the process until the sample Services answered connections, each round. */
    readonly answeredMs: readonly number[];
  };
  /** From the change to the kernel. */
  readonly touch: Distribution;
  readonly serviceAdded: Distribution;
  readonly serviceDeleted: Distribution;
  readonly lostEvents: boolean;
}

const DEFAULT_MIN_SYNC_PERIOD_MS = 1000;
const FULL_SYNC_TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 120_000;

interface AtWork {
  readonly running: RunningProxy<ProxyProcess>;
  readonly meter: CostMeter;
}

/** Measures one peer. */
export class PeerBench {
  readonly #options: PeerBenchOptions;
  readonly #folder: string;
  readonly #answeredMs: number[] = [];
  readonly #changesMs = new Map<string, number[]>();
  #count = 0;
  #atWork: AtWork | undefined;

  constructor(options: PeerBenchOptions, folder: string) {
    const { mode } = options;
    if (!mode.isAnswering || mode.openWatch === null) {
      throw new RangeError(`--peer cannot be measured in mode ${mode.title}`);
    }
    this.#options = options;
    this.#folder = folder;
  }

  /** A first sync, in a fresh namespace. */
  async firstSync(): Promise<void> {
    const answeredMs = await withRunningProxy(
      this.#setup(false),
      (running) => Promise.resolve(running.answeredMs),
    );
    if (answeredMs !== null) this.#answeredMs.push(answeredMs);
  }

  /** Runs `work` beside the peer, whose rules are in force; {@linkcode change} is for then. */
  async atWork<T>(work: () => Promise<T>): Promise<T> {
    return await withRunningProxy(this.#setup(true), async (running) => {
      this.#atWork = { running, meter: await CostMeter.begin(running.process) };
      return await work();
    });
  }

  /** As {@linkcode CostMeter.rest}. */
  async rest(restMs: number, idleMs: number): Promise<void> {
    await this.#now().meter.rest(restMs, idleMs);
  }

  /** Makes one change of its cluster, and waits until the kernel has it, if it changes rules. */
  async change(step: Step): Promise<void> {
    const { running: { api, watch }, meter } = this.#now();
    if (watch === undefined) throw new TypeError("The kernel is not watched");
    await meter.change(step.path === "/touch", this.#options.spacingMs / 2, async () => {
      const commitsBefore = watch.position;
      const { atMs, ip } = await api.change(step.path, step.index);
      if (!changesRules(step)) return;
      const commit = await watch.commit(signOf(step, ip), commitsBefore, CHANGE_TIMEOUT_MS);
      this.#changesMs.set(step.path, [...this.#changesMs.get(step.path) ?? [], commit.atMs - atMs]);
    });
  }

  /** To be called after the last change. */
  async result(): Promise<PeerResult> {
    const { running, meter } = this.#now();
    const changes = (path: Step["path"]): Distribution => distribution(this.#changesMs.get(path) ?? []);
    return {
      version: this.#options.peer.version,
      firstSync: { answeredMs: this.#answeredMs },
      touch: changes("/touch"),
      serviceAdded: changes("/service/add"),
      serviceDeleted: changes("/service/delete"),
      ...await meter.end(),
      lostEvents: running.watch?.lostEvents === true,
    };
  }

  #setup(isWatched: boolean): ProxySetup<ProxyProcess> {
    const { peer, mode, size, spacingMs } = this.#options;
    return {
      mode,
      size,
      isWatched,
      timeoutMs: FULL_SYNC_TIMEOUT_MS,
      socket: `${this.#folder}/peer-api-${this.#count++}.sock`,
      start: (netns, master) =>
        startPeer(peer, netns, {
          master,
          mode: mode.proxyMode,
          // As kproxy gets it.
          minSyncPeriodMs: spacingMs > DEFAULT_MIN_SYNC_PERIOD_MS ? null : Math.floor(spacingMs / 2),
          folder: this.#folder,
        }),
    };
  }

  #now(): AtWork {
    if (this.#atWork === undefined) throw new TypeError("The peer is not at work");
    return this.#atWork;
  }
}
