/**
 * Edits of manifests while clients connect: every connection of every moment must succeed, and what was edited must be in force
 * when kproxy says so.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { IPTABLES, LAB_MODES } from "../support/lab_mode.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest } from "../support/skip.ts";

const [A, B, C] = WEB_PODS;
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };

/** Which servers answer from now on. */
async function answering(loop: ConnectLoop): Promise<string[]> {
  // What began before the change may still be on its way.
  await new Promise((resolve) => setTimeout(resolve, 50));
  const before = (await loop.report()).byServer;
  await loop.answered(60);
  const after = (await loop.report()).byServer;
  return Object.keys(after).filter((server) => after[server] !== before[server]).sort();
}

function servers(pods: readonly string[]): string[] {
  return pods.map((ip) => `${ip}:${WEB_TARGET_PORT}`).sort();
}

for (const mode of LAB_MODES) {
  e2eTest(`endpoints come and go while clients connect, and no connection fails, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async (t) => {
    await using web = await WebLab.create(mode);
    await using kproxy = await web.start();
    const { manifests } = web;
    const loops = [await ConnectLoop.start(web.pod, CLUSTER), await ConnectLoop.start(web.client, NODE_PORT)];
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
    for (const loop of loops) assertEquals(await answering(loop), servers([A, B]));
    for (const [name, pods, edit] of edits) {
      await t.step(name, async () => {
        await kproxy.change(edit, "shop/web");
        for (const loop of loops) assertEquals(await answering(loop), servers(pods));
      });
    }
    for (const loop of loops) await loop.stopUnbroken();
  });
}

for (const mode of LAB_MODES) {
  e2eTest(`Services come, change and go, and the others notice nothing, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async (t) => {
    await using web = await WebLab.create(mode);
    await using kproxy = await web.start();
    const { manifests, pod } = web;
    const loop = await ConnectLoop.start(web.client, NODE_PORT);
    const api = { ip: "10.96.0.2", port: 8000 };
    const objects = (ports: string) => [
      service("shop/api", { clusterIP: api.ip, ports: [ports] }),
      slice("shop/api.1", ["rest:8080"], [`${A}@node-a`]),
    ];
    const kindOf = async (port: number): Promise<string> => {
      const [result] = await pod.probe({ protocol: "tcp", to: { ip: api.ip, port } });
      return result?.kind === "answer" ? result.answer.server : result?.kind ?? "";
    };

    await t.step("added", async () => {
      assertEquals(await kindOf(8000), "refused"); // By the world: it has no such server.
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
      assertMatch(await web.rules(), /shop\/api:rest has no|10\.96\.0\.2 \. tcp \. 9000 .*goto reject-chain/);
    });
    await t.step("deleted: no trace of it is left", async () => {
      await kproxy.change(() => manifests.remove("api.json"), "shop/api");
      const lines = (await web.rules()).split("\n");
      assertEquals(lines.filter((line) => line.includes("shop/api") || line.includes(api.ip)), []);
      assertEquals(lines.filter((line) => /^:KUBE-S(VC|EP)-/.test(line)).length, mode === IPTABLES ? 3 : 0);
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
  });
}

e2eTest("a manifest that is broken leaves the last good one in force", WEB_NEEDS, async () => {
  await using web = await WebLab.create();
  await using kproxy = await web.start();
  const { manifests } = web;
  const loop = await ConnectLoop.start(web.pod, CLUSTER);
  const broken: readonly [text: string, says: string][] = [
    ["kind: [", "cannot be parsed"],
    [JSON.stringify({ ...webSlice([C]), addressType: "IPv7" }), "addressType: must be"],
    [JSON.stringify(webSlice(["10.244.0.999"])), "10.244.0.999"],
  ];
  for (const [text, says] of broken) {
    const from = kproxy.lines.length;
    await manifests.replaceText("endpoints.json", text);
    await kproxy.until(
      `an error about ${text}`,
      (lines) => lines.some(({ msg, err }) => msg === "Object refused" && String(err).includes(says)),
      from,
    );
    assertStringIncludes(JSON.stringify(kproxy.lines.slice(from)), "/endpoints.json:1 (document 1)");
    assertEquals(await answering(loop), servers([A, B]));
  }
  await kproxy.change(() => manifests.overwrite("endpoints.json", [webSlice([C])]), "shop/web");
  assertEquals(await answering(loop), servers([C]));
  await loop.stopUnbroken();
});

for (const mode of LAB_MODES) {
  e2eTest(`the node's zone decides which hints count, also when it changes, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async () => {
    await using web = await WebLab.create(mode);
    const { manifests } = web;
    const hinted = slice("shop/web.1", [`http:${WEB_TARGET_PORT}`], [`${A} zones=z1`, `${B} zones=z2`]);
    await manifests.replace("endpoints.json", [hinted]);
    await using kproxy = await web.start();
    const loop = await ConnectLoop.start(web.pod, CLUSTER);
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
  });
}
