/**
 * Traffic counters with real packets ("Counter equals packets sent"): every way to a Service, both families, across
 * syncs, restarts and repairs.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { kproxy as runKproxy } from "../cli/kproxy.ts";
import { service, slice } from "../flows/objects.ts";
import { metricsOf } from "../support/http_get.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import type { LabHost } from "../support/lab_host.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { WEB_ARGS, WEB_NEEDS } from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";

const NEEDS = [...WEB_NEEDS, program("nft"), program("curl")];
const CLUSTER_IP = { ip: "10.96.0.10", port: 53 };
const CLUSTER_IP_6 = { ip: "fd00:10:96::a", port: 53 };
const NODE_PORT = { ip: "192.0.2.10", port: 30053 };
const EXTERNAL_IP = { ip: "203.0.113.7", port: 53 };
const PODS = ["10.244.0.11", "10.244.0.12"] as const;
const POD_6 = "fd00:10:244::11";

const SERVICES = [
  NODE_OBJECT,
  service("shop/dns", {
    type: "NodePort",
    clusterIP: CLUSTER_IP.ip,
    clusterIPs: [CLUSTER_IP.ip, CLUSTER_IP_6.ip],
    ipFamilies: ["IPv4", "IPv6"],
    externalIPs: [EXTERNAL_IP.ip],
    ports: ["dns:53:30053/UDP"],
  }),
  service("shop/quiet", { clusterIP: "10.96.0.11", ports: ["http:80"] }),
  slice("shop/dns.6", ["dns:5353/UDP"], [`${POD_6}@node-a`]),
  slice("shop/quiet.4", ["http:5353"], [`${PODS[0]}@node-a`]),
];

const SERIES =
  /^kproxy_service_(packets|bytes)_total\{ip_family="(\w+)",namespace="shop",service="(\w+)",port="(\d+)",port_name="(\w*)",protocol="(\w+)",direction="(\w+)"\} (\d+)$/gm;

/** `packets IPv4 dns:53 in` → value, of every series there is. */
async function traffic(netns: Netns): Promise<Record<string, number>> {
  const text = await metricsOf(netns);
  assertEquals([...text.matchAll(SERIES)].length, text.match(/^kproxy_service_/gm)?.length ?? 0, text);
  return Object.fromEntries(
    [...text.matchAll(SERIES)].map(([, unit, family, name, port, portName, protocol, way, value]) => [
      `${unit} ${family} ${name} ${port} ${portName} ${protocol} ${way}`,
      Number(value),
    ]),
  );
}

/** Waits until the packets both ways are so many; readings are a second apart. */
async function untilPackets(netns: Netns, ipv4: number, ipv6: number): Promise<Record<string, number>> {
  const key = (family: string, way: string): string => `packets ${family} dns 53 dns UDP ${way}`;
  const wanted = Object.fromEntries(
    [["IPv4", ipv4], ["IPv6", ipv6]].flatMap(([family, count]) =>
      ["in", "out"].map((way) => [key(String(family), way), count])
    ),
  );
  return await eventually(async () => {
    const found = await traffic(netns);
    const packets = Object.fromEntries(Object.entries(found).filter(([name]) => name.startsWith("packets")));
    assertEquals(packets, wanted);
    return found;
  }, { everyMs: 100 });
}

async function send(host: LabHost, to: { readonly ip: string; readonly port: number }, count: number) {
  const results = await host.call("probe", { protocol: "udp", to, count, timeoutMs: 30_000 });
  assertEquals(results.filter(({ kind }) => kind === "answer").length, count, JSON.stringify(results));
}

/** Who sends, and where the endpoints are written. */
interface Senders {
  readonly lab: NodeLab;
  readonly pod: LabHost;
  readonly setEndpoints: (pods: readonly string[]) => Promise<void>;
}

/** Ends with 24 packets of IPv4 and 6 of IPv6, each way. */
async function assertEveryWayCounts(
  { lab, pod, setEndpoints }: Senders,
  kproxy: KproxyProcess,
): Promise<void> {
  const { netns } = lab.node;
  const pod6 = await lab.host("fd00:10:244::5", "cni0");
  const client = await lab.host("198.51.100.9");
  assertEquals(await traffic(netns), {});
  await send(pod, CLUSTER_IP, 7);
  await send(client, NODE_PORT, 5);
  await send(client, EXTERNAL_IP, 2);
  await send(lab.node, CLUSTER_IP, 3);
  await send(lab.node, NODE_PORT, 1);
  // Pods that reach themselves, every second time.
  await send(await lab.host(PODS[0], "cni0"), CLUSTER_IP, 4);
  await send(pod6, CLUSTER_IP_6, 6);
  const found = await untilPackets(netns, 22, 6);
  // An empty datagram has 28 bytes in IPv4 and 48 in IPv6.
  assert((found["bytes IPv4 dns 53 dns UDP in"] ?? 0) >= 22 * 28, JSON.stringify(found));
  assert((found["bytes IPv6 dns 53 dns UDP out"] ?? 0) >= 6 * 48, JSON.stringify(found));
  await assertNothingElseChanged(netns);
  await kproxy.change(() => setEndpoints([PODS[1]]), "shop/dns");
  await untilPackets(netns, 22, 6);
  await send(pod, CLUSTER_IP, 2);
  await untilPackets(netns, 24, 6);
}

/** What counts decides nothing, and stops no check. */
async function assertNothingElseChanged(netns: Netns): Promise<void> {
  const check = await runKproxy(["check"], { netns: netns.name });
  assertEquals([check.code, check.err], [0, ""], check.out);
  assert(!check.out.includes("Not read"), check.out);
  const trace = await runKproxy(["trace", "10.244.0.5", "shop/dns"], { netns: netns.name });
  assertEquals([trace.code, trace.err], [0, ""], trace.out);
  for (const ip of PODS) assert(trace.out.includes(`${ip}:5353 (1/2)`), trace.out);
}

/** Without the flag no set and no chain of counters is left, but for the chain that may only be emptied so far. */
async function assertNothingCounts(netns: Netns): Promise<void> {
  assertEquals(await traffic(netns), {});
  const table = await netns.run(["nft", "list", "table", "ip", "kproxy"]);
  const left = table.split("\n").filter((line) => /jump traffic|^\t(set|chain) \S*traffic/.test(line));
  assertEquals(left.filter((line) => line !== "\tchain traffic {"), []);
}

e2eTest("counters of a Service are the packets sent, both ways", NEEDS, async () => {
  await using lab = await NodeLab.create();
  await using manifests = await LabManifests.create();
  const { netns } = lab.node;
  for (const ip of [...PODS, POD_6]) {
    await (await lab.host(ip, "cni0")).call("serve", { protocol: "udp", ip, port: 5353 });
  }
  const pod = await lab.host("10.244.0.5", "cni0");
  await manifests.replace("services.json", SERVICES);
  const setEndpoints = (pods: readonly string[]) =>
    manifests.replace("dns.json", [
      slice("shop/dns.4", ["dns:5353/UDP"], pods.map((ip) => `${ip}@node-a`)),
    ]);
  await setEndpoints(PODS);
  const args = [...WEB_ARGS, "--proxy-mode=nftables", `--manifests=${manifests.folder}`];
  const period = "--iptables-sync-period=1s";
  const start = (...more: readonly string[]) =>
    KproxyProcess.start({ netns, args: [...args, period, ...more] });
  {
    await using kproxy = await start("--traffic-counters");
    await assertEveryWayCounts({ lab, pod, setEndpoints }, kproxy);
    await kproxy.stop("SIGKILL");
  }
  {
    await using kproxy = await start("--traffic-counters");
    await untilPackets(netns, 24, 6);
    const from = kproxy.lines.length;
    await netns.run(["nft", "delete", "table", "ip", "kproxy"]);
    await kproxy.until("the repair", (lines) => lines.some(({ msg }) => msg === "Synced rules"), from);
    await send(pod, CLUSTER_IP, 1);
    await untilPackets(netns, 25, 6);
    await kproxy.stop();
  }
  await using _kproxy = await start();
  await assertNothingCounts(netns);
  await send(pod, CLUSTER_IP, 1);
});
