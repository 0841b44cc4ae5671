/**
 * Real packets by objects of kapi: flow cases, and what a server that stops does to those who connect (nothing).
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { FlowCase } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { type ApiJson, service, slice } from "../flows/objects.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { saveTable } from "../support/lab_rules.ts";
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
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";
import { e2eTest } from "../support/skip.ts";
import { until } from "../support/until.ts";

const NEEDS = [...WEB_NEEDS, ...KAPI];

const CASES = [
  "a cluster IP spreads evenly over its endpoints",
  "a cluster IP without endpoints refuses all clients",
  "a node port answers on every address of the node and hides the client",
  "under external policy Local a node port keeps the client and to the node's endpoints",
  "an external IP leads to the endpoints, masqueraded",
  "source ranges let their clients in and drop all others",
  "a load-balancer IP in mode Proxy is none of our business",
  "a draining endpoint takes traffic while none is ready",
  "zone hints keep traffic in the node's zone",
  "UDP: node port, external IP, load-balancer IP, hairpin and refusal",
  "a dual-stack Service has its own addresses and endpoints in each family",
].map((name): FlowCase => {
  const found = FLOW_CASES.find((one) => one.name === name);
  if (found === undefined) throw new TypeError(`There is no flow case "${name}"`);
  return found;
});

function startKproxy(lab: NodeLab, kapi: Kapi): Promise<KproxyProcess> {
  const args = [...WEB_ARGS, `--kubeconfig=${kapi.kubeconfig}`];
  return KproxyProcess.start({ netns: lab.node.netns, args });
}

/** Written after all else: each resource has a watch of its own, and their rules take both, in both families. */
function markers(index: number): ApiJson[] {
  const number = index + 1;
  const clusterIPs = [`10.111.0.${number}`, `fd00:10:111::${number}`];
  return [
    service(`kp/marker-${index}`, {
      clusterIP: clusterIPs[0]!,
      clusterIPs,
      ipFamilies: ["IPv4", "IPv6"],
      ports: [":1"],
    }),
    slice(`kp/marker-${index}.4`, [":1"], [`10.111.1.${number}`]),
    slice(`kp/marker-${index}.6`, [":1"], [`fd00:10:111:1::${number}`]),
  ];
}

async function untilMarked({ node }: NodeLab, index: number): Promise<void> {
  for (
    const [tool, to] of [
      ["iptables", `10.111.1.${index + 1}:1`],
      ["ip6tables", `[fd00:10:111:1::${index + 1}]:1`],
    ] as const
  ) {
    const isMarked = async (): Promise<boolean> =>
      (await saveTable(node.netns, tool, "nat")).some((line) => line.endsWith(` ${to}`));
    await until(isMarked, `${to} is in a rule`);
  }
}

e2eTest("flow cases with real packets, objects from an API server", NEEDS, async (t) => {
  await using kapi = await Kapi.start();
  await using lab = await NodeLab.create();
  using _gateway = await LabGateway.open(lab.node.netns, kapi.port);
  await kapi.put(raw(NODE_OBJECT));
  await using _kproxy = await startKproxy(lab, kapi);
  for (const [index, flowCase] of CASES.entries()) {
    await t.step(flowCase.name, async () => {
      for (const object of [...flowCase.objects, ...markers(index)]) await kapi.put(raw(object));
      await untilMarked(lab, index);
      assertEquals(await new LabFlowCase(lab, flowCase).run(() => undefined), []);
      for (const object of flowCase.objects) await kapi.remove(raw(object));
    });
  }
});

e2eTest("an API server that stops stops no traffic, and nothing is lost when it is back", NEEDS, async () => {
  await using kapi = await Kapi.start();
  await using web = await WebLab.create();
  const { lab } = web;
  using _gateway = await LabGateway.open(lab.node.netns, kapi.port);
  const [a, b, c] = WEB_PODS;
  for (const object of [NODE_OBJECT, WEB_SERVICE, webSlice([a, b])]) await kapi.put(raw(object));
  await using kproxy = await startKproxy(lab, kapi);
  const loops = [
    await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT }),
    await ConnectLoop.start(web.client, { ip: "192.0.2.10", port: WEB_NODE_PORT }),
  ];
  await loops[0]!.answered(50);
  await kapi.pause();
  await loops[0]!.answered(300);
  await kapi.resume();
  await kproxy.change(() => kapi.put(raw(webSlice([c]))), "shop/web");
  await loops[0]!.answered(100);
  // Changed without a watch: the server forgets how it came to that.
  await kapi.pause();
  await loops[0]!.answered(50);
  const from = kproxy.lines.length;
  await kapi.resume();
  await kapi.put(raw(webSlice([b])));
  await kapi.compact();
  await kproxy.until(
    "the change made before the watches were back",
    (lines) => lines.some(({ msg, family }) => msg === "Synced rules" && family === "IPv4"),
    from,
  );
  for (const loop of loops) {
    const before = (await loop.report()).byServer;
    await loop.answered(100);
    const { byServer } = await loop.stopUnbroken();
    const now = Object.keys(byServer).filter((server) => (byServer[server]! - (before[server] ?? 0)) > 5);
    assertEquals(now, [`${b}:${WEB_TARGET_PORT}`]);
    assertEquals(Object.keys(byServer).sort(), [a, b, c].map((ip) => `${ip}:${WEB_TARGET_PORT}`));
  }
});
