/**
 * Session affinity with real packets in IPVS mode, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_affinity_in_uml.ts'`.
 *
 * The scheduler is round robin, which gives two clients that choose one after the other different endpoints. So chance has no part in
 * this: two that had the same one and then ask one after the other have different ones if and only if both choose again.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import type { LabHost } from "../support/lab_host.ts";
import type { ProbeProtocol } from "../support/lab_probe.ts";
import type { SocketAddress } from "../support/lab_sockets.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";

const PODS = ["10.244.0.11", "10.244.0.12"] as const;
const PODS6 = ["fd00:10:244::11", "fd00:10:244::12"] as const;
/** Clients choose in this order, so that every second one has the same endpoint. */
const CLIENTS = ["10.244.0.5", "10.244.0.6", "10.244.0.7", "10.244.0.8"] as const;
const CLIENTS6 = ["fd00:10:244::5", "fd00:10:244::6", "fd00:10:244::7", "fd00:10:244::8"] as const;
const [A, , C] = CLIENTS;
const LATER = ["10.244.0.9", "10.244.0.10"] as const;

/** Longer than all requests of a step take on a busy machine, and less than the time for which IPVS remembers a closed TCP connection. */
const TIMEOUT_SECONDS = 10;
/** The longest that a Service may ask for. */
const DAY_SECONDS = 86_400;

interface Target {
  readonly protocol: ProbeProtocol;
  readonly to: SocketAddress;
}
const TCP: Target = { protocol: "tcp", to: { ip: "10.96.0.1", port: 80 } };
const UDP: Target = { protocol: "udp", to: { ip: "10.96.0.1", port: 53 } };
const TCP_NODE_PORT: Target = { protocol: "tcp", to: { ip: "192.0.2.10", port: 30080 } };
const UDP_NODE_PORT: Target = { protocol: "udp", to: { ip: "192.0.2.10", port: 30053 } };
const TCP6: Target = { protocol: "tcp", to: { ip: "fd00:10:96::1", port: 80 } };

function sticky(timeoutSeconds: number) {
  const affinity = {
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds } },
  } as const;
  return [
    service("shop/sticky", {
      ...affinity,
      type: "NodePort",
      clusterIP: "10.96.0.1",
      ports: ["http:80:30080", "dns:53:30053/UDP"],
    }),
    service("shop/sticky6", { ...affinity, clusterIP: "fd00:10:96::1", ports: ["http:80"] }),
  ];
}

function podsOf(...pods: readonly string[]) {
  return slice("shop/sticky.1", ["http:8080", "dns:5353/UDP"], pods.map((pod) => `${pod}@node-a`));
}

const OBJECTS = {
  "node.json": [NODE_OBJECT],
  "sticky.json": sticky(TIMEOUT_SECONDS),
  "pods.json": [podsOf(...PODS)],
  "pods6.json": [slice("shop/sticky6.1", ["http:8080"], PODS6.map((pod) => `${pod}@node-a`))],
};

/** Starts the endpoints' servers. */
async function servePods(lab: NodeLab): Promise<void> {
  for (const ip of [...PODS, ...PODS6]) {
    const host = await lab.host(ip, "cni0");
    await host.call("serve", { protocol: "tcp", ip, port: 8080 });
    if (!ip.includes(":")) await host.call("serve", { protocol: "udp", ip, port: 5353 });
  }
}

/** Who answers each client; one that is named twice asks twice. */
async function ask(host: LabHost, clients: readonly string[], target: Target): Promise<string[]> {
  const servers: string[] = [];
  for (const source of clients) {
    const [result] = await host.probe({ ...target, source, timeoutMs: 10_000 });
    if (result?.kind !== "answer") throw new Error(`${source}: ${JSON.stringify(result)}`);
    servers.push(result.answer.server);
  }
  return servers;
}

/** Asserts that these answer by turns. */
function assertAlternate(found: readonly string[], pods: readonly string[]): void {
  assertEquals([...found.slice(0, 2)].sort(), [...pods].sort());
  assertEquals(found.slice(2), found.slice(0, -2));
}

function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

/** A pod with all of the clients' addresses. */
async function clientPod(lab: NodeLab, [first, ...others]: readonly [string, ...string[]]): Promise<LabHost> {
  const pod = await lab.host(first, "cni0");
  await lab.lend(pod, others, "cni0");
  return pod;
}

/** The clients, and who answered each of {@linkcode CLIENTS} over TCP at first. */
interface Asked {
  readonly lab: NodeLab;
  readonly pod: LabHost;
  readonly tcp: readonly string[];
}

/** How clients are spread, and that they stay. */
async function spreadSteps(t: Deno.TestContext, { lab, pod, tcp }: Asked): Promise<void> {
  const pod6 = await clientPod(lab, CLIENTS6);
  await t.step("clients are spread, and each one stays", async () => {
    assertAlternate(tcp, PODS);
    assertEquals(await ask(pod, CLIENTS.toReversed(), TCP), tcp.toReversed());
  });
  await t.step("under IPv6", async () => {
    const first = await ask(pod6, CLIENTS6, TCP6);
    assertAlternate(first, PODS6);
    assertEquals(await ask(pod6, CLIENTS6.toReversed(), TCP6), first.toReversed());
  });
  await t.step("each port and address has its own, node ports among them", async () => {
    for (const target of [TCP_NODE_PORT, UDP_NODE_PORT, UDP]) {
      // At the cluster IP's port 80 these two have the same.
      const own = await ask(pod, [A, C], target);
      assertAlternate(own, PODS);
      assertEquals(await ask(pod, [C, A], target), own.toReversed());
    }
  });
}

/** What the Service's timeout does. */
async function timeSteps(t: Deno.TestContext, { lab, pod, tcp }: Asked): Promise<void> {
  // From here on, no client asks at the cluster IP's TCP port.
  const restedSince = performance.now();
  await t.step("every connection starts the time afresh", async () => {
    const first = await ask(pod, [A, C], UDP);
    for (let round = 0; round < 2; round++) {
      await sleep(TIMEOUT_SECONDS * 0.6);
      assertEquals(await ask(pod, [A, C], UDP), first);
    }
  });
  await t.step("a time does not end before the last connection is forgotten", async () => {
    assert(performance.now() - restedSince > TIMEOUT_SECONDS * 1000);
    // For two minutes after it was closed.
    assertMatch(
      await lab.node.netns.run(["ipvsadm", "-Lnc"]),
      /^TCP 0[01]:\d\d +TIME_WAIT +10\.244\.0\.5:\d+ +10\.96\.0\.1:80 /m,
    );
    assertEquals(await ask(pod, CLIENTS, TCP), tcp);
  });
  await t.step("after the time they choose again", async () => {
    const [a = "", c = ""] = await ask(pod, [A, C], UDP);
    assertNotEquals(a, c);
    await sleep(TIMEOUT_SECONDS + 1);
    assertEquals(await ask(pod, [C, A], UDP), [a, c]);
  });
}

/** What changes of the Service and its endpoints do. */
async function changeSteps(
  t: Deno.TestContext,
  { lab, pod, tcp }: Asked,
  { kproxy, manifests }: { readonly kproxy: KproxyProcess; readonly manifests: LabManifests },
): Promise<void> {
  await t.step("another time is in force for who chooses from then on", async () => {
    const [a = "", c = ""] = await ask(pod, [A, C], UDP);
    await kproxy.change(() => manifests.replace("sticky.json", sticky(DAY_SECONDS)), "shop/sticky");
    assertMatch(await lab.node.netns.run(["ipvsadm", "-Sn"]), /^-A -u 10\.96\.0\.1:53 -s rr -p 86400$/m);
    const later = await ask(pod, LATER, UDP);
    assertAlternate(later, PODS);
    await sleep(TIMEOUT_SECONDS + 1);
    assertEquals(await ask(pod, LATER, UDP), later);
    assertEquals(await ask(pod, [A, C], UDP), [c, a]);
  });
  await t.step("no client stays with an endpoint that is gone", async () => {
    const [gone, rest = ""] = tcp;
    const change = (...pods: readonly string[]) =>
      kproxy.change(() => manifests.replace("pods.json", [podsOf(...pods)]), "shop/sticky");
    await change(rest);
    for (const target of [TCP, UDP]) {
      assertEquals([...new Set(await ask(pod, [...CLIENTS, ...LATER], target))], [rest]);
    }
    await change(...PODS);
    assertNotEquals(gone, rest);
    assertEquals([...new Set(await ask(pod, CLIENTS, TCP))], [rest]);
  });
}

Deno.test("affinity keeps a client at its endpoint, as long as it comes back in time", async (t) => {
  await using lab = await NodeLab.create();
  await using manifests = await LabManifests.create();
  for (const [name, objects] of Object.entries(OBJECTS)) await manifests.replace(name, objects);
  await servePods(lab);
  const pod = await clientPod(lab, [...CLIENTS, ...LATER]);
  await using kproxy = await KproxyProcess.start({
    netns: lab.node.netns,
    args: [
      "--proxy-mode=ipvs",
      "--hostname-override=node-a",
      "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
      "--ipvs-min-sync-period=0s",
      // Shorter than the Service's, so that this one decides.
      "--ipvs-udp-timeout=2s",
      `--manifests=${manifests.folder}`,
    ],
  });
  const asked = { lab, pod, tcp: await ask(pod, CLIENTS, TCP) };
  await spreadSteps(t, asked);
  await timeSteps(t, asked);
  await changeSteps(t, asked, { kproxy, manifests });
});
