/**
 * Session affinity with real packets in IPVS mode, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_affinity_in_uml.ts'`.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";

const PODS = ["10.244.0.11", "10.244.0.12"] as const;
const STICKY = service("shop/sticky", {
  clusterIP: "10.96.0.1",
  ports: ["http:80"],
  sessionAffinity: "ClientIP",
});

function podsOf(...pods: readonly string[]) {
  return slice("shop/sticky.1", ["http:8080"], pods.map((pod) => `${pod}@node-a`));
}

// asks.md row 29.
Deno.test("a client stays at its endpoint, and leaves it when the endpoint does", async () => {
  await using lab = await NodeLab.create();
  await using manifests = await LabManifests.create();
  await manifests.replace("node.json", [NODE_OBJECT]);
  await manifests.replace("sticky.json", [STICKY]);
  await manifests.replace("pods.json", [podsOf(...PODS)]);
  for (const ip of PODS) {
    await (await lab.host(ip, "cni0")).call("serve", { protocol: "tcp", ip, port: 8080 });
  }
  const client = await lab.host("10.244.0.5", "cni0");
  await using kproxy = await KproxyProcess.start({
    netns: lab.node.netns,
    args: [
      "--proxy-mode=ipvs",
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16",
      "--ipvs-min-sync-period=0s",
      `--manifests=${manifests.folder}`,
    ],
  });
  /** Which endpoints answered six new connections. */
  const ask = async (): Promise<readonly string[]> => {
    const to = { ip: "10.96.0.1", port: 80 };
    const results = await client.probe({ protocol: "tcp", to, count: 6, timeoutMs: 5_000 });
    assertEquals(results.length, 6);
    return [...new Set(results.map((one) => one.kind === "answer" ? one.answer.server : one.kind))];
  };
  const change = (...pods: readonly string[]) =>
    kproxy.change(() => manifests.replace("pods.json", [podsOf(...pods)]), "shop/sticky");

  const [first = "", ...more] = await ask();
  assertEquals(more, []);
  const other = PODS.find((ip) => ip !== first);
  assert(other !== undefined && PODS.some((ip) => ip === first), `${first} answered`);
  // Round robin alone would have had the other one answer, too. One that leaves keeps no client, not even an old one.
  await change(other);
  assertEquals(await ask(), [other]);
  await change(...PODS);
  assertEquals(await ask(), [other]);
});
