/**
 * One benchmark: kproxy against a fake API server, beside the bare program fed with the very same input, in network
 * namespaces of their own.
 *
 * @module
 */
import { COUNTERS } from "../../lib/backend/iptables/plan/ruleset.ts";
import { NfacctCounters } from "../../lib/kernel/nfacct.ts";
import type { Netns } from "../support/netns.ts";
import { inAnsweringNetns } from "./bench_netns.ts";
import { BareProcess } from "./bare_process.ts";
import type { BareRun } from "./bare_tool.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { type Distribution, distribution, quantile } from "./figures.ts";
import { isFirstSync, isWritingSync, KproxyProcess, type LogLine } from "./kproxy_process.ts";
import { assertProgrammed, assertSameRules, type BenchMode, type CommitWatch, periodFlag } from "./mode.ts";
import { PeerBench, type PeerResult } from "./peer_bench.ts";
import type { Peer } from "./peer_process.ts";
import { CostMeter, type ProxyCosts } from "./proxy_costs.ts";
import type { RecordedRun } from "./recorded_programs.ts";
import {
  aftermathMs,
  changesRules,
  plannedSteps,
  record,
  type RecordedChange,
  type Recording,
  type Step,
} from "./recording.ts";
import { type RunningProxy, signOf, withRunningProxy } from "./running_proxy.ts";

/** What to measure. */
export interface BenchOptions {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  /** `kproxy.js` of a bundle instead of the source. */
  readonly program?: string;
  /** Measured beside kproxy, in turns; null: nobody. */
  readonly peer: Peer | null;
  readonly touches: number;
  /** Services that are added and deleted again, one at a time. */
  readonly added: number;
  /** How often the first sync is measured; the changes come after one more. */
  readonly rounds: number;
  /** Milliseconds between changes; if that is not more than kproxy's default minimum sync period, kproxy gets a shorter one. */
  readonly spacingMs: number;
  /** How long kproxy rests before it is measured at rest: the first look at all of its rules comes with the first sync period. */
  readonly restMs: number;
  readonly idleMs: number;
  /** Also feed the full sync as one transaction per table. */
  readonly oneTransaction: boolean;
  readonly onProgress: (message: string) => void;
  /** Called before each change: how many are done, and of how many. */
  readonly onChange: (done: number, of: number) => void;
}

/** One kind of change, kproxy and bare program, in milliseconds from the change (the start) to the kernel. */
export interface ChangeFigures {
  readonly kproxy: Distribution;
  readonly bare: Distribution;
  /** Ratio of the medians. */
  readonly ratio: number;
  /** Programs started for one change, and what was written to them. */
  readonly programs: number;
  readonly bytes: number;
}

/** What was measured. Times in milliseconds, memory in megabytes. */
export interface BenchResult extends ProxyCosts {
  /** The day, `2026-11-23`. */
  readonly measured: string;
  /** What of kproxy ran. */
  readonly program: "source" | "bundle";
  readonly size: ClusterSize;
  /** E.g. `iptables (nft)`. */
  readonly mode: string;
  readonly load: readonly number[];
  readonly firstSync: {
    /** From the start of the process until the sample Services answered connections, each round; none where they cannot be asked. */
    readonly answeredMs: readonly number[];
    /** The same until all rules were in the kernel, as the log line after the last commit says. */
    readonly kproxyMs: readonly number[];
    readonly bareMs: readonly number[];
    readonly oneTransactionMs: number | null;
    /** Start to end of an empty program of the same runtime, in the same rounds. */
    readonly runtimeMs: readonly number[];
    readonly ratio: number;
    /** The same without {@linkcode runtimeMs}. */
    readonly ratioWithoutRuntime: number;
    readonly bytes: number;
    readonly transactions: number;
    readonly programs: readonly string[];
    /** The line of each run that says how long each phase took. */
    readonly logs: readonly LogLine[];
  };
  readonly touch: ChangeFigures;
  readonly serviceAdded: ChangeFigures;
  readonly serviceDeleted: ChangeFigures;
  readonly lostEvents: boolean;
  readonly peer: PeerResult | null;
}

const DEFAULT_MIN_SYNC_PERIOD_MS = 1000;
const FULL_SYNC_TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 60_000;
const NO_CHANGE: RecordedChange = { runs: [], aftermath: [] };

/** The bare program in its namespace. */
interface Bare {
  readonly netns: Netns;
  readonly tool: BareProcess;
  readonly watch: CommitWatch | undefined;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Runs one benchmark. The namespaces it makes are gone when it settles; `folder` holds what was recorded. */
export async function measure(options: BenchOptions, folder: string): Promise<BenchResult> {
  return await new Bench(options, folder).run();
}

class Bench {
  readonly #options: BenchOptions;
  readonly #folder: string;
  readonly #steps: readonly Step[];
  #fileCount = 0;

  constructor(options: BenchOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#steps = plannedSteps(options.size, options.touches, options.added);
  }

  async run(): Promise<BenchResult> {
    const { mode, rounds, oneTransaction, peer, onProgress } = this.#options;
    onProgress("recording what kproxy writes");
    const recording = await record(this.#options, this.#steps, this.#folder);
    const beside = peer === null ? null : new PeerBench({ ...this.#options, peer }, this.#folder);
    const firstSyncs: FirstSync[] = [];
    // Where nothing is watched, the one before the changes counts as well.
    const unwatched = mode.openWatch === null ? rounds - 1 : rounds;
    for (let round = 1; round <= unwatched; round++) {
      onProgress(`first sync, round ${round} of ${rounds}`);
      firstSyncs.push(
        await this.#inPair(false, recording, (_product, _bare, firstSync) => Promise.resolve(firstSync)),
      );
      await beside?.firstSync();
    }
    if (oneTransaction) onProgress("bare program, one transaction");
    const oneTransactionMs = oneTransaction ? await this.#oneTransaction(recording) : null;
    onProgress("first sync and changes");
    const changes = await this.#inPair(true, recording, async (product, bare, firstSync) => {
      if (unwatched < rounds) firstSyncs.push(firstSync);
      if (beside === null) return await this.#changes(recording, product, bare, null);
      return await beside.atWork(() => this.#changes(recording, product, bare, beside));
    });
    return { ...changes, firstSync: firstSyncFigures(mode, firstSyncs, recording, oneTransactionMs) };
  }

  /**
   * First sync of kproxy, then of the bare program, each in a fresh namespace; then `goOn` with both. Watching the kernel
   * makes large transactions take half as long again, so what is watched does not count as a first sync.
   */
  async #inPair<T>(
    isWatched: boolean,
    { fullSync }: Recording,
    goOn: (product: RunningProxy<KproxyProcess>, bare: Bare, firstSync: FirstSync) => Promise<T>,
  ): Promise<T> {
    const { mode, size, program } = this.#options;
    const setup = {
      mode,
      size,
      isWatched,
      timeoutMs: FULL_SYNC_TIMEOUT_MS,
      socket: `${this.#folder}/api-${this.#fileCount++}.sock`,
      start: (netns: Netns, master: string) =>
        new KproxyProcess(netns, {
          master,
          mode: mode.proxyMode,
          flags: this.#paceFlags(),
          ...(program === undefined ? {} : { program }),
        }),
    };
    return await withRunningProxy(setup, async (product) => {
      const { netns, process: kproxy } = product;
      const log = await kproxy.line((line) => isFirstSync(line), 0, FULL_SYNC_TIMEOUT_MS);
      await kproxy.allServed(FULL_SYNC_TIMEOUT_MS);
      await assertProgrammed(mode, netns, size);
      return await inAnsweringNetns(mode, async (bareNetns) => {
        await makeCounters(bareNetns, fullSync);
        await using watch = isWatched ? await mode.openWatch?.(bareNetns) : undefined;
        await using tool = new BareProcess(bareNetns);
        let bareMs = 0;
        for (const run of fullSync) {
          const { startMs, endMs } = await this.#feed(tool, run);
          bareMs += endMs - startMs;
        }
        const runtimeMs = await this.#runtimeStart(bareNetns);
        const firstSync = {
          log,
          kproxyMs: log.ts - kproxy.startedMs,
          answeredMs: product.answeredMs,
          bareMs,
          runtimeMs,
        };
        return await goOn(product, { netns: bareNetns, tool, watch }, firstSync);
      });
    });
  }

  /** How long the runtime takes to start and end where it has nothing to do. */
  async #runtimeStart(netns: Netns): Promise<number> {
    const script = `${this.#folder}/empty.js`;
    await Deno.writeTextFile(script, "");
    const startMs = performance.now();
    await netns.run(["env", Deno.execPath(), "run", "-q", script]);
    return performance.now() - startMs;
  }

  /** kproxy serves a change at once if it rested long enough before. */
  #paceFlags(): readonly string[] {
    const { spacingMs, mode } = this.#options;
    return spacingMs > DEFAULT_MIN_SYNC_PERIOD_MS
      ? []
      : [periodFlag(mode, "min-sync-period", Math.floor(spacingMs / 2))];
  }

  async #feed(tool: BareProcess, { argv, stdin }: RecordedRun): Promise<BareRun> {
    const stdinFile = `${this.#folder}/input-${this.#fileCount++}`;
    await Deno.writeTextFile(stdinFile, stdin);
    return await tool.run({ argv, stdinFile });
  }

  async #oneTransaction({ fullSync }: Recording): Promise<number> {
    const { mode } = this.#options;
    return await inAnsweringNetns(mode, async (netns) => {
      await makeCounters(netns, fullSync);
      await using tool = new BareProcess(netns);
      if (mode.asOneTransaction === null) throw new RangeError(`There are no transactions in ${mode.title}`);
      const { startMs, endMs } = await this.#feed(tool, mode.asOneTransaction(fullSync));
      return endMs - startMs;
    });
  }

  async #changes(
    recording: Recording,
    product: RunningProxy<KproxyProcess>,
    bare: Bare,
    peer: PeerBench | null,
  ): Promise<Omit<BenchResult, "firstSync">> {
    const { size, mode, program, restMs, idleMs, spacingMs, onProgress, onChange } = this.#options;
    const meter = await CostMeter.begin(product.process);
    onProgress("idle");
    await Promise.all([meter.rest(restMs, idleMs), peer?.rest(restMs, idleMs)]);
    const load = [...Deno.loadavg()];
    onProgress(`${this.#steps.length} changes`);
    const pairs = new Map<string, ChangePair[]>();
    let at = 0;
    for (const [index, step] of this.#steps.entries()) {
      onChange(index, this.#steps.length);
      const isTouch = step.path === "/touch";
      const { runs, aftermath } = (changesRules(step) ? recording.changes[at++] : undefined) ?? NO_CHANGE;
      const pauseMs = spacingMs / 2 + aftermathMs(mode, step);
      const changeMs = await meter.change(isTouch, pauseMs, () => this.#productChange(product, step));
      if (changeMs !== undefined) {
        const pair = { kproxyMs: changeMs, bareMs: await this.#bareChange(bare, runs), runs };
        pairs.set(step.path, [...pairs.get(step.path) ?? [], pair]);
        await this.#bareChange(bare, aftermath);
      }
      await peer?.change(step);
      await sleep(spacingMs / 2);
    }
    await assertSameRules(mode, product.netns, bare.netns);
    return {
      measured: new Date().toISOString().slice(0, 10),
      program: program === undefined ? "source" : "bundle",
      size,
      mode: mode.title,
      load,
      touch: changeFigures(pairs.get("/touch")),
      serviceAdded: changeFigures(pairs.get("/service/add")),
      serviceDeleted: changeFigures(pairs.get("/service/delete")),
      ...await meter.end(),
      lostEvents: product.watch?.lostEvents === true || bare.watch?.lostEvents === true,
      peer: await peer?.result() ?? null,
    };
  }

  /** Makes one change; yields the milliseconds until the kernel has it, if it changes rules. */
  async #productChange(
    { api, process: kproxy, watch }: RunningProxy<KproxyProcess>,
    step: Step,
  ): Promise<number | undefined> {
    const commitsBefore = watch?.position ?? 0;
    const position = kproxy.position;
    const { atMs, ip } = await api.change(step.path, step.index);
    if (!changesRules(step)) return undefined;
    const log = kproxy.line(isWritingSync, position, CHANGE_TIMEOUT_MS);
    const [line, commit] = await Promise.all([
      log,
      watch?.commit(signOf(step, ip), commitsBefore, CHANGE_TIMEOUT_MS),
    ]);
    return (commit?.atMs ?? line.ts) - atMs;
  }

  /** Feeds the bare program with what kproxy wrote for the same change; the watch counts as for kproxy. */
  async #bareChange(bare: Bare, runs: readonly RecordedRun[]): Promise<number> {
    const commitsBefore = bare.watch?.position ?? 0;
    let ms = 0;
    for (const run of runs) {
      const { startMs, endMs } = await this.#feed(bare.tool, run);
      const commit = await bare.watch?.commit(null, commitsBefore, CHANGE_TIMEOUT_MS);
      ms += (commit?.atMs ?? endMs) - startMs;
    }
    return ms;
  }
}

interface ChangePair {
  readonly kproxyMs: number;
  readonly bareMs: number;
  readonly runs: readonly RecordedRun[];
}

/** One first sync of each. */
interface FirstSync {
  /** From the start of the process to the log line that comes after the last commit. */
  readonly kproxyMs: number;
  readonly answeredMs: number | null;
  /** From the start of the program to its end. */
  readonly bareMs: number;
  readonly runtimeMs: number;
  readonly log: LogLine;
}

function firstSyncFigures(
  mode: BenchMode,
  runs: readonly FirstSync[],
  { start, fullSync }: Recording,
  oneTransactionMs: number | null,
): BenchResult["firstSync"] {
  const kproxyMs = runs.map((run) => run.kproxyMs);
  const bareMs = runs.map((run) => run.bareMs);
  const runtimeMs = runs.map((run) => run.runtimeMs);
  return {
    answeredMs: runs.flatMap((run) => run.answeredMs ?? []),
    kproxyMs,
    bareMs,
    oneTransactionMs,
    runtimeMs,
    ratio: quantile(kproxyMs, 0.5) / quantile(bareMs, 0.5),
    ratioWithoutRuntime: (quantile(kproxyMs, 0.5) - quantile(runtimeMs, 0.5)) / quantile(bareMs, 0.5),
    bytes: fullSync.reduce((sum, { stdin }) => sum + stdin.length, 0),
    transactions: mode.transactions(fullSync),
    programs: start.map(({ argv }) => argv.join(" ")),
    logs: runs.map((run) => run.log),
  };
}

function changeFigures(pairs: readonly ChangePair[] = []): ChangeFigures {
  const kproxy = distribution(pairs.map(({ kproxyMs }) => kproxyMs));
  const bare = distribution(pairs.map(({ bareMs }) => bareMs));
  return {
    kproxy,
    bare,
    ratio: kproxy.p50 / bare.p50,
    programs: Math.max(...pairs.map(({ runs }) => runs.length)),
    bytes: Math.max(...pairs.map(({ runs }) => runs.reduce((sum, { stdin }) => sum + stdin.length, 0))),
  };
}

/** Rules of mode iptables may name counters, which the bare program does not make. */
async function makeCounters({ exec }: Netns, runs: readonly RecordedRun[]): Promise<void> {
  if (!runs.some(({ stdin }) => stdin.includes("--nfacct-name"))) return;
  await new NfacctCounters(exec, Object.values(COUNTERS)).ensure();
}
