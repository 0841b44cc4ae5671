/**
 * How clients stay with one endpoint, in real time.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { service } from "../flows/objects.ts";
import type { LabHost } from "../support/lab_host.ts";
import { IPTABLES, LAB_MODES } from "../support/lab_mode.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";

const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };
const SECOND_MS = 1_000;
/** How long a client stays. Whoever must not be late has some seconds for it, because 20 requests take their time on a busy machine. */
const TIMEOUT_SECONDS = 5;
/** Clients of one test: that all of them choose the same of two endpoints again by chance happens once in a million times. */
const CLIENTS = Array.from({ length: 20 }, (_, index) => `10.244.0.${100 + index}`);

function stickyService(timeoutSeconds: number) {
  return service("shop/web", {
    type: "NodePort",
    clusterIP: WEB_CLUSTER_IP,
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds } },
    ports: [`http:${WEB_PORT}:${WEB_NODE_PORT}`],
  });
}

/** Who answers each client. */
async function ask(host: LabHost, clients: readonly string[], to: SocketAddress): Promise<string[]> {
  const servers: string[] = [];
  for (const source of clients) {
    const [result] = await host.probe({ protocol: "tcp", source, to });
    if (result?.kind !== "answer") throw new Error(`${source}: ${JSON.stringify(result)}`);
    servers.push(result.answer.server);
  }
  return servers;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

for (const mode of LAB_MODES) {
  e2eTest(`affinity keeps a client at its endpoint, as long as it comes back in time, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async (t) => {
    await using web = await WebLab.create(mode);
    const { manifests, lab } = web;
    await manifests.replace("web.json", [stickyService(TIMEOUT_SECONDS)]);
    await using kproxy = await web.start();
    const pod = await lab.host(CLIENTS[0]!, "cni0");
    await lab.lend(pod, CLIENTS.slice(1), "cni0");
    const first = await ask(pod, CLIENTS, CLUSTER);

    await t.step("clients are spread", () => {
      assertEquals([...new Set(first)].sort(), WEB_PODS.slice(0, 2));
    });
    await t.step("each one stays", async () => {
      for (let round = 0; round < 3; round++) assertEquals(await ask(pod, CLIENTS, CLUSTER), first);
    });
    await t.step("also through the node port", async () => {
      assertEquals(await ask(pod, CLIENTS, NODE_PORT), first);
    });
    await t.step("every connection starts the time afresh", async () => {
      for (let round = 0; round < 3; round++) {
        await sleep(2 * SECOND_MS);
        assertEquals(await ask(pod, CLIENTS, CLUSTER), first);
      }
    });
    await t.step("after the time they choose again", async () => {
      await sleep((TIMEOUT_SECONDS + 1.1) * SECOND_MS);
      assert(JSON.stringify(await ask(pod, CLIENTS, CLUSTER)) !== JSON.stringify(first));
    });
    await t.step("a longer time is in force at once, or from the next connection on", async () => {
      const [a] = await ask(pod, [CLIENTS[0]!], CLUSTER);
      await kproxy.change(() => manifests.overwrite("web.json", [stickyService(60)]), "shop/web");
      // A set of nft keeps the time that each client was written with.
      if (mode !== IPTABLES) assertEquals(await ask(pod, [CLIENTS[0]!], CLUSTER), [a]);
      await sleep((TIMEOUT_SECONDS + 0.5) * SECOND_MS);
      assertEquals(await ask(pod, [CLIENTS[0]!], CLUSTER), [a]);
    });
    await t.step("no client stays with an endpoint that is gone", async () => {
      const others = WEB_PODS.slice(1);
      await kproxy.change(() => manifests.overwrite("endpoints.json", [webSlice(others)]), "shop/web");
      const now = await ask(pod, CLIENTS, CLUSTER);
      assertEquals([...new Set(now)].sort(), others);
      assertEquals(await ask(pod, CLIENTS, CLUSTER), now);
    });
  });
}
