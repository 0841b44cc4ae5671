/**
 * Mode iptables, in either variant, as it is measured.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import type { KernelCommit } from "./kernel_events.ts";
import { KernelWatch, showsChange } from "./kernel_watch.ts";
import { type BenchMode, type ChangeSign, type ClusterSizeInKernel, makeKubeletHint } from "./mode.ts";
import type { RecordedRun } from "./recorded_programs.ts";

/** Which programs write the rules. */
export type Variant = "nft" | "legacy";

/** Mode iptables in one variant. */
export function iptablesMode(variant: Variant): BenchMode {
  return {
    proxyMode: "iptables",
    title: `iptables (${variant})`,
    prepare: (netns) => makeKubeletHint(netns, variant),
    fullSync: (start) => [largestRestore(start)],
    transactions: ([restore]) => restore?.stdin.match(/^COMMIT$/gm)?.length ?? 0,
    asOneTransaction: ([restore]) => {
      if (restore === undefined) throw new TypeError("Nothing was restored");
      return { argv: restore.argv, stdin: asOneTransaction(restore.stdin) };
    },
    aftermathMs: 0,
    openWatch: variant === "nft" ? (netns) => KernelWatch.open(netns, showsReached) : null,
    isAnswering: true,
    readRules: async (netns) => {
      const saved = [];
      for (const table of ["nat", "filter"]) {
        saved.push(await netns.run([`iptables-${variant}-save`, "-t", table]));
      }
      return saved.map(normalised).join("\n");
    },
    endpointIps: async (netns) => {
      const saved = await netns.run([`iptables-${variant}-save`, "-t", "nat"]);
      return new Set(Array.from(saved.matchAll(/--to-destination ([\d.]+)/g), ([, ip = ""]) => ip));
    },
    countProgrammed: (netns) => countProgrammed(netns, variant),
  };
}

/** The jump to a Service, and the chain of an endpoint. */
const REACHED = /^KUBE-(?:SERVICES|SEP-\S+) /;

/** True if a commit shows that a Service or endpoint can be reached, or no longer: chains may come before what leads to them. */
function showsReached({ atMs, added, deleted }: KernelCommit, sign: ChangeSign): boolean {
  const reached = (entries: readonly string[]): string[] => entries.filter((entry) => REACHED.test(entry));
  return showsChange({ atMs, added: reached(added), deleted: reached(deleted) }, sign);
}

function largestRestore(runs: readonly RecordedRun[]): RecordedRun {
  const restores = runs.filter(({ argv }) => /^iptables.*-restore$/.test(argv[0] ?? ""));
  const largest = restores.toSorted((a, b) => b.stdin.length - a.stdin.length)[0];
  if (largest === undefined) throw new Error("kproxy started no restore");
  return largest;
}

/** The same rules with one transaction for each table: what the program would be fed with without stages. */
export function asOneTransaction(text: string): string {
  const tables = new Map<string, { chains: Set<string>; others: string[] }>();
  let current: { chains: Set<string>; others: string[] } | undefined;
  for (const line of text.split("\n")) {
    if (line.startsWith("*")) {
      current = tables.get(line) ?? { chains: new Set(), others: [] };
      tables.set(line, current);
    } else if (line.startsWith(":")) current?.chains.add(line);
    else if (line !== "" && line !== "COMMIT") current?.others.push(line);
  }
  return [...tables].map(([table, { chains, others }]) =>
    [table, ...chains, ...others, "COMMIT", ""].join("\n")
  ).join("");
}

async function countProgrammed(netns: Netns, variant: Variant): Promise<ClusterSizeInKernel> {
  const saved = await netns.run([`iptables-${variant}-save`, "-t", "nat"]);
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
