/**
 * The image of `deploy/Dockerfile` in a real container runtime, as the Pods of `deploy/kubernetes`: what `deno task try-image` builds and
 * runs. The API server and the packets are real, too; the kubelet is not.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { kustomize, podOf } from "../deploy/kustomization.ts";
import { assertWithin } from "../support/busyness.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
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
import { raw } from "../support/raw_objects.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { assertProbes, configIn, withPodFolder } from "../support/pod_folder.ts";
import { podmanExec, podmanRemove, podmanRun } from "../support/podman.ts";
import { e2eTest, need, program } from "../support/skip.ts";

/** Where podman has it, such as `localhost/kproxy:try`. */
const IMAGE = Deno.env.get("KPROXY_IMAGE") ?? "";
const NEEDS = [
  ...WEB_NEEDS,
  program("kubectl"),
  ...KAPI,
  ...NFTABLES.needs,
  program("curl"),
  need(
    "the image",
    "podman and its image by the name KPROXY_IMAGE (deno task try-image)",
    () => IMAGE === "" ? "no such variable" : undefined,
  ),
];
/** CAP_NET_ADMIN and CAP_NET_RAW alone, no way to get more, a filter of system calls. */
const RIGHTS = {
  ...{ CapPrm: "0000000000003000", CapEff: "0000000000003000", CapBnd: "0000000000003000" },
  ...{ CapInh: "0000000000000000", NoNewPrivs: "1", Seccomp: "2" },
};

/** The node's lab and the API server. */
interface Node {
  readonly web: WebLab;
  readonly kapi: Kapi;
}

/** Runs both containers of an overlay; `work` gets the second one, with podman's name for it. */
async function withPod(
  { web, kapi }: Node,
  mode: LabMode,
  work: (kproxy: KproxyProcess, name: string, restart: () => Promise<KproxyProcess>) => Promise<void>,
): Promise<void> {
  const objects = await kustomize(`${ROOT}/deploy/kubernetes/overlays/${mode.name}`);
  const pod = podOf(objects);
  const { netns } = web.lab.node;
  const name = `kproxy-try-${Deno.pid}-${mode.name}`;
  await withPodFolder(configIn(objects, mode.name), kapi, async (folder) => {
    const wanted = { pod, netns, image: IMAGE, name, host: { folder, bundle: "", nodeName: "node-a" } };
    try {
      for (const container of pod.initContainers ?? []) {
        await using init = KproxyProcess.spawn({
          netns: null,
          args: [],
          command: await podmanRun({ ...wanted, container }),
        });
        assertEquals((await init.ended()).code, 0, init.log);
      }
      const [container] = pod.containers;
      assert(container !== undefined);
      const command = await podmanRun({ ...wanted, container });
      const start = (): Promise<KproxyProcess> => KproxyProcess.start({ netns: null, args: [], command });
      await using kproxy = await start();
      await assertProbes(pod, netns);
      await work(kproxy, name, start);
    } finally {
      await podmanRemove(name);
    }
  });
}

/** Process 1 of the container, which is kproxy, has what the manifest says. */
async function assertRights(name: string): Promise<void> {
  const status = await podmanExec(name, ["cat", "/proc/1/status"]);
  const told = (key: string): string => new RegExp(`^${key}:\\s+(\\w+)$`, "m").exec(status)?.[1] ?? "";
  assertEquals(Object.fromEntries(Object.keys(RIGHTS).map((key) => [key, told(key)])), RIGHTS);
  assertMatch(await podmanExec(name, ["cat", "/proc/1/mounts"]), /^overlay \/ overlay ro,|^\S+ \/ \S+ ro,/m);
}

/** What the documentation has people ask a running one for, in its container. */
async function assertAnswers(name: string): Promise<void> {
  assertMatch(await podmanExec(name, ["kproxy", "status"]), /ready/i);
  await podmanExec(name, ["kproxy", "check"]);
  assertMatch(
    await podmanExec(name, ["kproxy", "trace", "10.244.0.5", "shop/web"]),
    new RegExp(WEB_TARGET_PORT.toString()),
  );
  await podmanExec(name, ["kproxy", "doctor"]);
}

/** Without what the client's packets are counted by. */
async function rulesOf({ lab }: WebLab, mode: LabMode): Promise<string> {
  return (await mode.rules(lab.node.netns)).replaceAll(/ packets \d+ bytes \d+/g, "");
}

for (const mode of [IPTABLES, NFTABLES]) {
  e2eTest(
    `the image serves as the Pod of the overlay ${mode.name}: probes, questions, an end, a new start`,
    NEEDS,
    async () => {
      await using kapi = await Kapi.start();
      const [a, b, c] = WEB_PODS;
      for (const object of [NODE_OBJECT, WEB_SERVICE, webSlice([a, b])]) await kapi.put(raw(object));
      await using web = await WebLab.create();
      using _gateway = await LabGateway.open(web.lab.node.netns, kapi.port);
      const to = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
      await withPod({ web, kapi }, mode, async (kproxy, name, restart) => {
        await assertRights(name);
        const loop = await ConnectLoop.start(web.pod, to);
        await loop.answered(20);
        await kproxy.change(() => kapi.put(raw(webSlice([b, c]))), "shop/web");
        await loop.answered(20);
        await assertAnswers(name);
        const before = await rulesOf(web, mode);
        const from = performance.now();
        assertEquals((await kproxy.stop()).code, 0);
        await assertWithin(performance.now() - from, 15_000, "an end in order");
        assertEquals(await rulesOf(web, mode), before, "rules stay in force");
        await loop.answered(20);
        {
          await using again = await restart();
          await again.change(() => kapi.put(raw(webSlice([a, c]))), "shop/web");
          await loop.answered(20);
          assertEquals(kproxy.lines.filter(({ msg }) => /read-only|permission denied/i.test(msg)), []);
          assertEquals((await again.stop()).code, 0);
        }
        const { byServer } = await loop.stopUnbroken();
        assertEquals(Object.keys(byServer).sort(), [a, b, c].map((ip) => `${ip}:${WEB_TARGET_PORT}`));
      });
    },
  );
}
