/**
 * Measures what forwards connections in turns: the same client and the same backend, directly, through kproxy in mode userspace, through
 * socat and through HAProxy, in one network namespace.
 *
 * @module
 */
import { createNetns, type Netns, removeNetns } from "../support/netns.ts";
import { quantile } from "./figures.ts";
import { connectionsWithin, descriptorLimit } from "./descriptor_limit.ts";
import {
  BACKEND,
  type Forwarder,
  type ForwarderKind,
  type ForwarderPlace,
  prepareNetns,
} from "./forwarders.ts";
import { LoadClient, LoadServer } from "./load_process.ts";
import type { LoadResult } from "./load_jobs.ts";
import { cpuMsWithChildren, type ResidentMemory, residentMemory } from "./process_costs.ts";

/** How much is measured. */
export interface ForwardingOptions {
  readonly kinds: readonly ForwarderKind[];
  /** `kproxy.js` of a bundle in the place of the source; null: the source. */
  readonly program: string | null;
  /** How often all are measured, one after the other. */
  readonly rounds: number;
  /** How long streams send each time. */
  readonly streamMs: number;
  /** Small requests each time. */
  readonly requests: number;
  /** Connections that are held; 0: none are. */
  readonly idle: number;
  readonly onProgress: (message: string) => void;
}

/** So many streams at once. */
const STREAM_COUNTS = [1, 16] as const;

/** Streams of one forwarder: medians of all rounds. */
export interface StreamFigures {
  readonly streams: number;
  /** Megabytes (10⁶ bytes) a second that arrived at the backend. */
  readonly mbPerSecond: number;
  /** Of each round. */
  readonly rounds: readonly number[];
  /** CPU seconds of the forwarder for each gigabyte (10⁹ bytes); null without one. */
  readonly cpuSecondsPerGb: number | null;
  /** How much of a processor it had; null without one. */
  readonly cores: number | null;
  /** How much of a processor client and backend had: near 1 it is they who are measured. */
  readonly clientCores: number;
  readonly backendCores: number;
}

/** Small requests of one forwarder, one after the other: of all rounds together. */
export interface RequestFigures {
  readonly p50Us: number;
  readonly p99Us: number;
  readonly count: number;
  /** CPU time of the forwarder for each, in microseconds; null without one. */
  readonly cpuUs: number | null;
}

/** Memory of a process that is started anew, and holds connections that do nothing. */
export interface IdleFigures {
  readonly connections: number;
  readonly before: ResidentMemory;
  readonly holding: ResidentMemory;
  /** After they were used once more, and closed. */
  readonly after: ResidentMemory;
}

/** One forwarder. */
export interface ForwarderFigures {
  readonly name: ForwarderKind["name"];
  readonly how: string;
  readonly streams: readonly StreamFigures[];
  readonly newConnection: RequestFigures;
  readonly keptConnection: RequestFigures;
  readonly idle: IdleFigures | null;
}

/** The result of a run. */
export interface ForwardingResult {
  readonly mode: "userspace";
  readonly rounds: number;
  readonly streamMs: number;
  /** One, five and fifteen minutes, at the end. */
  readonly load: readonly number[];
  /** Forwarders that could not be measured: their program is not installed. */
  readonly missing: readonly string[];
  readonly forwarders: readonly ForwarderFigures[];
}

/** A load, and what it took of everybody. */
interface Cost {
  readonly result: LoadResult;
  /** Of the forwarder; null without one. */
  readonly cpuMs: number | null;
  readonly backendMs: number;
}

/** What was measured of one forwarder, round by round. */
interface Samples {
  readonly streams: Map<number, Cost[]>;
  readonly fresh: Cost[];
  readonly kept: Cost[];
}

/** Requests before those that count: code is compiled, buffers grow. */
const WARM_UP_REQUESTS = 300;
const WARM_UP_STREAM_MS = 300;
const REACH_LIMIT_MS = 60_000;
/** How long after a start, or after the last connection, memory is looked at: what is to be given back by then is. */
const SETTLE_MS = 5_000;

/** Runs everything. The namespace is gone afterwards. */
export async function measureForwarding(
  options: ForwardingOptions,
  folder: string,
  opened: (netns: Netns) => void = () => {},
): Promise<Omit<ForwardingResult, "missing">> {
  const { kinds, rounds, streamMs, idle, onProgress } = options;
  const netns = await createNetns();
  opened(netns);
  try {
    await prepareNetns(netns);
    const descriptors = await descriptorLimit();
    await using bench = await Bench.start({ netns, folder, descriptors, program: options.program });
    const samples = new Map(
      kinds.map((kind): [ForwarderKind, Samples] => [kind, { streams: new Map(), fresh: [], kept: [] }]),
    );
    for (let round = 1; round <= rounds; round++) {
      for (const [kind, ofKind] of samples) {
        onProgress(`${kind.name}, round ${round} of ${rounds}`);
        await bench.measure(kind, options, ofKind);
      }
    }
    const held = new Map<ForwarderKind, IdleFigures>();
    const connections = connectionsWithin(idle, descriptors);
    if (connections < idle) onProgress(`Descriptors allow ${connections} idle connections, not ${idle}`);
    for (const kind of idle > 0 ? kinds.filter(({ holdsMany }) => holdsMany) : []) {
      onProgress(`${kind.name}, ${connections} idle connections`);
      held.set(kind, await bench.hold(kind, connections));
    }
    const forwarders = kinds.map((kind) => figuresOf(kind, samples.get(kind)!, held.get(kind) ?? null));
    return { mode: "userspace", rounds, streamMs, load: Deno.loadavg(), forwarders };
  } finally {
    await removeNetns(netns);
  }
}

/** Client and backend, and where they are. */
class Bench implements AsyncDisposable {
  private constructor(
    readonly place: ForwarderPlace,
    readonly client: LoadClient,
    readonly server: LoadServer,
  ) {}

  static async start(place: ForwarderPlace): Promise<Bench> {
    const server = await LoadServer.start(place, BACKEND);
    return new Bench(place, new LoadClient(place), server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }

  async measure(
    kind: ForwarderKind,
    { streamMs, requests }: ForwardingOptions,
    samples: Samples,
  ): Promise<void> {
    await using forwarder = await this.#started(kind);
    const to = forwarder.at;
    for (const kept of [false, true]) {
      await this.client.run({ kind: "requests", to, count: WARM_UP_REQUESTS, kept });
      const cost = await this.#cost(forwarder, { kind: "requests", to, count: requests, kept });
      (kept ? samples.kept : samples.fresh).push(cost);
    }
    await this.client.run({ kind: "streams", to, count: 1, ms: WARM_UP_STREAM_MS });
    for (const count of STREAM_COUNTS) {
      const cost = await this.#cost(forwarder, { kind: "streams", to, count, ms: streamMs });
      samples.streams.set(count, [...samples.streams.get(count) ?? [], cost]);
    }
  }

  async hold(kind: ForwarderKind, connections: number): Promise<IdleFigures> {
    await using forwarder = await this.#started(kind);
    const { at: to, pid } = forwarder;
    if (pid === null) throw new TypeError(`${kind.name} has no process`);
    await settle();
    const before = await residentMemory(pid);
    this.#answered(await this.client.run({ kind: "hold", to, count: connections }), connections);
    await settle();
    const holding = await residentMemory(pid);
    this.#answered(await this.client.run({ kind: "release" }), connections);
    await settle();
    return { connections, before, holding, after: await residentMemory(pid) };
  }

  #answered({ answered }: LoadResult, wanted: number): void {
    if (answered !== wanted) throw new Error(`${answered} of ${wanted} connections were answered`);
  }

  async #started(kind: ForwarderKind): Promise<Forwarder> {
    await using parts = new AsyncDisposableStack();
    const forwarder = parts.use(await kind.start(this.place));
    await this.client.run({ kind: "reach", to: forwarder.at, limitMs: REACH_LIMIT_MS });
    parts.move();
    return forwarder;
  }

  async #cost({ pid }: Forwarder, job: Parameters<LoadClient["run"]>[0]): Promise<Cost> {
    const forwarderMs = async (): Promise<number | null> =>
      pid === null ? null : await cpuMsWithChildren(pid);
    const [before, backendBefore] = [await forwarderMs(), await cpuMsWithChildren(this.server.pid)];
    const result = await this.client.run(job);
    // Children that have ended count once their parent knows.
    await new Promise((resolve) => setTimeout(resolve, 100));
    const [after, backendAfter] = [await forwarderMs(), await cpuMsWithChildren(this.server.pid)];
    return {
      result,
      cpuMs: before === null || after === null ? null : after - before,
      backendMs: backendAfter - backendBefore,
    };
  }
}

async function settle(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
}

function figuresOf(
  { name, how }: ForwarderKind,
  { streams, fresh, kept }: Samples,
  idle: IdleFigures | null,
): ForwarderFigures {
  return {
    name,
    how,
    streams: [...streams].map(([count, costs]) => streamFigures(count, costs)),
    newConnection: requestFigures(fresh),
    keptConnection: requestFigures(kept),
    idle,
  };
}

function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

/** Medians; null where there was no forwarder. */
function medianOrNull(samples: readonly (number | null)[]): number | null {
  const numbers = samples.filter((sample) => sample !== null);
  return numbers.length === 0 ? null : median(numbers);
}

/** Of the same number of streams in each round. */
export function streamFigures(streams: number, costs: readonly Cost[]): StreamFigures {
  const rounds = costs.map(({ result: { bytes, ms } }) => bytes / 1e6 / (ms / 1000));
  return {
    streams,
    mbPerSecond: median(rounds),
    rounds,
    cpuSecondsPerGb: medianOrNull(
      costs.map(({ cpuMs, result }) => cpuMs === null ? null : cpuMs / 1000 / (result.bytes / 1e9)),
    ),
    cores: medianOrNull(costs.map(({ cpuMs, result }) => cpuMs === null ? null : cpuMs / result.ms)),
    clientCores: median(costs.map(({ result: { cpuMs, ms } }) => cpuMs / ms)),
    backendCores: median(costs.map(({ backendMs, result: { ms } }) => backendMs / ms)),
  };
}

/** Of the requests of all rounds. */
export function requestFigures(costs: readonly Cost[]): RequestFigures {
  const timesMs = costs.flatMap(({ result }) => result.timesMs);
  const cpuMs = costs.map((cost) => cost.cpuMs).filter((ms) => ms !== null);
  return {
    p50Us: 1000 * quantile(timesMs, 0.5),
    p99Us: 1000 * quantile(timesMs, 0.99),
    count: timesMs.length,
    cpuUs: cpuMs.length === 0 ? null : 1000 * cpuMs.reduce((sum, ms) => sum + ms, 0) / timesMs.length,
  };
}
