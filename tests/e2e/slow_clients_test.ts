/**
 * Clients that only keep connections open, on every port that kproxy listens on: the node is still served, and each request is answered.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { type ApiJson, service } from "../flows/objects.ts";
import { type Got, httpGet } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_ADDRESSES } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import { SlowClients } from "../support/slow_clients.ts";
import { eventually } from "../support/until.ts";
import { CLUSTER } from "../support/web_changes.ts";

const NODE = NODE_ADDRESSES.eth0[0];
const HEALTH_CHECK_PORT = 30200;
const PORTS = [10256, 10249, HEALTH_CHECK_PORT];
const FROM = ["198.51.100.21", "198.51.100.22", "198.51.100.23"];
/** A health check node port on every address of the node. */
const LOCAL_SERVICE: ApiJson = service("shop/local", {
  type: "LoadBalancer",
  clusterIP: "10.96.0.7",
  ports: ["http:80:30087"],
  externalTrafficPolicy: "Local",
  healthCheckNodePort: HEALTH_CHECK_PORT,
  ingress: [{ ip: "203.0.113.7" }],
});
const [A, B, C] = WEB_PODS;
/** For a change: many times what a quiet machine needs, and so many times what this one needs without those clients. */
const [LIMIT_MS, LIMIT_TIMES] = [10_000, 30];
/** How long a client on a busy machine may have to ask again; each try has 30 s. */
const PATIENCE_MS = 180_000;

/** What curl gets on the node's address, again until there is an answer. */
async function askPatiently(web: WebLab, at: string): Promise<Got> {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    const answer = await httpGet(web.client.netns, `http://${NODE}:${at}`, "--max-time", "30");
    if (answer.status !== 0 || performance.now() > deadline) return answer;
  }
}

async function statuses(web: WebLab): Promise<number[]> {
  const paths = ["10256/healthz", "10249/metrics", `${HEALTH_CHECK_PORT}/`];
  return (await Promise.all(paths.map((path) => askPatiently(web, path)))).map(({ status }) => status);
}

function sumOf(metrics: string, name: string): number {
  const values = [...metrics.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "gm"))];
  return values.reduce((sum, [, value]) => sum + Number(value), 0);
}

/** With a limit that the servers' own number stays below, and with one that they would reach. */
for (const descriptors of [1024, 160]) {
  e2eTest(
    `1,500 connections that wait change nothing for others, with ${descriptors} descriptors`,
    [...WEB_NEEDS, program("prlimit"), program("curl")],
    async () => {
      await using web = await WebLab.create();
      await web.manifests.replace("local.json", [LOCAL_SERVICE]);
      const attackers: Netns[] = [];
      for (const ip of FROM) attackers.push((await web.lab.host(ip)).netns);
      await using kproxy = await KproxyProcess.start({
        ...web.options(["--metrics-bind-address=0.0.0.0:10249", "--profiling", "--healthz-port=10256"]),
        as: {
          prefix: ["prlimit", `--nofile=${descriptors}:${descriptors}`],
          deno: Deno.execPath(),
        },
      });
      // No endpoint of its own: 503 is its answer.
      assertEquals(await statuses(web), [200, 200, 503]);
      const targets = PORTS.map((port) => ({ ip: NODE, port }));
      const changeMs = async (pods: readonly string[]): Promise<number> => {
        const startMs = performance.now();
        await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
        return performance.now() - startMs;
      };
      const usualMs = Math.max(await changeMs([A]), await changeMs([B, C]));
      const limitMs = Math.max(LIMIT_MS, LIMIT_TIMES * usualMs);
      {
        await using _clients = await Attack.start(attackers, targets).catch((cause) => {
          throw new Error(`not all of them came in:\n${kproxy.log}`, { cause });
        });
        for (const pods of [[A, B, C], [B], [A, C]]) {
          const tookMs = await changeMs(pods);
          assert(tookMs < limitMs, `a change took ${tookMs} of ${limitMs} ms:\n${kproxy.log}`);
          assertEquals(await web.answering(CLUSTER), [...pods].sort());
          assertEquals(await statuses(web), [200, 200, 503], kproxy.log);
        }
        await eventually(async () => {
          const { body } = await askPatiently(web, "10249/metrics");
          const open = sumOf(body, "kproxy_server_connections");
          assert(open > 20 && open <= Math.min(256, descriptors - 96), `${open} connections are open`);
          assert(sumOf(body, "kproxy_server_connections_closed_total") > 1_000, body);
        }, { everyMs: 500 });
      }
      assertEquals(await statuses(web), [200, 200, 503], kproxy.log);
      const complaints = kproxy.lines.filter(({ msg }) => /^(Cannot|Sync failed)/.test(msg));
      assertEquals(complaints, [], kproxy.log);
      assertEquals((await kproxy.stop()).code, 0, kproxy.log);
    },
  );
}

/** The clients of all attackers. */
class Attack implements AsyncDisposable {
  private constructor(readonly clients: readonly SlowClients[]) {}

  static async start(
    namespaces: readonly Netns[],
    targets: readonly SocketAddress[],
  ): Promise<Attack> {
    return new Attack(await Promise.all(namespaces.map((netns) => SlowClients.start(netns, targets, 500))));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.clients.map((clients) => clients[Symbol.asyncDispose]()));
  }
}
