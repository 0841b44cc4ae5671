/**
 * Mode iptables, in the variant nft, as it is measured.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { KernelWatch } from "./kernel_watch.ts";
import type { BenchMode, ClusterSizeInKernel } from "./mode.ts";
import type { RecordedRun } from "./recorded_programs.ts";

/** Mode iptables. */
export const IPTABLES_MODE: BenchMode = {
  proxyMode: "iptables",
  title: "iptables (nft)",
  // The chain by which kubelet says which iptables variant a node uses: every node has it before its proxy starts.
  prepare: async (netns) => {
    await netns.run(["iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  },
  fullSync: (start) => [largestRestore(start)],
  // The jump to a Service, and the chain of an endpoint: others may come before what leads to them.
  openWatch: (netns) => KernelWatch.open(netns, /^KUBE-(?:SERVICES|SEP-\S+) /),
  readRules: async (netns) => {
    const saved = [];
    for (const table of ["nat", "filter"]) saved.push(await netns.run(["iptables-nft-save", "-t", table]));
    return saved.map(normalised).join("\n");
  },
  countProgrammed,
};

function largestRestore(runs: readonly RecordedRun[]): RecordedRun {
  const restores = runs.filter(({ argv }) => /^iptables.*-restore$/.test(argv[0] ?? ""));
  const largest = restores.toSorted((a, b) => b.stdin.length - a.stdin.length)[0];
  if (largest === undefined) throw new Error("kproxy started no restore");
  return largest;
}

async function countProgrammed(netns: Netns): Promise<ClusterSizeInKernel> {
  const saved = await netns.run(["iptables-nft-save", "-t", "nat"]);
  const distinct = (pattern: RegExp): number =>
    new Set(Array.from(saved.matchAll(pattern), ([, ip]) => ip)).size;
  return {
    services: distinct(/^-A KUBE-SERVICES -d (\S+) .* -j KUBE-SVC-/gm),
    endpoints: distinct(/--to-destination (\S+)/g),
  };
}

function normalised(saved: string): string {
  const lines = saved.split("\n").filter((line) => !line.startsWith("#"));
  return lines.map((line) => line.replace(/\[\d+:\d+\]/, "")).sort().join("\n");
}
