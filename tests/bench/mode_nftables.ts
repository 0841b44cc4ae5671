/**
 * Mode nftables as it is measured.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { KernelWatch } from "./kernel_watch.ts";
import { type BenchMode, type ClusterSizeInKernel, LIST_TIMEOUT_MS } from "./mode.ts";
import type { RecordedRun } from "./recorded_programs.ts";

/** What writes to the IPv4 table. */
const WRITES_IPV4 = /^\w+ \w+ ip kproxy\b/m;

/** Mode nftables. */
export const NFTABLES_MODE: BenchMode = {
  proxyMode: "nftables",
  title: "nftables",
  prepare: () => Promise.resolve(),
  fullSync,
  openWatch: (netns) => KernelWatch.open(netns),
  readRules: async (netns) => {
    const lines = (await netns.run(["nft", "list", "table", "ip", "kproxy"])).split("\n");
    // Shared chains stand in the order in which they were made.
    return lines.sort().join("\n");
  },
  countProgrammed,
};

const ENDPOINT = / \. \d+ : (\d+\.\d+\.\d+\.\d+) \. \d+/g;

function listMap(netns: Netns, name: string): Promise<string> {
  return netns.run(["nft", "list", "map", "ip", "kproxy", name], { timeoutMs: LIST_TIMEOUT_MS });
}

function fullSync(start: readonly RecordedRun[]): readonly RecordedRun[] {
  const runs = start.filter(({ argv, stdin }) => argv.join(" ") === "nft -f -" && WRITES_IPV4.test(stdin));
  if (runs.length === 0) throw new Error("kproxy wrote no table of IPv4");
  return runs;
}

async function countProgrammed(netns: Netns): Promise<ClusterSizeInKernel> {
  const count = async (map: string, pattern: RegExp): Promise<number> =>
    (await listMap(netns, map)).match(pattern)?.length ?? 0;
  return {
    services: await count("service-ips", /: goto tcp-\d+\b/g),
    endpoints: await count("endpoints-tcp", ENDPOINT),
  };
}
