/**
 * A node that comes up while no API server answers: it serves what it knew before, and then what the server says, without a gap.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { assertWithin } from "../support/busyness.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { httpGet, metricsOf } from "../support/http_get.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { saveAll } from "../support/lab_rules.ts";
import {
  WEB_ARGS,
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WEB_SERVICE,
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { raw } from "../support/raw_objects.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import { tempFolder } from "../support/temp_files.ts";

const NEEDS = [...WEB_NEEDS, ...KAPI, program("curl")];
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };
const MOVED_IP = "10.96.0.2";
const GONE_IP = "10.96.0.3";

const [A, B, C] = WEB_PODS;
const MOVED = service("shop/moved", { clusterIP: MOVED_IP, ports: ["http:80"] });
const GONE = service("shop/gone", { clusterIP: GONE_IP, ports: ["http:80"] });
const GONE_SLICE = slice("shop/gone.1", [`http:${WEB_TARGET_PORT}`], [`${A}@node-a`]);

function movedSlice(pod: string): ApiJson {
  return slice("shop/moved.1", [`http:${WEB_TARGET_PORT}`], [`${pod}@node-a`]);
}

/** What is left in the kernel after the power came back: nothing. */
async function loseRules(node: Netns): Promise<void> {
  for (const tool of ["iptables", "ip6tables"]) {
    for (const table of ["nat", "filter", "mangle"]) {
      await node.run([tool, "-t", table, "-F"]);
      await node.run([tool, "-t", table, "-X"]);
    }
  }
  await node.run(["conntrack", "-F"]);
  assertEquals((await saveAll(node)).includes("KUBE-"), false);
}

/** The values of `kproxy_snapshot_*`, by the rest of the name. */
async function snapshotMetrics(node: Netns): Promise<Record<string, number>> {
  const text = await metricsOf(node);
  return Object.fromEntries(
    [...text.matchAll(/^kproxy_snapshot_(\w+) (\S+)$/gm)].map(([, name, value]) => [name, Number(value)]),
  );
}

/** Who answers there. A host has one loop at a time: this is another one than the tests' own. */
async function serverOf({ lab }: WebLab, ip: string): Promise<string[]> {
  const loop = await ConnectLoop.start(await lab.host("10.244.0.6", "cni0"), { ip, port: 80 });
  await loop.answered(30);
  return Object.keys((await loop.stopUnbroken()).byServer).sort();
}

/** A node with an API server, and where kproxy keeps its snapshot there. */
interface SnapshotNode {
  readonly web: WebLab;
  readonly kapi: Kapi;
  readonly snapshot: string;
}

function startOn({ web, kapi, snapshot }: SnapshotNode): Promise<KproxyProcess> {
  return KproxyProcess.start({
    netns: web.lab.node.netns,
    args: [...WEB_ARGS, `--kubeconfig=${kapi.kubeconfig}`, `--snapshot=${snapshot}`],
  });
}

/** A life that the server answers; it leaves a snapshot, and ends as by a power cut. */
async function rememberOn(node: SnapshotNode): Promise<void> {
  const { web: { lab: { node: { netns } } }, snapshot } = node;
  await using kproxy = await startOn(node);
  const ready = await httpGet(netns, "http://127.0.0.1:10256/readyz");
  assertEquals([ready.status, ready.body.includes("snapshot")], [200, false]);
  // It gets no signal that the power will fail.
  await kproxy.untilMessage("Snapshot written");
  const { in_use, size_bytes, timestamp_seconds } = await snapshotMetrics(netns);
  assertEquals([in_use, size_bytes], [0, (await Deno.stat(snapshot)).size]);
  assert(Math.abs(timestamp_seconds! - Date.now() / 1000) < 60);
  await kproxy.stop("SIGKILL");
}

/** While the server is silent, the node reports it on request, and serves. */
async function assertServesSnapshot(netns: Netns): Promise<void> {
  const { status, body } = await httpGet(netns, "http://127.0.0.1:10256/readyz");
  const { ready, reasons, snapshot: shown, watches } = JSON.parse(body);
  assertEquals([status, ready], [503, false]);
  // A silent server is a problem of a watch as soon as the first question to it has waited too long.
  for (const watch of Object.values<object>(watches)) {
    assertEquals(watch, { problem: "Cannot reach the API server" });
  }
  assertEquals(reasons, [`services, endpointslices: serving from the snapshot of ${shown.time}`]);
  assert(shown.ageSeconds >= 0 && shown.ageSeconds < 600, body);
  assertEquals((await httpGet(netns, "http://127.0.0.1:10256/healthz")).status, 200);
  assertEquals((await snapshotMetrics(netns))["in_use"], 1);
}

/** The server comes back with another state than the one remembered, which takes its place. */
async function assertFollowsServer(kproxy: KproxyProcess, { web, kapi }: SnapshotNode): Promise<void> {
  const { netns } = web.lab.node;
  const from = kproxy.lines.length;
  await kapi.resume();
  await kapi.remove(raw(GONE));
  await kapi.remove(raw(GONE_SLICE));
  await kapi.put(raw(movedSlice(B)));
  await kproxy.untilMessage("The lists of the API server have replaced the snapshot", from);
  await kproxy.until(
    "the sync without the deleted Service",
    (lines) =>
      lines.some(({ msg, services }) => msg === "Synced rules" && String(services).includes("shop/gone")),
    from,
  );
  await kproxy.until(
    "the sync of the moved Service",
    (lines) =>
      lines.some(({ msg, services }) => msg === "Synced rules" && String(services).includes("shop/moved")),
    from,
  );
  assertEquals(await serverOf(web, MOVED_IP), [`${B}:${WEB_TARGET_PORT}`]);
  const rules = await saveAll(netns);
  assertEquals([rules.includes(GONE_IP), rules.includes(MOVED_IP)], [false, true]);
}

e2eTest(
  "a node that lost its rules serves before the API server answers, and then without a gap what it says",
  NEEDS,
  async () => {
    await using kapi = await Kapi.start();
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    using _gateway = await LabGateway.open(netns, kapi.port);
    await using temporary = await tempFolder();
    const folder = temporary.path;
    const snapshot = `${folder}/snapshot`;
    const node = { web, kapi, snapshot };
    for (const object of [NODE_OBJECT, WEB_SERVICE, webSlice([A, B])]) await kapi.put(raw(object));
    for (const object of [MOVED, movedSlice(A), GONE, GONE_SLICE]) await kapi.put(raw(object));
    await rememberOn(node);
    await kapi.pause();
    await loseRules(netns);
    const before = performance.now();
    await using kproxy = await startOn(node);
    await assertWithin(performance.now() - before, 40_000, "a start from the snapshot");
    assertMatch(kproxy.log, /not answered yet, serving from the snapshot/);
    const loops = [
      await ConnectLoop.start(web.pod, CLUSTER),
      await ConnectLoop.start(web.client, NODE_PORT),
    ];
    await loops[0]!.answered(50);
    assertEquals(await serverOf(web, MOVED_IP), [`${A}:${WEB_TARGET_PORT}`]);
    assertEquals(await serverOf(web, GONE_IP), [`${A}:${WEB_TARGET_PORT}`]);
    await assertServesSnapshot(netns);
    await assertFollowsServer(kproxy, node);
    for (const loop of loops) {
      await loop.answered(50);
      const { byServer } = await loop.stopUnbroken();
      assertEquals(
        Object.keys(byServer).sort(),
        [A, B].map((ip) => `${ip}:${WEB_TARGET_PORT}`),
      );
    }
    assertEquals((await httpGet(netns, "http://127.0.0.1:10256/readyz")).status, 200);
    assertEquals((await snapshotMetrics(netns))["in_use"], 0);

    // It goes on to follow the server, and leaves what it knows at the end.
    await kproxy.change(() => kapi.put(raw(webSlice([C]))), "shop/web");
    assertEquals((await kproxy.stop("SIGTERM")).code, 0);
    const left = await Deno.readTextFile(snapshot);
    assertEquals([left.includes("shop/gone") || left.includes(GONE_IP), left.includes(C)], [false, true]);
  },
);

e2eTest("a snapshot that cannot be written or read stops nothing", NEEDS, async () => {
  await using kapi = await Kapi.start();
  await using web = await WebLab.create();
  const { netns } = web.lab.node;
  using _gateway = await LabGateway.open(netns, kapi.port);
  const folder = await Deno.makeTempDir({ prefix: "kproxy-snapshot-" });
  try {
    for (const object of [NODE_OBJECT, WEB_SERVICE, webSlice([A])]) await kapi.put(raw(object));
    const args = [...WEB_ARGS, `--kubeconfig=${kapi.kubeconfig}`, `--snapshot=${folder}/snapshot`];
    await kapi.pause();
    await Deno.writeTextFile(`${folder}/snapshot`, "something else\n");
    await using kproxy = KproxyProcess.spawn({ netns, args });
    await kproxy.untilMessage("The API server has not answered yet, the snapshot is of no use");
    assertMatch(kproxy.log, /the file is no snapshot of kproxy/);
    await Deno.remove(folder, { recursive: true });
    await kapi.resume();
    await kproxy.untilServing();
    assertEquals(await serverOf(web, WEB_CLUSTER_IP), [`${A}:${WEB_TARGET_PORT}`]);
    assertEquals((await kproxy.stop("SIGTERM")).code, 0);
    assertMatch(kproxy.log, /Cannot write the snapshot, going on without.*No such file or directory/);
  } finally {
    await Deno.remove(folder, { recursive: true }).catch((error: unknown) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    });
  }
});
