/**
 * How evenly connections are spread over endpoints, counted over many real ones, also after their number has changed.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { LabHost } from "../support/lab_host.ts";
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
import { e2eTest } from "../support/skip.ts";

/** iptables mode draws once for each endpoint, nftables mode once for all: there a small bias could hide in the number. */
const REQUESTS = { iptables: 900, nftables: 30_000 } as const;
/** Degrees of freedom → a chi-square that an even spread exceeds once in a million times. */
const CHI_SQUARE_LIMIT: Readonly<Record<number, number>> = { 2: 27.6, 3: 30.7 };
const MORE_PODS = [...WEB_PODS, "10.244.0.14", "10.244.0.15"];

/** New TCP connections from fresh ports, each answered; yields how many each pod had. */
async function countAnswers(
  host: LabHost,
  to: { readonly ip: string; readonly port: number },
  requests: number,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const result of await host.probe({ protocol: "tcp", to, count: requests, timeoutMs: 5_000 })) {
    const server = result.kind === "answer" ? result.answer.server : result.kind;
    counts.set(server, (counts.get(server) ?? 0) + 1);
  }
  return counts;
}

function assertEven(counts: ReadonlyMap<string, number>, pods: readonly string[], requests: number): void {
  assertEquals([...counts.keys()].sort(), [...pods].sort());
  const expected = requests / pods.length;
  const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  const limit = CHI_SQUARE_LIMIT[pods.length - 1] ?? 0;
  assert(chiSquare < limit, `${JSON.stringify([...counts])}: chi-square ${chiSquare.toFixed(1)}`);
}

for (const mode of LAB_MODES) {
  const requests = REQUESTS[mode.name];
  const fewer = mode === IPTABLES ? requests : requests / 3;
  const needs = [...WEB_NEEDS, ...mode.needs];
  e2eTest(`${requests} connections are spread evenly, ${mode.name}`, needs, async (t) => {
    await using web = await WebLab.create(mode);
    const { manifests, lab, pod, client } = web;
    for (const ip of MORE_PODS.slice(WEB_PODS.length)) {
      await (await lab.host(ip, "cni0")).call("serve", { protocol: "tcp", ip, port: WEB_TARGET_PORT });
    }
    await manifests.replace("endpoints.json", [webSlice(WEB_PODS)]);
    await using kproxy = await web.start();
    // A connection keeps its port for a minute.
    await pod.netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=1024 65535"]);
    await t.step("over three endpoints", async () => {
      const to = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
      assertEven(await countAnswers(pod, to, requests), WEB_PODS, requests);
    });
    await t.step("over four, after the first was taken out and two were added", async () => {
      const pods = MORE_PODS.slice(1);
      await kproxy.change(() => manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
      const to = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
      assertEven(await countAnswers(pod, to, fewer), pods, fewer);
    });
    await t.step("over three again, through the node port", async () => {
      const pods = MORE_PODS.slice(2);
      await kproxy.change(() => manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
      const to = { ip: "192.0.2.10", port: WEB_NODE_PORT };
      assertEven(await countAnswers(client, to, 900), pods, 900);
    });
  });
}
