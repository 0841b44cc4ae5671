/**
 * `deno run -A tests/bench/start_times.ts [--mode nftables|iptables] [--services N] [--starts N] [--peer PATH] PROGRAM...`: starts
 * each PROGRAM (`kproxy.js` of a bundle) and the peer (a kube-proxy) so often, in turns, in fresh network namespaces, and prints in
 * milliseconds when all sample Services had answered since the start of the process. Where several builds are compared, work beside it
 * slows all of them alike. Mode ipvs works in a user-mode Linux that it boots.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import type { Netns } from "../support/netns.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { inBenchFolder } from "./bench_folder.ts";
import { parseMode } from "./bench_modes.ts";
import { quantile } from "./figures.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { isUserModeLinux, runInLab } from "./lab.ts";
import type { BenchMode } from "./mode.ts";
import { findPeer, startPeer } from "./peer_process.ts";
import type { ProxyProcess } from "./proxy_process.ts";
import { withRunningProxy } from "./running_proxy.ts";

const TIMEOUT_MS = 600_000;

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

/** Milliseconds until all sample Services answered, by name. */
async function measureStarts(
  { mode, services, starts, starters }: StartTimes,
  folder: string,
): Promise<ReadonlyMap<string, readonly number[]>> {
  const times = new Map<string, number[]>(starters.map(({ name }) => [name, []]));
  for (let round = 0; round < starts; round++) {
    // Nobody is always the one who comes after the other.
    for (const { name, start } of round % 2 === 0 ? starters : starters.toReversed()) {
      const answeredMs = await withRunningProxy({
        mode,
        size: { services, endpoints: 10 },
        socket: `${folder}/${round}-${starters.findIndex((starter) => starter.name === name)}.sock`,
        isWatched: false,
        timeoutMs: TIMEOUT_MS,
        start,
      }, ({ answeredMs }) => Promise.resolve(answeredMs));
      if (answeredMs === null) throw new RangeError(`Services of mode ${mode.title} cannot be asked`);
      times.get(name)?.push(answeredMs);
    }
  }
  return times;
}

function line(name: string, ms: readonly number[]): string {
  const sorted = ms.toSorted((a, b) => a - b);
  const at = (part: number): string => quantile(sorted, part).toFixed(0);
  return `${name}: best ${at(0)}, quarter ${at(0.25)}, median ${at(0.5)}, longest ${
    at(1)
  } ms of ${ms.length}`;
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
  const { mode: name, services, starts, peer, _: programs } = parseArgs(Deno.args, {
    string: ["mode", "services", "starts", "peer", "_"],
    default: { mode: "nftables", services: "100", starts: "20" },
  });
  const mode = parseMode(name, "nft");
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
      `${name}, ${services} × 10, load ${before?.toFixed(1)} to ${Deno.loadavg()[0]?.toFixed(1)}`,
    );
    for (const [each, ms] of times) writeLine(line(each, ms));
  });
}
