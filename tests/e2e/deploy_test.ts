/**
 * The Pods of `deploy/kubernetes` as a kubelet would run them: each container's own command, mounts and rights, a read-only root, a
 * kubeconfig as kubeadm writes it, a real API server, real packets; and the dashboard's queries over what they tell Prometheus.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { V1PodSpec } from "@kubernetes/client-node";
import type { ApiJson } from "../flows/objects.ts";
import { queriesOf, readDashboard, seriesOf, yieldsSomething } from "../deploy/dashboard.ts";
import { type Manifest, podOf, resolveKustomization } from "../deploy/kustomization.ts";
import { failuresIn } from "../deploy/promtool.ts";
import { ROOT } from "../../tools/project_files.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { containerCommand } from "../support/container.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { IPTABLES, type LabMode, NFTABLES } from "../support/lab_mode.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_PODS,
  WEB_PORT,
  WEB_SERVICE,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_ADDRESSES, NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [
  ...WEB_NEEDS,
  ...KAPI,
  ...["curl", "promtool", "setpriv", "chroot"].map(program),
  ...NFTABLES.needs,
];
/** CAP_NET_ADMIN and CAP_NET_RAW as /proc shows them. */
const CAPABILITIES = "0000000000003000";
/** What a test changes in the configuration: a log that it can read, and everything that may be counted. */
const TEST_SETTINGS = `
logging: { format: json, verbosity: 2 }
kproxy: { trafficCounters: true }
iptables: { minSyncPeriod: 0s }
nftables: { minSyncPeriod: 0s }
`;
/** Panels of what has not happened to a proxy that fares well, and so is not counted yet. */
const QUIET_PANELS: readonly string[] = [
  "Syncs that failed: {{node}} {{ip_family}}",
  "Syncs that failed: {{node}} {{ip_family}}",
  "Stale flows and invalid packets: stale flows deleted {{ip_family}}",
  "Objects refused, snapshots: {{node}} serves its snapshot",
  "Objects refused, snapshots: {{node}} snapshots not written",
  "Connections to its servers: {{server}} closed: {{reason}}",
  "Servers that fail, log lines lost: {{server}}",
];

function raw(object: ApiJson): RawApiObject {
  return object as unknown as RawApiObject;
}

/** As the controller of EndpointSlices writes it, which says when its cause was. */
function triggered(object: ApiJson): RawApiObject {
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date().toISOString() };
  const { metadata, ...rest } = raw(object);
  return { ...rest, metadata: { ...metadata, annotations } };
}

/** The kubeconfig of kubeadm's ConfigMap. */
function kubeconfigOf(kapi: Kapi): string {
  const secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
  return `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: ${secrets}/ca.crt
    server: ${kapi.url}
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: ${secrets}/token
`;
}

/** Runs `work` with what a kubelet makes for the Pod, as a folder. */
async function withPodFolder(
  config: string,
  kapi: Kapi,
  work: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: `kproxy-pod-${Deno.pid}-` });
  try {
    for (const name of ["config", "secrets"]) await Deno.mkdir(`${folder}/${name}`);
    await Deno.writeTextFile(`${folder}/lock`, "");
    await Deno.writeTextFile(`${folder}/config/config.conf`, config + TEST_SETTINGS);
    await Deno.writeTextFile(`${folder}/config/kubeconfig.conf`, kubeconfigOf(kapi));
    await Deno.writeTextFile(`${folder}/secrets/token`, "kapi-token");
    await Deno.copyFile(kapi.ca, `${folder}/secrets/ca.crt`);
    await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function configIn(objects: readonly Manifest[], mode: string): string {
  const map = objects.find(({ kind, metadata }) =>
    kind === "ConfigMap" && metadata.name === `kproxy-${mode}`
  );
  const { "config.conf": text = "" } = (map as unknown as { data: Record<string, string> }).data;
  return text.replace('clusterCIDR: ""', "clusterCIDR: 10.244.0.0/16,fd00:10:244::/56");
}

async function curl(netns: Netns, url: string): Promise<string> {
  return await netns.run(["curl", "-sf", "--max-time", "30", "--noproxy", "*", url]);
}

/** Every probe of the Pod, as its kubelet asks: at the node's address. */
async function assertProbes(pod: V1PodSpec, netns: Netns): Promise<void> {
  const [main] = pod.containers;
  const probes = [main?.startupProbe, main?.livenessProbe, main?.readinessProbe];
  for (const probe of probes) {
    const { path, port } = probe?.httpGet ?? {};
    const number = main?.ports?.find(({ name }) => name === port)?.containerPort;
    // Fails on any other status than 200.
    await curl(netns, `http://${NODE_ADDRESSES.eth0[0]}:${number}${path}`);
  }
}

/** The process has the rights that the manifest names, and cannot get others. */
async function assertRights({ pid }: KproxyProcess): Promise<void> {
  const status = await Deno.readTextFile(`/proc/${pid}/status`);
  const told = (name: string): string => new RegExp(`^${name}:\\s+(\\w+)$`, "m").exec(status)?.[1] ?? "";
  assertEquals(["CapEff", "CapPrm", "CapBnd", "CapInh", "NoNewPrivs"].map(told), [
    ...[CAPABILITIES, CAPABILITIES, CAPABILITIES],
    "0000000000000000",
    "1",
  ]);
  const mounts = await Deno.readTextFile(`/proc/${pid}/mountinfo`);
  assert(/ \/ ro,[^\n]* - tmpfs kproxy-root /.test(mounts), mounts);
}

/** Runs the Pod of an overlay; resolves to what it told Prometheus. */
async function runPod(mode: LabMode, kapi: Kapi): Promise<string> {
  const objects = await resolveKustomization(`${ROOT}/deploy/kubernetes/overlays/${mode.name}`);
  const pod = podOf(objects);
  await using web = await WebLab.create(mode);
  const { netns } = web.lab.node;
  using _gateway = await LabGateway.open(netns, kapi.port);
  await kapi.put(raw(webSlice(WEB_PODS.slice(0, 2))));
  let metrics = "";
  await withPodFolder(configIn(objects, mode.name), kapi, async (folder) => {
    const host = { folder, nodeName: "node-a" };
    for (const container of pod.initContainers ?? []) {
      const { code, stderr } = await netns.exec.run(await containerCommand(pod, container, host));
      assertEquals(code, 0, stderr);
    }
    const [main] = pod.containers;
    assert(main !== undefined);
    const command = await containerCommand(pod, main, host);
    await using kproxy = await KproxyProcess.start({ netns, args: [], command });
    await assertRights(kproxy);
    assert(!kproxy.lines.some(({ msg }) => msg === "Set sysctl"), "the first container has set them");
    const loop = await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT });
    await loop.answered(20);
    await kproxy.change(() => kapi.put(triggered(webSlice(WEB_PODS.slice(1)))), "shop/web");
    await loop.answered(20);
    await loop.stopUnbroken();
    await assertProbes(pod, netns);
    // As load balancers do.
    await curl(netns, `http://${NODE_ADDRESSES.eth0[0]}:10256/healthz`);
    metrics = await curl(netns, "http://127.0.0.1:10249/metrics");
    const from = performance.now();
    assertEquals((await kproxy.stop()).code, 0);
    assert(performance.now() - from < (pod.terminationGracePeriodSeconds ?? 0) * 1000);
    const wrong = kproxy.lines.filter(({ msg }) => /read-only|permission denied/i.test(String(msg)));
    assertEquals(wrong, []);
  });
  return metrics;
}

e2eTest(
  "a Pod of each overlay serves with exactly its rights, and the dashboard shows it",
  NEEDS,
  async () => {
    await using kapi = await Kapi.start();
    for (const object of [NODE_OBJECT, WEB_SERVICE]) await kapi.put(raw(object));
    await kapi.fill(20, 4);
    const series = {
      ...seriesOf(await runPod(IPTABLES, kapi), "node-a"),
      ...seriesOf(await runPod(NFTABLES, kapi), "node-b"),
    };
    const queries = queriesOf(await readDashboard());
    const questions = queries.map(({ expr }) => ({ expr: yieldsSomething(expr), at: "2m", value: 1 }));
    const failures = await failuresIn([{ interval: "15s", series, questions }]);
    const quiet = queries.filter(({ expr }) => failures.includes(JSON.stringify(yieldsSomething(expr))));
    assertEquals(quiet.map(({ panel, legendFormat }) => `${panel}: ${legendFormat}`), QUIET_PANELS);
  },
);
