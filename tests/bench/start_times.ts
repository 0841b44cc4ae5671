/**
 * `deno run -A tests/bench/start_times.ts [--mode nftables|iptables|ipvs] [--services N] [--starts N] [--peer PATH] PROGRAM...`: starts
 * each PROGRAM (`kproxy.js` of a bundle) and the peer (a kube-proxy) so often, in turns, in fresh network namespaces, and prints in
 * milliseconds, since the start of the process:
 *
 * - _first commit_: when the kernel said that it had taken the first transaction, with chains or with rules;
 * - _first rule_: likewise the first one with a Service's address in it;
 * - _answered_: when all sample Services had answered a connection.
 *
 * Where several builds are compared, work beside it slows all of them alike. Who reads the kernel's messages is a process of its own, and
 * looks at the first addresses of each transaction only. Mode ipvs, whose kernel sends no such messages, works in a user-mode Linux.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { parseMode } from "./bench_modes.ts";
import { quantile } from "./figures.ts";
import { KernelWatch, showsChange } from "./kernel_watch.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { isUserModeLinux, runInLab } from "./lab.ts";
import type { BenchMode } from "./mode.ts";
import { findPeer, startPeer } from "./peer_process.ts";
import type { ProxyProcess } from "./proxy_process.ts";
import { withRunningProxy } from "./running_proxy.ts";

const TIMEOUT_MS = 600_000;
/** Of each transaction so many addresses are looked at; those of Services are not the last ones. */
const ENTRIES = 100;

/** One of those that are compared. */
interface Starter {
  readonly name: string;
  readonly start: (netns: Netns, master: string) => ProxyProcess | Promise<ProxyProcess>;
}

/** Sizes and programs of one comparison. */
interface StartTimes {
  readonly mode: BenchMode;
  readonly services: number;
  readonly starts: number;
  readonly starters: readonly Starter[];
}

/** Milliseconds since the start of the process; undefined where the kernel does not tell. */
interface StartTime {
  readonly firstCommit: number | undefined;
  readonly firstRule: number | undefined;
  readonly answered: number;
}

const TITLES: Readonly<Record<keyof StartTime, string>> = {
  firstCommit: "first commit",
  firstRule: "first rule",
  answered: "answered",
};

/** The starts of each, by name. */
async function measureStarts(
  { mode, services, starts, starters }: StartTimes,
  folder: string,
): Promise<ReadonlyMap<string, readonly StartTime[]>> {
  const times = new Map<string, StartTime[]>(starters.map(({ name }) => [name, []]));
  for (let round = 0; round < starts; round++) {
    // Nobody is always the one who comes after the other.
    for (const starter of round % 2 === 0 ? starters : starters.toReversed()) {
      const socket = `${folder}/${round}-${starters.indexOf(starter)}.sock`;
      times.get(starter.name)?.push(await measureStart({ mode, services, starter, socket }));
    }
  }
  return times;
}

async function measureStart(
  { mode, services, starter, socket }: Pick<StartTimes, "mode" | "services"> & {
    readonly starter: Starter;
    readonly socket: string;
  },
): Promise<StartTime> {
  await using stack = new AsyncDisposableStack();
  let watch: KernelWatch | undefined;
  return await withRunningProxy({
    mode,
    size: { services, endpoints: 10 },
    socket,
    isWatched: false,
    timeoutMs: TIMEOUT_MS,
    start: async (netns, master) => {
      if (mode.openWatch !== null) {
        watch = stack.use(await KernelWatch.open(netns, showsChange, ENTRIES));
      }
      return await starter.start(netns, master);
    },
  }, async ({ process: { startedMs }, answeredMs }) => {
    if (answeredMs === null) throw new RangeError(`Services of mode ${mode.title} cannot be asked`);
    const commit = await watch?.commit(null, 0, TIMEOUT_MS);
    const rule = await watch?.firstService(TIMEOUT_MS);
    return {
      firstCommit: commit && commit.atMs - startedMs,
      firstRule: rule && rule.atMs - startedMs,
      answered: answeredMs,
    };
  });
}

function* lines(name: string, times: readonly StartTime[]): Generator<string> {
  yield `${name}, ${times.length} starts, ms:`;
  for (const key of Object.keys(TITLES) as (keyof StartTime)[]) {
    const sorted = times.flatMap((time) => time[key] ?? []).sort((a, b) => a - b);
    if (sorted.length === 0) continue;
    const at = (part: number): string => quantile(sorted, part).toFixed(0);
    yield `  ${TITLES[key]}: best ${at(0)}, quarter ${at(0.25)}, median ${at(0.5)}, longest ${at(1)}`;
  }
}

/** The bundle at a path. */
async function bundleStarter(path: string, mode: BenchMode): Promise<Starter> {
  const program = await Deno.realPath(path);
  return {
    name: program,
    start: (netns, master) => new KproxyProcess(netns, { master, mode: mode.proxyMode, program }),
  };
}

/** A kube-proxy. */
async function peerStarter(path: string, mode: BenchMode, folder: string): Promise<Starter> {
  const peer = await findPeer(path);
  return {
    name: `kube-proxy ${peer.version}`,
    start: (netns, master) =>
      startPeer(peer, netns, { master, mode: mode.proxyMode, minSyncPeriodMs: null, folder }),
  };
}

if (import.meta.main) {
  const { mode: word, services, starts, peer, _: programs } = parseArgs(Deno.args, {
    string: ["mode", "services", "starts", "peer", "_"],
    default: { mode: "nftables", services: "100", starts: "20" },
  });
  const mode = parseMode(word, "nft");
  if (mode.proxyMode === "ipvs" && !isUserModeLinux()) {
    writeErrorLine("In a user-mode Linux, which prints its output when it ends");
    Deno.exit(await runInLab(import.meta.filename ?? "", Deno.args));
  }
  await inBenchFolder(async (folder) => {
    const before = Deno.loadavg()[0];
    const starters = [
      ...await Promise.all(programs.map((path) => bundleStarter(String(path), mode))),
      ...peer === undefined ? [] : [await peerStarter(peer, mode, folder)],
    ];
    const times = await measureStarts(
      { mode, services: Number(services), starts: Number(starts), starters },
      folder,
    );
    writeErrorLine(
      `${mode.title}, ${services} × 10, load ${before?.toFixed(1)} to ${Deno.loadavg()[0]?.toFixed(1)}`,
    );
    for (const [name, ofName] of times) for (const line of lines(name, ofName)) writeLine(line);
  });
}
