/**
 * One mode at one size: kproxy, the bare tool with the very text that kproxy wrote, and a kube-proxy, in turns, each in a network namespace
 * of its own.
 *
 * @module
 */
import { COUNTERS } from "../../lib/backend/iptables/plan/ruleset.ts";
import { NfacctCounters } from "../../lib/kernel/nfacct.ts";
import type { ProxiesRow, ProxySamples } from "../../tools/figures/records.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchNetns } from "./bench_netns.ts";
import type { ClusterSize } from "./fake_objects.ts";
import type { KernelWatch } from "./kernel_watch.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { MemoryCgroup } from "./memory_cgroup.ts";
import { assertProgrammed, assertSameRules, type BenchMode } from "./mode.ts";
import { type Peer, startPeer } from "./peer_process.ts";
import type { ProxyProcess } from "./proxy_process.ts";
import type { RecordedRun } from "./recorded_programs.ts";
import { plannedSteps, record, type Recording, type Step } from "./recording.ts";
import { type RunningProxy, TooSlow, withRunningProxy } from "./running_proxy.ts";
import type { BareJob, BareRun } from "./bare_tool.ts";
import { LineReader } from "./line_reader.ts";

/** What to measure. */
export interface MeasureOptions {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  /** `kproxy.js` of a bundle; undefined: the source. */
  readonly program: string | undefined;
  /** Measured beside kproxy; a text says why it is not. */
  readonly peer: Peer | string;
  /** A peer whose first sync takes longer is not measured. */
  readonly peerLimitMs: number;
  readonly rounds: number;
  /** Replaced endpoints of each round. */
  readonly changes: number;
  readonly onProgress: (message: string) => void;
}

const TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 120_000;
/** More than both proxies' shortest time between two syncs, so that each serves a change at once. */
const PAUSE_MS = 1_100;

type Writable<T> = { -readonly [K in keyof T]: T[K] extends readonly number[] ? number[] : T[K] };

function noSamples(): Writable<ProxySamples> {
  return {
    firstSyncMs: [],
    startCpuMs: [],
    changeMs: [],
    residentMb: [],
    anonymousMb: [],
    peakMb: [],
    chargedMb: [],
    chargedPeakMb: [],
  };
}

/** What makes and sees a change. */
interface Party {
  change(step: Step, isEven: boolean): Promise<void>;
}

/**
 * Measures. The namespaces it makes are gone when it settles; `folder` holds what was recorded.
 *
 * @throws {Error} if the bare tool did not write what kproxy did, or the kernel told of changes faster than they could be read
 */
export async function measure(options: MeasureOptions, folder: string): Promise<ProxiesRow> {
  return await new Measurement(options, folder).run();
}

class Measurement {
  readonly #options: MeasureOptions;
  readonly #folder: string;
  readonly #steps: readonly Step[];
  readonly #kproxy = noSamples();
  readonly #kubeProxy = noSamples();
  readonly #bare = {
    firstSyncMs: [] as number[],
    changeMs: [] as number[],
    changeWithStartMs: [] as number[],
  };
  #whyNoPeer: string | undefined;
  #fileCount = 0;

  constructor(options: MeasureOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#steps = plannedSteps(options.size, options.changes, 0);
    this.#whyNoPeer = typeof options.peer === "string" ? options.peer : undefined;
  }

  async run(): Promise<ProxiesRow> {
    const { mode: { proxyMode }, size, rounds, onProgress } = this.#options;
    onProgress("recording what kproxy writes");
    const recording = await record(this.#options, this.#steps, this.#folder);
    for (let round = 1; round <= rounds; round++) {
      onProgress(`round ${round} of ${rounds}`);
      await this.#round(recording, round === 1);
    }
    const kubeProxy = this.#whyNoPeer ?? this.#kubeProxy;
    return { mode: proxyMode, ...size, kproxy: this.#kproxy, kubeProxy, bare: this.#bare };
  }

  async #round(recording: Recording, isFirst: boolean): Promise<void> {
    const { mode, size } = this.#options;
    await this.#atWork(this.#kproxy, this.#startKproxy, TIMEOUT_MS, async (kproxy, { netns }) => {
      if (isFirst) await assertProgrammed(mode, netns, size);
      await inBenchNetns(mode, async (bareNetns) => {
        await using tool = new BareProcess(bareNetns);
        await makeCounters(bareNetns, recording.fullSync);
        this.#bare.firstSyncMs.push(await this.#feed(tool, recording.fullSync, false));
        await using watch = await mode.openWatch(bareNetns);
        const bare = this.#bareParty(tool, watch, recording);
        await this.#besidePeer((peer) => this.#changes([kproxy, bare, ...peer]));
        if (watch.lostEvents) throw new Error("The kernel dropped events: the machine was too busy");
        if (isFirst) await assertSameRules(mode, netns, bareNetns);
      });
    });
  }

  /** With the peer, if it is measured and quick enough. */
  async #besidePeer(work: (peer: readonly Party[]) => Promise<void>): Promise<void> {
    const { peer, peerLimitMs } = this.#options;
    if (this.#whyNoPeer !== undefined || typeof peer === "string") return await work([]);
    const start = (netns: Netns, master: string, starter: readonly string[]): Promise<ProxyProcess> =>
      startPeer(peer, netns, {
        ...{ master, starter, folder: this.#folder },
        mode: this.#options.mode.proxyMode,
      });
    try {
      await this.#atWork(this.#kubeProxy, start, peerLimitMs, (party) => work([party]));
    } catch (error) {
      if (!(error instanceof TooSlow)) throw error;
      this.#whyNoPeer = `more than ${peerLimitMs / 1000} s`;
      await work([]);
    }
  }

  /** Starts a proxy, measures its first sync, runs `work`, and measures what it holds at the end. */
  async #atWork<P extends ProxyProcess>(
    samples: Writable<ProxySamples>,
    start: (netns: Netns, master: string, starter: readonly string[]) => P | Promise<P>,
    timeoutMs: number,
    work: (party: Party, running: RunningProxy<P>) => Promise<void>,
  ): Promise<void> {
    const { mode, size } = this.#options;
    const cgroup = await MemoryCgroup.create().catch(() => undefined);
    await using _cgroup = cgroup;
    const setup = {
      ...{ mode, size, timeoutMs },
      socket: `${this.#folder}/api-${this.#fileCount++}.sock`,
      start: (netns: Netns, master: string) => start(netns, master, cgroup?.starter ?? []),
    };
    await withRunningProxy(setup, async (running) => {
      const { process, netns, answeredMs } = running;
      await process.settled(TIMEOUT_MS);
      samples.firstSyncMs.push(rounded(answeredMs));
      samples.startCpuMs.push(await process.cpuMs());
      // Watching the kernel makes large transactions take half as long again: what came before is not watched.
      await using watch = await mode.openWatch(netns);
      await work(this.#proxyParty(samples, running, watch), running);
      if (watch.lostEvents) throw new Error("The kernel dropped events: the machine was too busy");
      const { nowMb, anonymousMb, peakMb } = await process.memory();
      samples.residentMb.push(rounded(nowMb));
      samples.anonymousMb.push(rounded(anonymousMb));
      samples.peakMb.push(rounded(peakMb));
      const charged = await cgroup?.memory();
      if (charged === undefined) return;
      samples.chargedMb.push(rounded(charged.nowMb));
      samples.chargedPeakMb.push(rounded(charged.peakMb));
    });
  }

  readonly #startKproxy = (netns: Netns, master: string, starter: readonly string[]): KproxyProcess => {
    const { mode, program } = this.#options;
    return new KproxyProcess(netns, {
      ...{ master, mode: mode.proxyMode, starter },
      ...program === undefined ? {} : { program },
    });
  };

  async #changes(parties: readonly Party[]): Promise<void> {
    for (const [at, step] of this.#steps.entries()) {
      for (const party of parties) await party.change(step, at % 2 === 0);
      await pause(PAUSE_MS);
    }
  }

  #proxyParty(
    samples: Writable<ProxySamples>,
    { api }: RunningProxy<ProxyProcess>,
    watch: KernelWatch,
  ): Party {
    return {
      async change(step) {
        const from = watch.position;
        const { atMs, ip } = await api.change(step.path, step.index);
        const commit = await watch.commit(ip, from, CHANGE_TIMEOUT_MS);
        samples.changeMs.push(rounded(commit.atMs - atMs));
      },
    };
  }

  /** Every other process is started before it is given its input. */
  #bareParty(tool: BareProcess, watch: KernelWatch, { changes }: Recording): Party {
    return {
      change: async (step, isStartedBefore) => {
        const from = watch.position;
        const runs = changes[this.#steps.indexOf(step)]?.runs ?? [];
        const ms = await this.#feed(
          tool,
          runs,
          isStartedBefore,
          async () => (await watch.commit(null, from, CHANGE_TIMEOUT_MS)).atMs,
        );
        (isStartedBefore ? this.#bare.changeMs : this.#bare.changeWithStartMs).push(ms);
      },
    };
  }

  /** @param end when it counts as done, in milliseconds since the epoch, if not at the process' end */
  async #feed(
    tool: BareProcess,
    runs: readonly RecordedRun[],
    isStartedBefore: boolean,
    end?: () => Promise<number>,
  ): Promise<number> {
    let ms = 0;
    for (const { argv, stdin } of runs) {
      const stdinFile = `${this.#folder}/input-${this.#fileCount++}`;
      await Deno.writeTextFile(stdinFile, stdin);
      const { startMs, endMs } = await tool.run({ argv, stdinFile, isStartedBefore });
      ms += (await end?.() ?? endMs) - startMs;
      await Deno.remove(stdinFile);
    }
    return rounded(ms);
  }
}

function rounded(value: number): number {
  return Math.round(10 * value) / 10;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Rules of mode iptables may name counters, which the bare program does not make. */
async function makeCounters({ exec }: Netns, runs: readonly RecordedRun[]): Promise<void> {
  if (!runs.some(({ stdin }) => stdin.includes("--nfacct-name"))) return;
  await new NfacctCounters(exec, Object.values(COUNTERS)).ensure();
}

/** A process in the namespace that runs bare programs and times them. */
class BareProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #lines: LineReader;

  constructor(netns: Netns) {
    const script = new URL("./bare_tool.ts", import.meta.url).pathname;
    this.#child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt"],
        ...["--allow-run", "--allow-read", script],
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    this.#lines = new LineReader(this.#child.stdout);
  }

  /**
   * Runs one program to its end.
   *
   * @throws {Error} if its status is not 0
   */
  async run(job: BareJob): Promise<BareRun> {
    await this.#writer.write(new TextEncoder().encode(JSON.stringify(job) + "\n"));
    const line = await this.#lines.next();
    if (line === null) throw new Error("The bare programs' process ended");
    const run: BareRun = JSON.parse(line);
    if (run.code !== 0) throw new Error(`${job.argv.join(" ")} ended with ${run.code}: ${run.stderr}`);
    return run;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writer.close();
    await this.#lines.cancel();
    await this.#child.status;
  }
}
