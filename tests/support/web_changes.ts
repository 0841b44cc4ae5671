/**
 * Edits of manifests while clients connect: every connection must succeed at every moment, and an edit must be in force
 * when kproxy reports it. The stories run in any mode, each on a new lab.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import type { ConnectLoop } from "./connect_loop.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  type WebLab,
  webSlice,
} from "./lab_web.ts";
import { NODE_OBJECT } from "./node_lab.ts";

const [A, B, C] = WEB_PODS;
export const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
export const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };

/** Limit of a single request, which is answered or refused: both come at once, except on a busy machine. */
const ANSWER_MS = 30_000;

/** Servers that answer from now on. */
export async function answering(loop: ConnectLoop): Promise<string[]> {
  // Requests from before the change may still be under way, and at the end answers of a slow server.
  const everythingUnderWay = () => loop.resting(() => Promise.resolve());
  await everythingUnderWay();
  const before = (await loop.report()).byServer;
  await loop.answeredFor(500);
  await everythingUnderWay();
  const after = (await loop.report()).byServer;
  return Object.keys(after).filter((server) => after[server] !== before[server]).sort();
}

/** Names of these pods in the results of `answering`. */
export function servers(pods: readonly string[]): string[] {
  return pods.map((ip) => `${ip}:${WEB_TARGET_PORT}`).sort();
}

/** Endpoints come and go while clients connect, and no connection fails. */
export async function endpointsComeAndGo(t: Deno.TestContext, web: WebLab): Promise<void> {
  await using kproxy = await web.start();
  const { manifests } = web;
  const loops = [await web.loop(web.pod, CLUSTER), await web.loop(web.client, NODE_PORT)];
  const answers = async () => {
    const each = await Promise.all(loops.map(answering));
    return web.mode.takesTurns === true ? each.map(() => [...new Set(each.flat())].sort()) : each;
  };
  const both = (pods: readonly string[]) => loops.map(() => servers(pods));
  const edits: readonly [name: string, pods: readonly string[], edit: () => Promise<void>][] = [
    [
      "one more, by renaming a new file over the old one",
      [A, B, C],
      () => manifests.replace("endpoints.json", [webSlice([A, B, C])]),
    ],
    [
      "one less, by writing over the file",
      [B, C],
      () => manifests.overwrite("endpoints.json", [webSlice([B, C])]),
    ],
    ["all replaced at once", [A], () => manifests.overwrite("endpoints.json", [webSlice([A])])],
    ["a second slice in a second file", [A, C], () =>
      manifests.replace("more.json", [
        slice("shop/web.2", [`http:${WEB_TARGET_PORT}`], [`${C}@node-b`]),
      ])],
    ["the first file gone", [C], () => manifests.remove("endpoints.json")],
    ["draining, and nothing else is there", [C], () =>
      manifests.replace("more.json", [
        slice("shop/web.2", [`http:${WEB_TARGET_PORT}`], [`${C}@node-b draining`]),
      ])],
    [
      "a ready one beside the draining one",
      [B],
      () => manifests.replace("endpoints.json", [webSlice([B])]),
    ],
  ];
  assertEquals(await answers(), both([A, B]));
  for (const [name, pods, edit] of edits) {
    await t.step(name, async () => {
      await kproxy.change(edit, "shop/web");
      assertEquals(await answers(), both(pods));
    });
  }
  for (const loop of loops) await loop.stopUnbroken();
}

/** Services come, change and go, and other Services are unaffected. */
export async function servicesComeAndGo(t: Deno.TestContext, web: WebLab): Promise<void> {
  await using kproxy = await web.start();
  const { manifests, pod, mode } = web;
  const loop = await web.loop(web.client, NODE_PORT);
  const api = { ip: "10.96.0.2", port: 8000 };
  const objects = (ports: string) => [
    service("shop/api", { clusterIP: api.ip, ports: [ports] }),
    slice("shop/api.1", ["rest:8080"], [`${A}@node-a`]),
  ];
  const kindOf = async (port: number): Promise<string> => {
    const [result] = await pod.probe({ protocol: "tcp", to: { ip: api.ip, port }, timeoutMs: ANSWER_MS });
    return result?.kind === "answer" ? result.answer.server : result?.kind ?? "";
  };

  await t.step("added", async () => {
    assertEquals(await kindOf(8000), "refused"); // Rejected by the world: it has no such server.
    await kproxy.change(() => manifests.replace("api.json", objects("rest:8000")), "shop/api");
    assertEquals(await kindOf(8000), A);
  });
  await t.step("its port moved", async () => {
    await kproxy.change(() => manifests.overwrite("api.json", objects("rest:9000")), "shop/api");
    assertEquals([await kindOf(9000), await kindOf(8000)], [A, "refused"]);
  });
  await t.step("its endpoints gone: refused at once", async () => {
    await kproxy.change(
      () => manifests.overwrite("api.json", objects("rest:9000").slice(0, 1)),
      "shop/api",
    );
    assertEquals(await kindOf(9000), "refused");
    const refusal = mode.refusal("shop/api:rest", api.ip, 9000);
    if (typeof refusal === "string") assertStringIncludes(await web.rules(), refusal);
    else assertMatch(await web.rules(), refusal);
  });
  await t.step("deleted: no trace of it is left", async () => {
    await kproxy.change(() => manifests.remove("api.json"), "shop/api");
    const lines = (await web.rules()).split("\n");
    assertEquals(lines.filter((line) => line.includes("shop/api") || line.includes(api.ip)), []);
    const chains = lines.filter((line) => /^:KUBE-S(VC|EP)-/.test(line));
    assertEquals(chains.length, mode.name === "iptables" ? 3 : 0);
  });
  await t.step("left to another proxy by its label", async () => {
    const [api, ...rest] = objects("rest:8000");
    const labelled = (name: string) => ({
      ...api,
      metadata: { namespace: "shop", name: "api", labels: { [name]: "" } },
    });
    await kproxy.change(() => manifests.replace("api.json", [labelled("mine"), ...rest]), "shop/api");
    assertEquals(await kindOf(8000), A);
    await kproxy.change(
      () => manifests.replace("api.json", [labelled("service.kubernetes.io/service-proxy-name"), ...rest]),
      "shop/api",
    );
    assertEquals(await kindOf(8000), "refused");
    assert(!(await web.rules()).includes("shop/api"));
  });
  await loop.stopUnbroken();
}

/** The node's zone decides which hints apply, also when it changes. */
export async function zoneDecides(web: WebLab): Promise<void> {
  const { manifests } = web;
  const hinted = slice("shop/web.1", [`http:${WEB_TARGET_PORT}`], [`${A} zones=z1`, `${B} zones=z2`]);
  await manifests.replace("endpoints.json", [hinted]);
  await using kproxy = await web.start();
  const loop = await web.loop(web.pod, CLUSTER);
  assertEquals(await answering(loop), servers([A]));
  for (const [zone, pods] of [["z2", [B]], ["z3", [A, B]], ["z1", [A]]] as const) {
    const from = kproxy.lines.length;
    const metadata = { name: "node-a", labels: { "topology.kubernetes.io/zone": zone } };
    await manifests.replace("node.json", [{ ...NODE_OBJECT, metadata }]);
    await kproxy.until(
      `zone ${zone}`,
      (lines) => lines.some((line) => line.msg === "Synced rules" && line.family === "IPv4"),
      from,
    );
    assertEquals(await answering(loop), servers(pods));
  }
  await loop.stopUnbroken();
}
