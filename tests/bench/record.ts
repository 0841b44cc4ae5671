/**
 * What a record says beside its rows: with what, where and when it was measured.
 *
 * @module
 */
import denoConfig from "../../deno.json" with { type: "json" };
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { quoteWord } from "../../lib/netfilter/iptables_rule.ts";
import { type RecordHead, RECORDS_FOLDER } from "../../tools/figures/records.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";

/** What is known before the first round. */
export interface RecordStart {
  /** Of the command line. */
  readonly words: readonly string[];
  readonly rounds: number;
  /** What the kube-proxy says of itself; null: there is none. */
  readonly kubeProxy: string | null;
}

function load(): number {
  return Math.round(10 * (Deno.loadavg()[0] ?? 0)) / 10;
}

/** `2 × Intel(R) Xeon(R) …, 24 GB, Linux 6.18.5`. */
async function machine(): Promise<string> {
  const cpus = await Deno.readTextFile("/proc/cpuinfo");
  const model = /^model name\s*: (.*)$/m.exec(cpus)?.[1] ?? Deno.build.arch;
  const gigabytes = Math.round(Deno.systemMemoryInfo().total / 1e9);
  return `${navigator.hardwareConcurrency} × ${model.trim()}, ${gigabytes} GB, Linux ${
    Deno.osRelease().split("-")[0]
  }`;
}

async function version(argv: readonly string[]): Promise<string> {
  return /\d+(?:\.\d+)+/.exec(await runOk(systemExec, argv))?.[0] ?? "unknown";
}

/** To be called before the first round; what it yields, after the last one. */
export async function beginRecord({ words, rounds, kubeProxy }: RecordStart): Promise<() => RecordHead> {
  const before = load();
  const head = {
    // Where the kube-proxy was is known to its owner only.
    command: words.map(quoteWord).join(" ").replace(/(--peer[= ])\S+/, "$1kube-proxy"),
    // Other records change nothing.
    commit: await buildCommit(ROOT, [`:!${RECORDS_FOLDER}`]),
    date: new Date().toISOString().slice(0, 10),
    machine: await machine(),
  };
  const versions = {
    kproxy: denoConfig.version,
    kubeProxy: kubeProxy?.replace(/^Kubernetes /, "kube-proxy ") ?? null,
    deno: Deno.version.deno,
    nft: await version(["nft", "--version"]),
    iptables: await version(["iptables-nft", "--version"]),
  };
  return () => ({ ...head, load: [before, load()], n: rounds, versions });
}

/** The text of a record: a row's lists on one line each. */
export function recordText(record: unknown): string {
  return `${
    JSON.stringify(record, null, 2).replace(/\[\s+([-\d.,\s]+?)\s+\]/g, (_, list: string) =>
      `[${list.replace(/\s+/g, " ")}]`)
  }\n`;
}
