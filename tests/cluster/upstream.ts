/**
 * Kubernetes' own tests, run against the cluster: which of `[sig-network]` are about a service proxy, and why others are left out.
 *
 * @module
 */
import type { ProxyMode } from "../../lib/config/types.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import type { Cluster } from "./cluster.ts";
import { run } from "./machine.ts";
import { CONTROL_PLANE } from "./plan.ts";
import { type ConformanceRecord, readJunit } from "./record.ts";

/** What is run: everything about Services and their proxies, conformance or not. */
export const FOCUS = String
  .raw`\[sig-network\].*(Services|Networking|Conntrack|KubeProxy|Traffic Distribution|Topology Hints|DualStack|Service CIDRs|ServiceCIDR|EndpointSlice|HostPort|Pod Lifecycle|Proxy)`;

/** Tests of `[sig-network]` that are not run, by a part of the name, with the reason; the first that fits counts. */
export const LEFT_OUT: readonly (readonly [part: RegExp, reason: string])[] = [
  [/LoadBalancers/, "needs a cloud that makes load balancers"],
  [/Netpol|NetworkPolic|AdminNetworkPolicy/, "about network policies, which are the network plugin's"],
  [/SCTP/, "needs the kernel's module sctp on every node, which this machine lacks"],
  [/Internet connection/, "needs the internet"],
  [/Ingress|Gateway|GCE/, "about Ingress and clouds, not about the proxy"],
  [/DNS/, "about DNS, which is here a program beside the cluster"],
  [/\bIPerf/i, "measures throughput between two nodes, which are one machine here"],
  [/\[Slow\]/, "takes longer than all others together"],
  [/restarting apiserver|recreate its iptables/, "reaches the nodes by ssh"],
  [/\[Serial\]/, "must be alone in the cluster"],
];

/** Why a test was not run. */
export function whyNotRun(name: string): string {
  const reason = LEFT_OUT.find(([part]) => part.test(name))?.[1];
  if (reason !== undefined) return reason;
  return new RegExp(FOCUS).test(name) ? "not tried yet" : "not about Services or who carries them out";
}

/** The same as one expression for ginkgo. */
const SKIP = LEFT_OUT.map(([part]) => part.flags.includes("i") ? `(?i:${part.source})` : part.source).join(
  "|",
);

/** A cluster of one IP family refuses those of dual-stack, too. */
function skipFor(families: readonly IpFamily[]): string {
  return families.length > 1 ? SKIP : String.raw`${SKIP}|\[Feature:IPv6DualStack\]`;
}

/** What to run of them. */
export interface UpstreamRun {
  /** Regular expression on the names. @default {FOCUS} */
  readonly focus: string;
  /** Regular expression in the place of those that are left out; `""` for none. @default {of LEFT_OUT} */
  readonly skip?: string;
  /** How many at a time. */
  readonly procs: number;
  /** After so many seconds ginkgo is told to end. */
  readonly limitSeconds: number;
  /** A folder for ginkgo's log and JUnit. */
  readonly results: string;
}

/** Runs them; resolves to how they ended. Those that fail are no error of this. */
export async function runUpstream(
  cluster: Cluster,
  { focus, skip = skipFor(cluster.plan.families), procs, limitSeconds, results }: UpstreamRun,
): Promise<Pick<ConformanceRecord, "tests" | "notRun">> {
  const { binaries, folder } = cluster.plan;
  const kubeconfig = `${folder}/conf/admin.kubeconfig`;
  await Deno.remove(results, { recursive: true }).catch((error: unknown) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
  await Deno.mkdir(results, { recursive: true });
  const argv = [
    ...["timeout", "--signal=INT", "--kill-after=60", String(limitSeconds)],
    ...["ip", "netns", "exec", CONTROL_PLANE, "env", `PATH=${binaries}:/usr/sbin:/usr/bin:/sbin:/bin`],
    ...[`${binaries}/ginkgo`, `--procs=${procs}`, "--no-color", `--focus=${focus}`],
    ...skip === "" ? [] : [`--skip=${skip}`],
    ...[`${binaries}/e2e.test`, "--", "--provider=skeleton", `--kubeconfig=${kubeconfig}`],
    // Without it some tests find by chance that there are too few.
    `--num-nodes=${(await cluster.nodes()).length}`,
    ...[`--report-dir=${results}`, "--dump-logs-on-failure=false", "--delete-namespace=true"],
  ];
  const line = 'log=$1; shift; "$@" > "$log" 2>&1 || true';
  await run(["sh", "-c", line, "sh", `${results}/log.txt`, ...argv], {
    timeoutMs: (limitSeconds + 120) * 1000,
  });
  let outcome: Pick<ConformanceRecord, "tests" | "notRun"> = { tests: {}, notRun: [] };
  for await (const { name } of Deno.readDir(results)) {
    if (!/^junit.*\.xml$/.test(name)) continue;
    const read = readJunit(await Deno.readTextFile(`${results}/${name}`));
    outcome = { tests: { ...outcome.tests, ...read.tests }, notRun: [...outcome.notRun, ...read.notRun] };
  }
  if (Object.keys(outcome.tests).length === 0) {
    throw new Error(`No test was run: ${results}/log.txt says why`);
  }
  return outcome;
}

/** What a record says of its circumstances. */
export async function circumstances(
  cluster: Cluster,
  { proxy, mode, version }: { readonly proxy: string; readonly mode: ProxyMode; readonly version: string },
): Promise<Omit<ConformanceRecord, "tests" | "notRun" | "steps">> {
  const told = await cluster.kubectl(["get", "nodes", "-o", "json"]);
  const { items } = JSON.parse(told) as { items: { status: { nodeInfo: Record<string, string> } }[] };
  const info = items[0]?.status.nodeInfo ?? {};
  return {
    proxy,
    version,
    mode,
    families: cluster.plan.families.join(", "),
    date: new Date().toISOString(),
    nodes: items.length,
    kubernetes: info["kubeletVersion"] ?? "",
    containerd: (info["containerRuntimeVersion"] ?? "").replace("containerd://", ""),
    kernel: info["kernelVersion"] ?? "",
  };
}
