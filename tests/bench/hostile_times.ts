/**
 * What one object costs that was written to cost much: `deno run -A tests/bench/hostile_times.ts [--mode M]... [--only TEXT]...
 * [--program PATH] [--services N] [--rounds N] [--legacy] [--record]`. For each mode and each object of `hostile_objects.ts` it starts kproxy in a
 * network namespace with a small cluster, puts the object to the API server, and prints how long `/livez` took at most until all was
 * quiet again (and for how much of that kproxy was computing), how much memory was resident at most, and how long an edit of another
 * Service took, at once and later. Needs root. Mode ipvs needs a kernel that has it, such as that of `tests/lab/uml.sh`, where iptables is
 * the legacy variant (`--legacy`) and all is slow: its record holds mode iptables on the same kernel beside it.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { signalChild } from "../../tools/end_programs.ts";
import { HOSTILE_FILE, HOSTILE_IPVS_FILE, type HostileRow } from "../../tools/figures/records.ts";
import { writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchFolder, inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { HOSTILE_OBJECTS, type HostileObjects } from "./hostile_objects.ts";
import { KproxyProcess, type LogLine } from "./kproxy_process.ts";
import { LineReader } from "./line_reader.ts";
import { beginRecord, recordText } from "./record.ts";
import { IPTABLES_MODE } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";

const START_TIMEOUT_MS = 120_000;
/** An edit that takes longer counts as one that never comes. */
const EDIT_TIMEOUT_MS = 60_000;
/** Edits that are measured once all is quiet. */
const EDITS = 10;
/** So long after the object the first edit of another Service comes. */
const FIRST_EDIT_MS = 100;
const HOSTILE = -1;
/** Where there is one; without it a sync waits for a second after the last one. */
const PERIOD_FLAGS: Readonly<Record<HostileMode, readonly string[]>> = {
  iptables: ["--iptables-min-sync-period=1ms"],
  ipvs: ["--ipvs-min-sync-period=1ms"],
  nftables: ["--iptables-min-sync-period=1ms"],
  userspace: ["--iptables-min-sync-period=1ms"],
};

/** In which mode kproxy runs. */
export type HostileMode = "iptables" | "ipvs" | "nftables" | "userspace";

/** What one object led to. */
export interface HostileFigures {
  readonly livezMs: number;
  /** Of one answer, how long kproxy itself was computing until then: what the longest took where no other process wants the processors. */
  readonly computingMs: number;
  readonly residentMb: number;
  /** Of an edit that comes while the object is worked on. */
  readonly firstEditMs: number;
  /** Of the later ones, the middle. */
  readonly editMs: number;
  /** Services that were told to be quarantined. */
  readonly quarantined: readonly unknown[];
}

/** What is measured. */
export interface HostileOptions {
  readonly mode: HostileMode;
  readonly size: ClusterSize;
  /** `kproxy.js` of a bundle instead of the source. */
  readonly program?: string;
  /** True: the kernel takes iptables in the legacy variant only. Default false. */
  readonly isLegacy?: boolean;
  readonly folder: string;
}

/** How long kproxy's answers took at most. */
class Livez implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #done: Promise<void>;
  #longestMs = 0;
  #computingMs = 0;
  #lastMs = performance.now();

  constructor(netns: Netns, pid: number) {
    const script = new URL("./livez_process.ts", import.meta.url).pathname;
    this.#child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "-A", script],
        ...["http://127.0.0.1:10256/livez", `${pid}`],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#done = this.#read();
  }

  begin(): void {
    [this.#longestMs, this.#computingMs] = [0, 0];
  }

  /** With the one that is waited for now. */
  get longestMs(): number {
    return Math.max(this.#longestMs, performance.now() - this.#lastMs);
  }

  get computingMs(): number {
    return this.#computingMs;
  }

  async #read(): Promise<void> {
    const lines = new LineReader(this.#child.stdout);
    for (let line = await lines.next(); line !== null; line = await lines.next()) {
      const [tookMs = NaN, computingMs = NaN] = line.split(" ").map(Number);
      this.#lastMs = performance.now();
      this.#longestMs = Math.max(this.#longestMs, tookMs);
      this.#computingMs = Math.max(this.#computingMs, computingMs);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#child.status;
    await this.#done;
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Milliseconds until the sync of an edit had ended; Infinity if it does not. */
async function edit(api: FakeApi, kproxy: KproxyProcess, index: number): Promise<number> {
  const from = kproxy.position;
  const { atMs } = await api.change("/touch", index);
  const isItsSync = (line: LogLine): boolean =>
    line.msg === "Synced rules" && line.family === "IPv4" &&
    (line["full"] === true || (line["services"] as string[]).includes(`default/svc-${index}`));
  try {
    const { ts } = await kproxy.line(isItsSync, from, EDIT_TIMEOUT_MS);
    return ts - atMs;
  } catch (error) {
    if (kproxy.hasEnded) throw error;
    return Infinity;
  }
}

/** Puts one attack to a fresh kproxy. */
export async function measureHostile(
  { service, slice }: Omit<HostileObjects, "title">,
  { mode, size, program, isLegacy = false, folder }: HostileOptions,
): Promise<HostileFigures> {
  const hasHint = !isLegacy && (mode === "iptables" || mode === "userspace");
  const benchMode = hasHint ? IPTABLES_MODE : NFTABLES_MODE;
  return await inBenchNetns(benchMode, async (netns) => {
    const socket = `${folder}/${crypto.randomUUID().slice(0, 8)}.sock`;
    await using api = await FakeApi.start(netns, size, socket);
    await using kproxy = new KproxyProcess(netns, {
      master: api.url,
      mode: mode as typeof benchMode.proxyMode,
      flags: PERIOD_FLAGS[mode],
      ...program === undefined ? {} : { program },
    });
    await kproxy.allServed(START_TIMEOUT_MS);
    await edit(api, kproxy, 1);
    await using livez = new Livez(netns, kproxy.pid);
    await pause(1500);
    await kproxy.resetPeak();
    livez.begin();
    if (slice !== null) await api.put("endpointslices", HOSTILE, slice);
    if (service !== null) await api.put("services", HOSTILE, service);
    await pause(FIRST_EDIT_MS);
    const firstEditMs = await edit(api, kproxy, 2);
    const times: number[] = [];
    if (firstEditMs < Infinity) await kproxy.settled(START_TIMEOUT_MS);
    for (let index = 0; index < EDITS && firstEditMs < Infinity; index++) {
      times.push(await edit(api, kproxy, 3 + index));
      await pause(100);
    }
    times.sort((left, right) => left - right);
    return {
      livezMs: livez.longestMs,
      computingMs: livez.computingMs,
      residentMb: (await kproxy.memory()).peakMb,
      firstEditMs,
      editMs: times[times.length >> 1] ?? NaN,
      quarantined: kproxy.lines.filter(({ msg }) => msg.startsWith("Service is quarantined"))
        .map(({ service }) => service),
    };
  });
}

/** Of each figure the worst of all rounds. */
function worst(rounds: readonly HostileFigures[]): HostileRow["worst"] {
  const most = (of: (one: HostileFigures) => number): number => Math.round(Math.max(...rounds.map(of)));
  return {
    livezMs: most(({ livezMs }) => livezMs),
    computingMs: most(({ computingMs }) => computingMs),
    residentMb: most(({ residentMb }) => residentMb),
    firstEditMs: most(({ firstEditMs }) => firstEditMs),
    editMs: most(({ editMs }) => editMs),
  };
}

function told({ mode, object, worst }: HostileRow): string {
  const { livezMs, computingMs, residentMb, firstEditMs, editMs } = worst;
  return `${mode}, ${object}: /livez ${livezMs} (${computingMs}) ms, ${residentMb} MB, edit ${firstEditMs} ms, later ${editMs} ms`;
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    string: ["mode", "only", "program", "services", "rounds"],
    boolean: ["legacy", "record"],
    collect: ["mode", "only"],
  });
  const modes = (args.mode.length > 0 ? args.mode : ["nftables", "iptables", "userspace"]) as HostileMode[];
  const size = { services: Number(args.services ?? "100"), endpoints: 3 };
  const rounds = Number(args.rounds ?? "1");
  if (args.record && !(rounds >= 5)) throw new RangeError("--record needs --rounds of 5 or more");
  const program = args.program === undefined ? {} : { program: await Deno.realPath(args.program) };
  const words = ["deno", "run", "-A", "tests/bench/hostile_times.ts", ...Deno.args];
  const end = args.record ? await beginRecord({ words, rounds, kubeProxy: null }) : null;
  const rows: HostileRow[] = [];
  await inBenchFolder(async (folder) => {
    for (const { title, ...objects } of HOSTILE_OBJECTS) {
      if (args.only.length > 0 && !args.only.some((text) => title.includes(text))) continue;
      for (const mode of modes) {
        const figures: HostileFigures[] = [];
        for (let round = 0; round < rounds; round++) {
          figures.push(
            await measureHostile(objects, { mode, size, folder, isLegacy: args.legacy, ...program }),
          );
        }
        const row = { mode, object: title, worst: worst(figures) };
        writeLine(told(row));
        rows.push(row);
      }
    }
  });
  const file = modes.includes("ipvs") ? HOSTILE_IPVS_FILE : HOSTILE_FILE;
  if (end !== null) await Deno.writeTextFile(`${ROOT}/${file}`, recordText({ ...end(), rows }));
}
