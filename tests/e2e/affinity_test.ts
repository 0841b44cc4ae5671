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
import { eventually } from "../support/until.ts";

const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };
const SECOND_MS = 1_000;
/** How long a client stays. A client that was later than that, because the machine stood still, may have gone elsewhere: {@linkcode Clients} */
const TIMEOUT_SECONDS = 5;
/** Another such time, which does not matter. */
const LONG_SECONDS = 300;
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

/** Who answers this client. */
async function askAs(host: LabHost, source: string, to: SocketAddress): Promise<string> {
  const [result] = await host.probe({ protocol: "tcp", source, to });
  if (result?.kind !== "answer") throw new Error(`${source}: ${JSON.stringify(result)}`);
  return result.answer.server;
}

/** Who answers each client. */
async function ask(host: LabHost, clients: readonly string[], to: SocketAddress): Promise<string[]> {
  const servers: string[] = [];
  for (const source of clients) servers.push(await askAs(host, source, to));
  return servers;
}

/** Clients that come back, and where each of them was last. */
class Clients {
  /** By client: who answered, when it asked, and since when it has never been late. */
  readonly #last = new Map<string, { server: string; atMs: number; sinceMs: number }>();

  constructor(readonly host: LabHost) {}

  get servers(): string[] {
    return CLIENTS.map((source) => this.#last.get(source)?.server ?? "");
  }

  /** Each asks once, and is answered by the same server as before if it was not late. Returns how many were not. */
  async comeBack(to: SocketAddress): Promise<number> {
    let judged = 0;
    for (const source of CLIENTS) {
      const last = this.#last.get(source);
      const atMs = performance.now();
      const server = await askAs(this.host, source, to);
      const isInTime = last !== undefined && performance.now() - last.atMs < TIMEOUT_SECONDS * SECOND_MS;
      if (isInTime) assertEquals(server, last.server, `${source} had been there in time`);
      if (isInTime) judged++;
      this.#last.set(source, { server, atMs, sinceMs: isInTime ? last.sinceMs : atMs });
    }
    return judged;
  }

  /** So often until most of them were not late for once. */
  async comeBackInTime(to: SocketAddress): Promise<void> {
    await eventually(async () => assert(await this.comeBack(to) > CLIENTS.length / 2, "all were late"));
  }

  /** How many have come back in time again and again for so long. */
  stayedFor(ms: number): number {
    return [...this.#last.values()].filter(({ atMs, sinceMs }) => atMs - sinceMs > ms).length;
  }
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
    const clients = new Clients(pod);
    await clients.comeBack(CLUSTER);
    const first = clients.servers;

    await t.step("clients are spread", () => {
      assertEquals([...new Set(first)].sort(), WEB_PODS.slice(0, 2));
    });
    await t.step("each one stays", async () => {
      for (let round = 0; round < 3; round++) await clients.comeBackInTime(CLUSTER);
    });
    await t.step("also through the node port", async () => {
      await clients.comeBackInTime(NODE_PORT);
    });
    await t.step("every connection starts the time afresh", async () => {
      for (
        let round = 0;
        clients.stayedFor((TIMEOUT_SECONDS + 1) * SECOND_MS) < CLIENTS.length / 2;
        round++
      ) {
        assert(round < 60, "they were late again and again");
        await sleep(2 * SECOND_MS);
        await clients.comeBack(CLUSTER);
      }
    });
    await t.step("after the time they choose again", async () => {
      const before = clients.servers;
      await sleep((TIMEOUT_SECONDS + 1.1) * SECOND_MS);
      assert(JSON.stringify(await ask(pod, CLIENTS, CLUSTER)) !== JSON.stringify(before));
    });
    await t.step("a longer time is in force at once, or from the next connection on", async () => {
      const client = CLIENTS[0]!;
      const startMs = performance.now();
      let home = await askAs(pod, client, CLUSTER);
      await kproxy.change(() => manifests.overwrite("web.json", [stickyService(LONG_SECONDS)]), "shop/web");
      // A set of nft keeps the time that each client was written with.
      if (mode !== IPTABLES) {
        const next = await askAs(pod, client, CLUSTER);
        if (performance.now() - startMs < TIMEOUT_SECONDS * SECOND_MS) assertEquals(next, home);
        home = next;
      }
      await sleep((TIMEOUT_SECONDS + 0.5) * SECOND_MS);
      assertEquals(await askAs(pod, client, CLUSTER), home);
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
