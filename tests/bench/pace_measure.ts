/**
 * kproxy while changes come all the time, in bursts, and not at all: how long each takes to the kernel, what the process holds, and whether
 * everything arrived.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { difference, wantedEndpoints } from "./endpoint_texts.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { type Distribution, distribution } from "./figures.ts";
import { isWritingSync, KproxyProcess, type LogLine } from "./kproxy_process.ts";
import { assertProgrammed, type BenchMode, type CommitWatch, periodFlag } from "./mode.ts";

/** What to measure. */
export interface PaceOptions {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  /** Endpoints replaced in a second, each of another Service than the one before. */
  readonly perSecond: number;
  readonly steadyMs: number;
  /** Figures are told for each part of the steady time. */
  readonly partMs: number;
  readonly bursts: number;
  /** Changes in a burst, and the time between them. */
  readonly burstSize: number;
  readonly burstSpacingMs: number;
  /** How long kproxy rests before it is measured at rest. */
  readonly restMs: number;
  /** 0: not measured. */
  readonly idleMs: number;
  /** kproxy's own default if undefined. */
  readonly minSyncPeriodMs: number | undefined;
  /** `kproxy.js` of a bundle; the source if undefined. */
  readonly program: string | undefined;
  readonly onProgress: (message: string) => void;
}

/** One part of the steady time: milliseconds from a change in the API to the kernel, megabytes. */
export interface PartFigures {
  readonly change: Distribution;
  readonly nowMb: number;
  readonly anonymousMb: number;
}

/** What was measured. */
export interface PaceResult {
  readonly size: ClusterSize;
  readonly mode: string;
  readonly load: readonly number[];
  /** Percent of one core, over the whole time at rest; null if that was not measured. */
  readonly idle: { readonly ownPercent: number; readonly programsPercent: number } | null;
  /** All changes of all bursts, and the first one of each; null if there were none. */
  readonly burst: { readonly all: Distribution; readonly first: Distribution } | null;
  readonly parts: readonly PartFigures[];
  readonly changes: number;
  /** Syncs that wrote something, of the steady time. */
  readonly syncs: number;
  /** CPU time in the steady time, percent of one core, programs included. */
  readonly cpuPercent: number;
  /** Endpoints that are not as the last change of their Service wants them. */
  readonly lost: { readonly missing: number; readonly extra: number };
  readonly lostEvents: boolean;
}

const START_TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 60_000;
/** After a burst nothing of it must hold up the next one. */
const BETWEEN_BURSTS_MS = 2_500;
const MEMORY_EVERY_MS = 1_000;

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}

function nowMs(): number {
  return performance.timeOrigin + performance.now();
}

/** Runs it, in a namespace of its own that is gone when it settles. */
export async function measurePace(options: PaceOptions, folder: string): Promise<PaceResult> {
  const { size, mode, minSyncPeriodMs, program, onProgress } = options;
  return await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, `${folder}/pace.sock`);
    await using watch = await mode.openWatch?.(netns);
    onProgress("first sync");
    await using kproxy = new KproxyProcess(netns, {
      master: api.url,
      mode: mode.proxyMode,
      ...program === undefined ? {} : { program },
      flags: minSyncPeriodMs === undefined ? [] : [periodFlag(mode, "min-sync-period", minSyncPeriodMs)],
    });
    await kproxy.allServed(START_TIMEOUT_MS);
    await assertProgrammed(mode, netns, size);
    await kproxy.settled(START_TIMEOUT_MS);
    return await new Pace(options, { netns, api, kproxy, watch }).run();
  });
}

interface Lab {
  readonly netns: Netns;
  readonly api: FakeApi;
  readonly kproxy: KproxyProcess;
  readonly watch: CommitWatch | undefined;
}

/** A change that is under way. */
interface Following {
  readonly atMs: number;
  /** Milliseconds until it was in the kernel. */
  readonly took: Promise<number>;
}

class Pace {
  readonly #options: PaceOptions;
  readonly #lab: Lab;
  readonly #touched = new Set<number>();
  /** Services with a change that the kernel does not have yet. */
  readonly #underWay = new Set<number>();
  #next = 0;

  constructor(options: PaceOptions, lab: Lab) {
    this.#options = options;
    this.#lab = lab;
  }

  async run(): Promise<PaceResult> {
    const { size, mode, onProgress } = this.#options;
    const { netns, watch } = this.#lab;
    const idle = await this.#idle();
    const burst = await this.#bursts();
    const load = [...Deno.loadavg()];
    const steady = await this.#steady();
    onProgress("comparing with the kernel");
    const lost = difference(wantedEndpoints(size, this.#touched), await mode.endpointIps(netns));
    const lostEvents = watch?.lostEvents ?? false;
    return { size, mode: mode.title, load, idle, burst, ...steady, lost, lostEvents };
  }

  async #idle(): Promise<PaceResult["idle"]> {
    const { idleMs, restMs, onProgress } = this.#options;
    if (idleMs === 0) return null;
    onProgress("at rest");
    await sleep(restMs);
    const from = await this.#lab.kproxy.cpuParts();
    await sleep(idleMs);
    const to = await this.#lab.kproxy.cpuParts();
    return {
      ownPercent: 100 * (to.ownMs - from.ownMs) / idleMs,
      programsPercent: 100 * (to.programsMs - from.programsMs) / idleMs,
    };
  }

  async #bursts(): Promise<PaceResult["burst"]> {
    const { bursts, burstSize, burstSpacingMs, onProgress } = this.#options;
    if (bursts === 0) return null;
    onProgress(`${bursts} bursts of ${burstSize} changes`);
    const all: number[] = [], first: number[] = [];
    for (let burst = 0; burst < bursts; burst++) {
      const changes: Following[] = [];
      const startMs = performance.now();
      for (let change = 0; change < burstSize; change++) {
        await sleep(startMs + change * burstSpacingMs - performance.now());
        changes.push(await this.#touch());
      }
      const times = await Promise.all(changes.map(({ took }) => took));
      first.push(times[0] ?? NaN);
      all.push(...times);
      await sleep(BETWEEN_BURSTS_MS);
    }
    return { all: distribution(all), first: distribution(first) };
  }

  async #steady(): Promise<Pick<PaceResult, "parts" | "changes" | "syncs" | "cpuPercent">> {
    const { perSecond, steadyMs, partMs, onProgress } = this.#options;
    const { kproxy } = this.#lab;
    onProgress(`${perSecond} changes a second`);
    const changes: Following[] = [];
    const memory: { atMs: number; nowMb: number; anonymousMb: number }[] = [];
    const [from, cpuFrom, startMs] = [kproxy.position, await kproxy.cpuMs(), nowMs()];
    const watchMemory = async (): Promise<void> => {
      while (nowMs() - startMs < steadyMs) {
        memory.push({ atMs: nowMs(), ...await kproxy.memory() });
        await sleep(MEMORY_EVERY_MS);
      }
    };
    const watching = watchMemory();
    for (let sent = 0; nowMs() - startMs < steadyMs; sent++) {
      await sleep(startMs + sent * 1000 / perSecond - nowMs());
      changes.push(await this.#touch());
    }
    await watching;
    const cpuPercent = 100 * (await kproxy.cpuMs() - cpuFrom) / (nowMs() - startMs);
    const times = await Promise.all(changes.map(async ({ atMs, took }) => ({ atMs, took: await took })));
    const count = Math.max(1, Math.round(steadyMs / partMs));
    const parts = Array.from({ length: count }, (_, part) => {
      // The last one of all may be late by a moment.
      const isOf = ({ atMs }: { atMs: number }): boolean =>
        Math.min(Math.floor((atMs - startMs) / partMs), count - 1) === part;
      const sizes = memory.filter(isOf);
      return {
        change: distribution(times.filter(isOf).map(({ took }) => took)),
        nowMb: mean(sizes.map(({ nowMb }) => nowMb)),
        anonymousMb: mean(sizes.map(({ anonymousMb }) => anonymousMb)),
      };
    });
    const syncs = kproxy.lines.slice(from).filter(isWritingSync).length;
    return { parts, changes: changes.length, syncs, cpuPercent };
  }

  /** Replaces an endpoint of the next Service; one that is replaced again before the kernel has it would never be seen there. */
  async #touch(): Promise<Following> {
    const { size } = this.#options;
    const { api, watch, kproxy } = this.#lab;
    if (this.#underWay.size === size.services) {
      throw new Error("Every Service has a change that is under way");
    }
    while (this.#underWay.has(this.#next % size.services)) this.#next++;
    const index = this.#next++ % size.services;
    this.#underWay.add(index);
    if (!this.#touched.delete(index)) this.#touched.add(index);
    const [position, linePosition] = [watch?.position ?? 0, kproxy.position];
    const { atMs, ip } = await api.change("/touch", index);
    const inKernel = watch === undefined
      ? kproxy.line((line) => isSyncFrom(line, atMs), linePosition, CHANGE_TIMEOUT_MS).then(({ ts }) => ts)
      : watch.commit({ kind: "added", ip }, position, CHANGE_TIMEOUT_MS).then((commit) => commit.atMs);
    const took = inKernel.then((endMs) => {
      this.#underWay.delete(index);
      return endMs - atMs;
    });
    // Whoever waits for it hears of a failure; until then it is nobody's.
    void Promise.allSettled([took]);
    return { atMs, took };
  }
}

/** True for the line of a sync that began after the change and wrote something: it has it, or a later one of the same endpoint. */
function isSyncFrom(line: LogLine, atMs: number): boolean {
  return isWritingSync(line) && line.ts - millisecondsOf(String(line["took"])) >= atMs;
}

/** Of `12.3ms` or `1.20s`. */
export function millisecondsOf(text: string): number {
  const value = parseFloat(text);
  return text.endsWith("ms") ? value : 1000 * value;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
