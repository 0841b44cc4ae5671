/**
 * The Pods of `deploy/kubernetes` as a kubelet would run them, on a node that kube-proxy served before: each container's own command,
 * mounts and rights, a read-only root, a kubeconfig as kubeadm writes it, kapi, real packets; and the dashboard's queries
 * over what they tell Prometheus.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import type { ApiJson } from "../flows/objects.ts";
import type { Series } from "../deploy/alert_cases.ts";
import { queriesOf, readDashboard, seriesOf, yieldsSomething } from "../deploy/dashboard.ts";
import { baseManifests, kustomize, podOf } from "../deploy/kustomization.ts";
import { failuresIn } from "../deploy/promtool.ts";
import { ROOT } from "../../tools/project_files.ts";
import { BundleFolder } from "../support/bundle_folder.ts";
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
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { nftTables } from "../support/leftovers.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { raw } from "../support/raw_objects.ts";
import { NODE_ADDRESSES, NODE_OBJECT } from "../support/node_lab.ts";
import { assertProbes, configIn, curl, withPodFolder } from "../support/pod_folder.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [
  ...WEB_NEEDS,
  program("kubectl"),
  ...KAPI,
  ...["curl", "promtool", "setpriv", "chroot"].map(program),
  ...NFTABLES.needs,
];
/** CAP_NET_ADMIN and CAP_NET_RAW as /proc shows them. */
const CAPABILITIES = "0000000000003000";
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

/** As the controller of EndpointSlices writes it, which says when its cause was. */
function triggered(object: ApiJson): RawApiObject {
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date().toISOString() };
  const { metadata, ...rest } = raw(object);
  return { ...rest, metadata: { ...metadata, annotations } };
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
  // Code that it left there would be run by the first container, with all rights, when the Pod starts anew.
  const place = `/proc/${pid}/root/opt/kproxy`;
  for (const path of [`${place}/left.js`, `${place}/.deno/left`]) {
    const refusal = await Deno.writeTextFile(path, "").catch(String);
    assertMatch(String(refusal), /Read-only file system/, path);
  }
}

/** The node, with clients that have connected without end since kube-proxy served it. */
interface Node {
  readonly web: WebLab;
  readonly kapi: Kapi;
  readonly loop: ConnectLoop;
  /** What `deno task bundle` builds, as the image holds it. */
  readonly bundle: string;
}

/** Runs the Pod of an overlay to its end, with endpoints that change meanwhile; resolves to what it told Prometheus. */
async function runPod(
  { web, kapi, loop, bundle }: Node,
  mode: LabMode,
  pods: readonly string[],
): Promise<string> {
  const objects = await kustomize(`${ROOT}/deploy/kubernetes/overlays/${mode.name}`);
  const pod = podOf(objects);
  const { netns } = web.lab.node;
  return await withPodFolder(configIn(objects, mode.name), kapi, async (folder) => {
    const host = { folder, bundle, nodeName: "node-a" };
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
    const listening = kproxy.lines.filter(({ msg }) => msg === "Listening").map(({ server }) => server);
    assertEquals(listening, ["healthz", "metrics", "socket"], kproxy.log);
    await kproxy.change(() => kapi.put(triggered(webSlice(pods))), "shop/web");
    await loop.answered(30);
    await assertProbes(pod, netns);
    // As load balancers do.
    await curl(netns, `http://${NODE_ADDRESSES.eth0[0]}:10256/healthz`);
    const metrics = await curl(netns, "http://127.0.0.1:10249/metrics");
    const from = performance.now();
    assertEquals((await kproxy.stop()).code, 0);
    assert(performance.now() - from < (pod.terminationGracePeriodSeconds ?? 0) * 1000);
    const refused = kproxy.lines.filter(({ msg }) => /read-only|permission denied/i.test(msg));
    assertEquals(refused, []);
    return metrics;
  });
}

/** A program of the image on the node, with all rights. */
async function runInImage({ web, kapi, bundle }: Node, args: readonly string[]): Promise<string> {
  const pod = podOf(await baseManifests());
  const [init] = pod.initContainers ?? [];
  assert(init !== undefined);
  return await withPodFolder("", kapi, async (folder) => {
    const host = { folder, bundle, nodeName: "node-a" };
    return await web.lab.node.netns.run(await containerCommand(pod, { ...init, args: [...args] }, host));
  });
}

/** Queries that show nothing of these metrics. */
async function quietQueries(series: Series): Promise<string[]> {
  const queries = queriesOf(await readDashboard());
  const questions = queries.map((query) => ({ expr: yieldsSomething(query), at: "2m", value: 1 }));
  const failures = await failuresIn([{ interval: "15s", series, questions }]);
  return queries.filter((query) => failures.includes(JSON.stringify(yieldsSomething(query))))
    .map(({ panel, legendFormat }) => `${panel}: ${legendFormat}`);
}

e2eTest(
  "from kube-proxy to the Pod of one overlay, of another, and back: no connection fails, and the dashboard shows it",
  NEEDS,
  async () => {
    await using built = await BundleFolder.create();
    await using kapi = await Kapi.start();
    const [a, b, c] = WEB_PODS;
    for (const object of [NODE_OBJECT, WEB_SERVICE, webSlice([a, b])]) await kapi.put(raw(object));
    await kapi.fill(20, 4);
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    using _gateway = await LabGateway.open(netns, kapi.port);
    const ofKubeProxy = nftTables("kube-proxy", [
      { vip: WEB_CLUSTER_IP, port: WEB_PORT, protocol: "tcp", to: `${a}:${WEB_TARGET_PORT}` },
    ]);
    await netns.run(["nft", "-f", "-"], { stdin: ofKubeProxy });
    const loop = await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT });
    await loop.answered(20);
    const node = { web, kapi, loop, bundle: built.folder };
    const series = {
      ...seriesOf(await runPod(node, IPTABLES, [b, c]), "node-a"),
      ...seriesOf(await runPod(node, NFTABLES, [a, b]), "node-b"),
    };
    const tables = async (): Promise<string> => (await netns.run(["nft", "list", "tables"])).trim();
    assert(!(await tables()).includes("kube-proxy"), "what kube-proxy left is gone");
    // The way back: kube-proxy writes its tables, then another process removes ours.
    await netns.run(["nft", "-f", "-"], { stdin: ofKubeProxy });
    await runInImage(node, ["cleanup", "--of=kproxy"]);
    assert(!(await tables()).includes(" kproxy"), await tables());
    await loop.answered(20);
    const { byServer } = await loop.stopUnbroken();
    assertEquals(Object.keys(byServer).sort(), [a, b, c].map((ip) => `${ip}:${WEB_TARGET_PORT}`));
    assertEquals(await quietQueries(series), QUIET_PANELS);
  },
);
