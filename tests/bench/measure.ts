/**
 * One benchmark: kproxy against a fake API server, beside the bare program fed with the very same input, in network
 * namespaces of their own.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { inVariantNetns, type Variant } from "./bench_netns.ts";
import { BareProcess } from "./bare_process.ts";
import type { BareRun } from "./bare_tool.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { type Distribution, distribution, quantile } from "./figures.ts";
import { type Commit, KernelWatch } from "./kernel_watch.ts";
import { isFirstSync, isWritingSync, KproxyProcess, type LogLine, type Memory } from "./kproxy_process.ts";
import {
  asOneTransaction,
  changesRules,
  plannedSteps,
  record,
  type Recording,
  type Step,
} from "./recording.ts";

/** What to measure. */
export interface BenchOptions {
  readonly size: ClusterSize;
  readonly variant: Variant;
  readonly touches: number;
  /** Services that are added and deleted again, one at a time. */
  readonly added: number;
  /** How often the first sync is measured; the changes come after one more. */
  readonly rounds: number;
  /** Milliseconds between changes; more than kproxy's minimum sync period, so that each is served at once. */
  readonly spacingMs: number;
  readonly idleMs: number;
  /** Also feed the full sync as one transaction per table. */
  readonly oneTransaction: boolean;
  readonly onProgress: (message: string) => void;
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
export interface BenchResult {
  readonly size: ClusterSize;
  readonly variant: Variant;
  readonly load: readonly number[];
  readonly firstSync: {
    readonly kproxyMs: readonly number[];
    readonly bareMs: readonly number[];
    readonly oneTransactionMs: number | null;
    readonly ratio: number;
    readonly bytes: number;
    readonly transactions: number;
    readonly programs: readonly string[];
    /** The line of each run that says how long each phase took. */
    readonly logs: readonly LogLine[];
  };
  readonly touch: ChangeFigures;
  readonly serviceAdded: ChangeFigures;
  readonly serviceDeleted: ChangeFigures;
  readonly memoryAfterFirstSync: Memory;
  readonly memoryAtEnd: Memory;
  /** CPU time until nothing of the start was left to do, programs included. */
  readonly startCpuMs: number;
  readonly idleCpuPercent: number;
  readonly cpuMsPerTouch: number;
  readonly lostEvents: boolean;
}

const FULL_SYNC_TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 60_000;
const SETTLE_TIMEOUT_MS = 300_000;

/** kproxy and what serves and watches it, in one namespace. */
interface Product {
  readonly netns: Netns;
  readonly api: FakeApi;
  readonly watch: KernelWatch | undefined;
  readonly kproxy: KproxyProcess;
}

/** The bare program in its namespace. */
interface Bare {
  readonly netns: Netns;
  readonly tool: BareProcess;
  readonly watch: KernelWatch | undefined;
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
    const { size, variant, rounds, oneTransaction, onProgress } = this.#options;
    onProgress("recording what kproxy writes");
    const recording = await record(size, this.#steps, variant, this.#folder);
    const firstSyncs: FirstSync[] = [];
    for (let round = 1; round <= rounds; round++) {
      onProgress(`first sync, round ${round} of ${rounds}`);
      firstSyncs.push(await this.#inPair(false, recording, (_product, _bare, firstSync) => firstSync));
    }
    if (oneTransaction) onProgress("bare program, one transaction");
    const oneTransactionMs = oneTransaction ? await this.#oneTransaction(recording) : null;
    onProgress("first sync, watched");
    const changes = await this.#inPair(
      true,
      recording,
      (product, bare) => this.#changes(recording, product, bare),
    );
    return { ...changes, firstSync: firstSyncFigures(firstSyncs, recording, oneTransactionMs) };
  }

  /**
   * First sync of kproxy, then of the bare program, each in a fresh namespace; then `goOn` with both. Watching the kernel
   * makes large transactions take half as long again, so what is watched does not count as a first sync.
   */
  async #inPair<T>(
    watched: boolean,
    { fullSync }: Recording,
    goOn: (product: Product, bare: Bare, firstSync: FirstSync) => T | Promise<T>,
  ): Promise<T> {
    const { variant, size } = this.#options;
    const watches = watched && variant === "nft";
    return await inVariantNetns(variant, (netns) =>
      inVariantNetns(variant, async (bareNetns) => {
        await using api = await FakeApi.start(netns, size, `${this.#folder}/api-${this.#fileCount++}.sock`);
        await using watch = watches ? await KernelWatch.open(netns) : undefined;
        await using kproxy = new KproxyProcess(netns, { master: api.url });
        const log = await kproxy.line((line) => isFirstSync(line), 0, FULL_SYNC_TIMEOUT_MS);
        await kproxy.allServed(FULL_SYNC_TIMEOUT_MS);
        await assertProgrammed(netns, variant, size);
        await using bareWatch = watches ? await KernelWatch.open(bareNetns) : undefined;
        await using tool = new BareProcess(bareNetns);
        const { startMs, endMs } = await this.#feed(tool, fullSync.argv, fullSync.stdin);
        const firstSync = { log, kproxyMs: log.ts - kproxy.startedMs, bareMs: endMs - startMs };
        const product = { netns, api, watch, kproxy };
        const bare = { netns: bareNetns, tool, watch: bareWatch };
        return await goOn(product, bare, firstSync);
      }));
  }

  async #feed(tool: BareProcess, argv: readonly string[], stdin: string): Promise<BareRun> {
    const stdinFile = `${this.#folder}/input-${this.#fileCount++}`;
    await Deno.writeTextFile(stdinFile, stdin);
    return await tool.run({ argv, stdinFile });
  }

  async #oneTransaction({ fullSync }: Recording): Promise<number> {
    return await inVariantNetns(this.#options.variant, async (netns) => {
      await using tool = new BareProcess(netns);
      const { startMs, endMs } = await this.#feed(tool, fullSync.argv, asOneTransaction(fullSync.stdin));
      return endMs - startMs;
    });
  }

  async #changes(
    recording: Recording,
    product: Product,
    bare: Bare,
  ): Promise<Omit<BenchResult, "firstSync">> {
    const { size, variant, idleMs, onProgress } = this.#options;
    const { kproxy } = product;
    const memoryAfterFirstSync = await kproxy.memory();
    onProgress("idle");
    await kproxy.settled(SETTLE_TIMEOUT_MS);
    const startCpuMs = await kproxy.cpuMs();
    const idleFrom = await kproxy.cpuMs();
    await sleep(idleMs);
    const idleCpuPercent = 100 * (await kproxy.cpuMs() - idleFrom) / idleMs;

    const load = [...Deno.loadavg()];
    onProgress(`${this.#steps.length} changes`);
    const pairs = new Map<string, ChangePair[]>();
    let touchCpuMs = 0, at = 0;
    for (const step of this.#steps) {
      const cpuFrom = await kproxy.cpuMs();
      const changeMs = await this.#productChange(product, step);
      const runs = changesRules(step) ? recording.changes[at++] ?? [] : [];
      await sleep(this.#options.spacingMs / 2);
      if (step.path === "/touch") touchCpuMs += await kproxy.cpuMs() - cpuFrom;
      if (changeMs !== undefined) {
        const pair = { kproxyMs: changeMs, bareMs: await this.#bareChange(bare, runs), runs };
        pairs.set(step.path, [...pairs.get(step.path) ?? [], pair]);
      }
      await sleep(this.#options.spacingMs / 2);
    }
    await assertSameRules(product.netns, bare.netns, variant);
    return {
      size,
      variant,
      load,
      touch: changeFigures(pairs.get("/touch")),
      serviceAdded: changeFigures(pairs.get("/service/add")),
      serviceDeleted: changeFigures(pairs.get("/service/delete")),
      memoryAfterFirstSync,
      startCpuMs,
      memoryAtEnd: await kproxy.memory(),
      idleCpuPercent,
      cpuMsPerTouch: touchCpuMs / this.#options.touches,
      lostEvents: product.watch?.lostEvents === true || bare.watch?.lostEvents === true,
    };
  }

  /** Makes one change; yields the milliseconds until the kernel has it, if it changes rules. */
  async #productChange({ api, kproxy, watch }: Product, step: Step): Promise<number | undefined> {
    const commitsBefore = watch?.commits.length ?? 0;
    const position = kproxy.position;
    const { atMs, ip } = await api.change(step.path, step.index);
    if (!changesRules(step)) return undefined;
    const log = kproxy.line(isWritingSync, position, CHANGE_TIMEOUT_MS);
    const isWanted = step.path === "/service/delete"
      ? deletesService
      : (commit: Commit) => commit.ips.includes(ip);
    const [line, commit] = await Promise.all([
      log,
      watch?.commit(isWanted, commitsBefore, CHANGE_TIMEOUT_MS),
    ]);
    return (commit?.atMs ?? line.ts) - atMs;
  }

  /** Feeds the bare program with what kproxy wrote for the same change; the watch counts as for kproxy. */
  async #bareChange(bare: Bare, runs: Recording["start"]): Promise<number> {
    const commitsBefore = bare.watch?.commits.length ?? 0;
    let ms = 0;
    for (const { argv, stdin } of runs) {
      const { startMs, endMs } = await this.#feed(bare.tool, argv, stdin);
      const commit = await bare.watch?.commit(() => true, commitsBefore, CHANGE_TIMEOUT_MS);
      ms += (commit?.atMs ?? endMs) - startMs;
    }
    return ms;
  }
}

interface ChangePair {
  readonly kproxyMs: number;
  readonly bareMs: number;
  readonly runs: Recording["start"];
}

/** One first sync of each. */
interface FirstSync {
  /** From the start of the process to the log line that comes after the last commit. */
  readonly kproxyMs: number;
  /** From the start of the program to its end. */
  readonly bareMs: number;
  readonly log: LogLine;
}

function firstSyncFigures(
  runs: readonly FirstSync[],
  { start, fullSync }: Recording,
  oneTransactionMs: number | null,
): BenchResult["firstSync"] {
  const kproxyMs = runs.map((run) => run.kproxyMs);
  const bareMs = runs.map((run) => run.bareMs);
  return {
    kproxyMs,
    bareMs,
    oneTransactionMs,
    ratio: quantile(kproxyMs, 0.5) / quantile(bareMs, 0.5),
    bytes: fullSync.stdin.length,
    transactions: fullSync.stdin.match(/^COMMIT$/gm)?.length ?? 0,
    programs: start.map(({ argv }) => argv.join(" ")),
    logs: runs.map((run) => run.log),
  };
}

function deletesService(commit: Commit): boolean {
  return commit.deletedDispatchRules > 0;
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

/** Asks the kernel: the log line that ends the first sync comes after the last commit, so everything must be there. */
async function assertProgrammed(netns: Netns, variant: Variant, size: ClusterSize): Promise<void> {
  const saved = await netns.run([`iptables-${variant}-save`, "-t", "nat"]);
  const distinct = (pattern: RegExp): number =>
    new Set(Array.from(saved.matchAll(pattern), ([, ip]) => ip)).size;
  const services = distinct(/^-A KUBE-SERVICES -d (\S+) .* -j KUBE-SVC-/gm);
  const endpoints = distinct(/--to-destination (\S+)/g);
  if (services !== size.services || endpoints !== size.services * size.endpoints) {
    throw new Error(`Only ${services} Services and ${endpoints} endpoints are in the kernel`);
  }
}

/** Both must have written the same, or the comparison means nothing. */
async function assertSameRules(left: Netns, right: Netns, variant: Variant): Promise<void> {
  for (const table of ["nat", "filter"]) {
    const [ours, theirs] = await Promise.all(
      [left, right].map(async (netns) =>
        normalised(await netns.run([`iptables-${variant}-save`, "-t", table]))
      ),
    );
    if (ours !== theirs) throw new Error(`The bare program did not write the same rules of table ${table}`);
  }
}

function normalised(saved: string): string {
  const lines = saved.split("\n").filter((line) => !line.startsWith("#"));
  return lines.map((line) => line.replace(/\[\d+:\d+\]/, "")).sort().join("\n");
}
