/**
 * What one object costs that was written to cost much: kproxy in a network namespace with a small cluster, to whose API server the object
 * is put. Told are the longest answer of `/livez` until all is quiet again, the most that was resident, and how long an edit of another
 * Service takes.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import type { HostileObjects } from "./hostile_objects.ts";
import { KproxyProcess, type LogLine } from "./kproxy_process.ts";
import { LineReader } from "./line_reader.ts";
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
/** In which mode kproxy runs. */
export type HostileMode = "iptables" | "nftables" | "userspace";

/** What one object led to. */
export interface HostileFigures {
  /** Of one answer of `/livez`, how long kproxy itself was computing until then: what the longest took where nobody else wants the processors. */
  readonly computingMs: number;
  readonly residentMb: number;
  /** The middle one of the edits once all is quiet. */
  readonly editMs: number;
  /** Services that were told to be quarantined. */
  readonly quarantined: readonly unknown[];
}

/** What is measured. */
export interface HostileOptions {
  readonly mode: HostileMode;
  readonly size: ClusterSize;
  readonly folder: string;
}

/** How long kproxy's answers took at most. */
class Livez implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #done: Promise<void>;
  #computingMs = 0;

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
    this.#computingMs = 0;
  }

  get computingMs(): number {
    return this.#computingMs;
  }

  async #read(): Promise<void> {
    const lines = new LineReader(this.#child.stdout);
    for (let line = await lines.next(); line !== null; line = await lines.next()) {
      this.#computingMs = Math.max(this.#computingMs, Number(line.split(" ")[1]));
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
  { mode, size, folder }: HostileOptions,
): Promise<HostileFigures> {
  const benchMode = mode === "nftables" ? NFTABLES_MODE : IPTABLES_MODE;
  return await inBenchNetns(benchMode, async (netns) => {
    const socket = `${folder}/${crypto.randomUUID().slice(0, 8)}.sock`;
    await using api = await FakeApi.start(netns, size, socket);
    await using kproxy = new KproxyProcess(netns, {
      master: api.url,
      mode: mode as typeof benchMode.proxyMode,
      flags: ["--iptables-min-sync-period=1ms"],
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
      computingMs: livez.computingMs,
      residentMb: (await kproxy.memory()).peakMb,
      editMs: times[times.length >> 1] ?? NaN,
      quarantined: kproxy.lines.filter(({ msg }) => msg.startsWith("Service is quarantined"))
        .map(({ service }) => service),
    };
  });
}
