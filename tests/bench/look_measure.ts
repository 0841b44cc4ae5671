/**
 * One benchmark of the commands that look: how long they take beside a running kproxy, and what of it the proxy and its data plane feel.
 *
 * @module
 */
import { runtimeFlags } from "../../tools/permissions.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import { clusterIp, type ClusterSize, endpointIp } from "./fake_objects.ts";
import { type Distribution, distribution } from "./figures.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { assertProgrammed, type BenchMode, type CommitWatch } from "./mode.ts";
import { programsMs } from "./programs_time.ts";

/** What to measure. */
export interface LookOptions {
  readonly size: ClusterSize;
  readonly mode: BenchMode;
  /** How often each command is run. */
  readonly asks: number;
  /** Endpoints that are replaced in each phase. */
  readonly touches: number;
  readonly onProgress: (message: string) => void;
}

/** kproxy and its connections in one phase. Times in milliseconds, memory in megabytes. */
export interface PhaseFigures {
  /** Of the process, since the phase began. */
  readonly peakMb: number;
  readonly nowMb: number;
  /** From a change in the API to the kernel. */
  readonly change: Distribution;
  /** New connections to a Service. */
  readonly connect: Distribution;
  /** Looks that ended in the phase. */
  readonly looks: number;
}

/** One command, in milliseconds. */
export interface AnswerFigures {
  readonly times: Distribution;
  /** CPU time of the command and its programs, the mean: what it takes on a busy machine, too. */
  readonly cpuMs: number;
}

/** What was measured. */
export interface LookResult {
  readonly size: ClusterSize;
  readonly mode: string;
  readonly load: readonly number[];
  /** Start to end of the process, by the command's words; nothing else is asked meanwhile. */
  readonly answers: ReadonlyMap<string, AnswerFigures>;
  readonly atRest: PhaseFigures;
  readonly lookedAt: PhaseFigures;
}

const START_TIMEOUT_MS = 900_000;
const CHANGE_TIMEOUT_MS = 60_000;
/** More than the default minimum sync period, so that each change is served at once. */
const SPACING_MS = 1_300;
const PORT = 8080;
const SERVICE_PORT = 80;
/** Its endpoints are addresses of this namespace; that of the looks is another one. */
const CONNECTED = 0;
const LOOKED_AT = 17;
const CONNECT_PROGRAM = `${ROOT}/tests/bench/connect_times.ts`;

/** The commands, in words: everything but `check` is to answer within a second. */
const COMMANDS: readonly (readonly string[])[] = [
  ["trace", "local", `default/svc-${LOOKED_AT}`],
  ["trace", "world", `${clusterIp(LOOKED_AT)}:${SERVICE_PORT}`],
  ["service", "get", `default/svc-${LOOKED_AT}`],
  ["status"],
  ["check"],
];

/** Runs it, in a namespace of its own that is gone when it settles. */
export async function measureLooks(options: LookOptions, folder: string): Promise<LookResult> {
  const { size, mode, onProgress } = options;
  return await inBenchNetns(mode, async (netns) => {
    await makeNode(netns, size);
    await using api = await FakeApi.start(netns, size, `${folder}/looks.sock`);
    // One that begins later has to read all rules first.
    await using watch = await mode.openWatch?.(netns);
    if (watch === undefined) throw new RangeError(`Changes in ${mode.title} cannot be watched`);
    onProgress("first sync");
    await using kproxy = new KproxyProcess(netns, { master: api.url, mode: mode.proxyMode });
    await kproxy.allServed(START_TIMEOUT_MS);
    await assertProgrammed(mode, netns, size);
    await kproxy.settled(START_TIMEOUT_MS);
    const answers = new Map<string, AnswerFigures>();
    for (const command of COMMANDS) {
      onProgress(command.join(" "));
      const times: number[] = [];
      const cpuFrom = await programsMs();
      // What checks everything takes seconds.
      const asks = command[0] === "check" ? Math.ceil(options.asks / 3) : options.asks;
      for (let ask = 0; ask < asks; ask++) times.push(await lookOnce(netns, command));
      const cpuMs = (await programsMs() - cpuFrom) / asks;
      answers.set(command.join(" "), { times: distribution(times), cpuMs });
    }
    await using server = program(netns, ["server", String(PORT)]);
    await firstLine(server.child);
    const lab: Lab = { netns, api, kproxy, watch };
    const load = [...Deno.loadavg()];
    onProgress("at rest");
    const atRest = await phase(options, lab, 0, false);
    onProgress("looked at");
    const lookedAt = await phase(options, lab, options.touches, true);
    return { size, mode: mode.title, load, answers, atRest, lookedAt };
  });
}

interface Lab {
  readonly netns: Netns;
  readonly api: FakeApi;
  readonly kproxy: KproxyProcess;
  readonly watch: CommitWatch;
}

/** An interface to the world, and the addresses of one Service's endpoints, which answer here. */
async function makeNode(netns: Netns, size: ClusterSize): Promise<void> {
  await netns.run(["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "world0"]);
  await netns.run(["ip", "link", "set", "world0", "up"]);
  await netns.run(["ip", "address", "add", "10.200.0.1/24", "dev", "eth0"]);
  await netns.run(["ip", "link", "set", "eth0", "up"]);
  await netns.run(["ip", "route", "add", "default", "dev", "eth0"]);
  await netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
  for (let endpoint = 0; endpoint < size.endpoints; endpoint++) {
    const address = endpointIp(CONNECTED, endpoint, size, false);
    await netns.run(["ip", "address", "add", `${address}/32`, "dev", "lo"]);
  }
}

/**
 * Milliseconds from the start of the command to its end.
 *
 * @param isChanging true: what is checked may change between one reading and the next
 */
async function lookOnce(netns: Netns, command: readonly string[], isChanging = false): Promise<number> {
  const start = performance.now();
  const { code, stdout, stderr } = await new Deno.Command("ip", {
    args: [
      ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", ...runtimeFlags(), "main.ts"],
      ...command,
    ],
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const tookMs = performance.now() - start;
  if (code === 0 || (code === 1 && isChanging && command[0] === "check")) return tookMs;
  const decoder = new TextDecoder();
  throw new Error(
    `${command.join(" ")} ended with ${code}:\n${decoder.decode(stdout)}${decoder.decode(stderr)}`,
  );
}

async function phase(
  { mode, touches, size }: LookOptions,
  { netns, api, kproxy, watch }: Lab,
  firstTouch: number,
  isLookedAt: boolean,
): Promise<PhaseFigures> {
  await kproxy.resetPeak();
  const client = program(netns, ["client", clusterIp(CONNECTED), String(SERVICE_PORT)]);
  let isOver = false;
  const looks = isLookedAt ? lookUntil(netns, () => isOver) : Promise.resolve(0);
  const changes: number[] = [];
  for (let touch = 0; touch < touches; touch++) {
    const before = watch.position;
    // Not the Service that connections go to, nor the one that is looked at.
    const index = (LOOKED_AT + 1 + firstTouch + touch) % size.services;
    const { atMs, ip } = await api.change("/touch", index);
    const commit = await watch.commit({ kind: "added", ip }, before, CHANGE_TIMEOUT_MS);
    changes.push(commit.atMs - atMs);
    await new Promise((resolve) => setTimeout(resolve, SPACING_MS));
  }
  isOver = true;
  const connected = connectTimes(client.child);
  if (watch.lostEvents) throw new Error(`The watch of ${mode.title} was too slow`);
  const { nowMb, peakMb } = await kproxy.memory();
  return {
    nowMb,
    peakMb,
    change: distribution(changes),
    connect: distribution(await connected),
    looks: await looks,
  };
}

async function lookUntil(netns: Netns, isOver: () => boolean): Promise<number> {
  let looks = 0;
  while (!isOver()) {
    // What checks everything takes seconds: once in five looks is more than an operator does.
    for (const command of COMMANDS) {
      if (isOver()) break;
      await lookOnce(netns, command, true);
      looks++;
    }
  }
  return looks;
}

interface Program extends AsyncDisposable {
  readonly child: Deno.ChildProcess;
}

function program(netns: Netns, args: readonly string[]): Program {
  const child = new Deno.Command("ip", {
    args: [
      ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--allow-net", CONNECT_PROGRAM],
      ...args,
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  return {
    child,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await child.stdin.close();
      await child.stdout.cancel();
      await child.status;
    },
  };
}

async function firstLine(child: Deno.ChildProcess): Promise<void> {
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  reader.releaseLock();
  if (value === undefined) throw new Error("The server did not start");
}

/** Ends the client and reads what it says. */
async function connectTimes(child: Deno.ChildProcess): Promise<readonly number[]> {
  await child.stdin.close();
  const text = await new Response(child.stdout).text();
  const { code } = await child.status;
  if (code !== 0) throw new Error("A connection was lost");
  return JSON.parse(text);
}
