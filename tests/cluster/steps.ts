/**
 * What an operator does to a cluster, tried on this one while a client in a Pod connects to a Service without end: rollouts, rights,
 * nodes that come and go, and restarts of what kproxy depends on.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import type { ProxyMode } from "../../lib/config/types.ts";
import { ROOT } from "../../tools/project_files.ts";
import { findProgram } from "../../tools/setup.ts";
import { writeLine } from "../../tools/output.ts";
import type { Cluster } from "./cluster.ts";
import { KPROXY_IMAGE } from "./image.ts";
import { run } from "./machine.ts";
import { clusterCidr, nodeName } from "./plan.ts";
import { kubeProxyDaemonSet, kustomization, type ProxyName, proxyReady } from "./proxies.ts";
import type { StepOutcome } from "./record.ts";
import { buildHelm } from "../support/kapi.ts";
import { eventually } from "../support/until.ts";
import { type Connections, ServiceClient } from "./service_client.ts";

/** A step; it throws if something is not as it should be, and resolves to what is worth telling. */
type Step = (cluster: Cluster, mode: ProxyMode) => Promise<string>;

const SYSTEM = ["-n", "kube-system"];

async function restartOfAll(cluster: Cluster): Promise<string> {
  await cluster.kubectl([...SYSTEM, "rollout", "restart", "daemonset/kproxy"]);
  await proxyReady(cluster, "kproxy");
  return "Pods replaced node by node";
}

/** The account has kube-proxy's role and kproxy's own, and is refused everything else. */
async function rightsOfTheAccount(cluster: Cluster): Promise<string> {
  const as = "--as=system:serviceaccount:kube-system:kube-proxy";
  const may = async (...question: readonly string[]): Promise<boolean> =>
    (await cluster.kubectl(["auth", "can-i", ...question, as]).catch(() => "no")).trim() === "yes";
  assertEquals([await may("list", "services"), await may("watch", "endpointslices")], [true, true]);
  const others = [["get", "secrets"], ["list", "pods"], ["update", "services"], ["delete", "nodes"]];
  for (const question of others) assert(!await may(...question), question.join(" "));
  const logs = await cluster.kubectl([...SYSTEM, "logs", "daemonset/kproxy", "-c", "kproxy", "--tail=-1"]);
  assertEquals(logs.split("\n").filter((line) => /forbidden|may not be read/i.test(line)), []);
  return "may list and watch what it needs, and nothing of secrets, Pods or writing; no refusal in its log";
}

async function nodeAddedAndDrained(cluster: Cluster): Promise<string> {
  const number = (await cluster.nodes()).length + 1;
  const node = await cluster.join(number);
  await proxyReady(cluster, "kproxy");
  const selector = [`--field-selector=spec.nodeName=${node.name}`, "-l", "app.kubernetes.io/name=kproxy"];
  const pods = await cluster.kubectl([...SYSTEM, "get", "pods", ...selector, "-o", "name"]);
  assertEquals(pods.trim().split("\n").length, 1);
  await cluster.kubectl([
    "drain",
    node.name,
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--timeout=120s",
  ]);
  await cluster.kubectl(["delete", "node", node.name]);
  await node.remove();
  return `${node.name} came, had its Pod, and went`;
}

async function apiServerRestarted(cluster: Cluster): Promise<string> {
  await cluster.programs.end("kube-apiserver");
  await new Promise((resolve) => setTimeout(resolve, 10_000));
  await cluster.startControlPlane();
  return "10 s without an API server";
}

async function kubeletRestarted(cluster: Cluster): Promise<string> {
  const [node] = await cluster.nodes();
  assert(node !== undefined);
  await node.stopKubelet();
  await node.startKubelet();
  await cluster.kubectl(["wait", "--for=condition=Ready", `node/${nodeName(1)}`, "--timeout=120s"]);
  return `on ${node.name}`;
}

/** kube-proxy takes the nodes over one by one, and kproxy takes them back, by the lines of docs/deploy.md and docs/migrate.md. */
async function migratedNodeByNode(cluster: Cluster, mode: ProxyMode): Promise<string> {
  const nodes = await cluster.nodes();
  const label = (name: string, value: "=true" | "-"): Promise<string> =>
    cluster.kubectl(["label", "node", name, `kproxy/node${value}`, "--overwrite"]);
  for (const { name } of nodes) await label(name, "=true");
  await cluster.kubectl(["apply", "-k", await kustomization(cluster, mode, "labelled")]);
  await proxyReady(cluster, "kproxy");
  await cluster.apply(await kubeProxyElsewhere());
  for (const { name } of nodes) {
    await label(name, "-");
    await servedBy(cluster, name, "kube-proxy");
    if (mode === "nftables") await cleanedUp(cluster, name);
  }
  for (const { name } of nodes) {
    await label(name, "=true");
    await servedBy(cluster, name, "kproxy");
  }
  await cluster.kubectl([...SYSTEM, "delete", "daemonset", "kube-proxy"]);
  await cluster.kubectl(["apply", "-k", await kustomization(cluster, mode)]);
  await proxyReady(cluster, "kproxy");
  for (const { name } of nodes) await label(name, "-");
  return `${nodes.length} nodes went to kube-proxy one by one, and back to kproxy`;
}

/** kube-proxy's DaemonSet, away from kproxy's nodes. */
async function kubeProxyElsewhere(): Promise<unknown> {
  const patch = parse(await Deno.readTextFile(`${ROOT}/deploy/kubernetes/kube-proxy-elsewhere.yaml`));
  const [set, { affinity }] = [kubeProxyDaemonSet(), podSpecOf(patch)];
  podSpecOf(set)["affinity"] = affinity;
  return set;
}

function podSpecOf(daemonSet: unknown): Record<string, unknown> {
  return (daemonSet as { spec: { template: { spec: Record<string, unknown> } } }).spec.template.spec;
}

/** Resolves when the node has one proxy, this one, and it is ready. */
async function servedBy(cluster: Cluster, node: string, proxy: ProxyName): Promise<void> {
  const query = [`--field-selector=spec.nodeName=${node}`, "-l", "k8s-app in (kproxy,kube-proxy)"];
  await eventually(async () => {
    const { items } = JSON.parse(
      await cluster.kubectl([...SYSTEM, "get", "pods", ...query, "-o", "json"]),
    ) as {
      items: {
        metadata: { ownerReferences: { name: string }[] };
        status: { conditions?: { type: string; status: string }[] };
      }[];
    };
    const pods = items.map(({ metadata, status }) => {
      const ready = status.conditions?.find(({ type }) => type === "Ready")?.status;
      return [metadata.ownerReferences[0]?.name, ready];
    });
    assertEquals(pods, [[proxy, "True"]], `proxies of ${node}`);
  }, { everyMs: 500, limitMs: 180_000 });
}

/** Takes kproxy's tables away, of which kube-proxy knows nothing: docs/migrate.md, after the way back. */
async function cleanedUp(cluster: Cluster, node: string): Promise<void> {
  const command = ["--", "kproxy", "cleanup", "--of=kproxy"];
  const options = ["--profile=sysadmin", `--image=${KPROXY_IMAGE}`, "--image-pull-policy=IfNotPresent"];
  const told = await cluster.kubectl([...SYSTEM, "debug", `node/${node}`, ...options, ...command]);
  const [pod = ""] = /node-debugger-\S+/.exec(told) ?? [];
  const phase = "--for=jsonpath={.status.phase}=Succeeded";
  await cluster.kubectl([...SYSTEM, "wait", phase, `pod/${pod}`, "--timeout=120s"]);
  await cluster.kubectl([...SYSTEM, "delete", "pod", pod]);
}

/** The chart takes over what kubectl made, in the same mode. */
async function takenOverByHelm(cluster: Cluster, mode: ProxyMode): Promise<string> {
  const helm = findProgram("helm") ?? await buildHelm();
  const [repository, tag] = KPROXY_IMAGE.split(/:(?=[^/]*$)/);
  const values = {
    mode,
    everyNode: true,
    image: { repository, tag },
    clusterCIDR: clusterCidr(cluster.plan),
    metricsBindAddress: "0.0.0.0:10249",
    config: { conntrack: { maxPerCore: 0, min: 0 } },
  };
  const path = `${cluster.plan.folder}/values.json`;
  await Deno.writeTextFile(path, JSON.stringify(values));
  await run([
    ...["ip", "netns", "exec", "kc-cp", helm, `--kubeconfig=${cluster.plan.folder}/conf/admin.kubeconfig`],
    ...["upgrade", "--install", "kproxy", `${ROOT}/deploy/helm/kproxy`, "--namespace=kube-system"],
    ...["--take-ownership", `--values=${path}`],
  ], { timeoutMs: 120_000 });
  await proxyReady(cluster, "kproxy");
  return "helm upgrade --install --take-ownership";
}

/** In this order; each begins and ends with a cluster that is well. */
const STEPS: ReadonlyMap<string, Step> = new Map<string, Step>([
  ["rollout", restartOfAll],
  ["rights", rightsOfTheAccount],
  ["node", nodeAddedAndDrained],
  ["api-server", apiServerRestarted],
  ["kubelet", kubeletRestarted],
  ["migration", migratedNodeByNode],
  ["helm", takenOverByHelm],
]);

/** @throws {TypeError} naming what there is, if one of them is none */
export function stepsNamed(names: string): readonly string[] {
  const all = [...STEPS.keys()];
  const chosen = names === "all" ? all : names.split(",").filter((name) => name !== "");
  for (const name of chosen) {
    if (!STEPS.has(name)) throw new TypeError(`--steps takes all, or of ${all.join(", ")}; what is ${name}?`);
  }
  return chosen;
}

/** Runs them one after the other, and tells how each ended; `onOutcome` hears of it at once. */
export async function runSteps(
  cluster: Cluster,
  { mode, names, onOutcome }: {
    readonly mode: ProxyMode;
    readonly names: readonly string[];
    readonly onOutcome: (steps: Readonly<Record<string, StepOutcome>>) => Promise<void>;
  },
): Promise<Record<string, StepOutcome>> {
  const outcomes: Record<string, StepOutcome> = {};
  await using client = await ServiceClient.start(cluster);
  for (const name of names) {
    const from = performance.now();
    const outcome = await STEPS.get(name)?.(cluster, mode)
      .then(async (told) => judged(told, await client.count()))
      .catch((error: unknown) => ({ outcome: "failed" as const, told: String(error) }));
    if (outcome === undefined) continue;
    const seconds = Math.round((performance.now() - from) / 1000);
    outcomes[name] = { ...outcome, seconds };
    await onOutcome({ [name]: { ...outcome, seconds } });
    writeLine(`${outcome.outcome}: ${name}: ${outcome.told} (${seconds} s)`);
  }
  return outcomes;
}

function judged(told: string, { answered, failures }: Connections): Omit<StepOutcome, "seconds"> {
  const [first] = failures;
  if (first !== undefined) {
    return {
      outcome: "failed",
      told: `${failures.length} connections failed of ${answered + failures.length}: ${first}`,
    };
  }
  if (answered === 0) return { outcome: "failed", told: "the client got no answer meanwhile" };
  return { outcome: "passed", told: `${told}; ${answered} connections, none failed` };
}
