/**
 * How evenly connections are spread over endpoints, counted over many real ones, also after their number has changed. The story
 * runs in any mode, on a new lab.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import type { LabHost } from "./lab_host.ts";
import type { LabMode } from "./lab_mode.ts";
import type { KproxyProcess } from "./kproxy_process.ts";
import { WEB_PODS, WEB_TARGET_PORT, type WebLab, webSlice } from "./lab_web.ts";
import { CLUSTER, NODE_PORT } from "./web_changes.ts";

/** Connections that show a mode's distribution: over three endpoints, over four, over three through the node port. */
interface Spread {
  readonly requests: readonly [number, number, number];
  /** Degrees of freedom → limit of chi-square. */
  readonly chiSquareLimit: Readonly<Record<number, number>>;
}

/** Chi-square that chance exceeds once in a million times. */
const BY_CHANCE = { 2: 27.6, 3: 30.7 };

/** iptables mode draws per endpoint, nftables mode once for all: a small bias could hide in its number. */
export const SPREADS: Readonly<Record<LabMode["name"], Spread>> = {
  iptables: { requests: [900, 900, 900], chiSquareLimit: BY_CHANCE },
  // Fewer through the node port, because there every connection also needs a port of the node's own address.
  nftables: { requests: [6_000, 6_000, 3_000], chiSquareLimit: BY_CHANCE },
  // Round robin: every endpoint gets the same number, and one more and one less is a chi-square of 1/15.
  ipvs: { requests: [90, 120, 90], chiSquareLimit: { 2: 0.1, 3: 0.1 } },
  userspace: { requests: [90, 120, 90], chiSquareLimit: { 2: 0.1, 3: 0.1 } },
};

const MORE_PODS = [...WEB_PODS, "10.244.0.14", "10.244.0.15"];

/** A Service with more endpoints than a slice holds: all are one pod here, which answers for a whole network. */
const MANY = {
  name: "shop/many",
  to: { ip: "10.96.0.77", port: 80 },
  network: "10.245.0.0/21",
  pod: "10.244.0.40",
  slices: Array.from({ length: 12 }, (_, of) =>
    // The controller puts 100 endpoints into a slice.
    Array.from({ length: 100 }, (_, at) => `10.245.${Math.floor(of / 2)}.${(of % 2) * 100 + at + 1}`)),
  requests: 6_000,
  /** Limit for one degree of freedom less than endpoints: five standard deviations above the mean, which is that number. */
  chiSquareLimit: 1_450,
} as const;

/** Opens TCP connections from new ports, each answered; yields the number per pod. */
async function countAnswers(
  host: LabHost,
  to: { readonly ip: string; readonly port: number },
  requests: number,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const result of await host.probe({ protocol: "tcp", to, count: requests, timeoutMs: 5_000 })) {
    const server = result.kind === "answer" ? result.answer.local.ip : result.kind;
    counts.set(server, (counts.get(server) ?? 0) + 1);
  }
  return counts;
}

function assertEven(
  mode: LabMode,
  counts: ReadonlyMap<string, number>,
  pods: readonly string[],
): void {
  assertEquals([...counts.keys()].sort(), [...pods].sort());
  const chiSquare = chiSquareOf([...counts.values()]);
  const limit = SPREADS[mode.name].chiSquareLimit[pods.length - 1] ?? 0;
  assert(chiSquare < limit, `${JSON.stringify([...counts])}: chi-square ${chiSquare.toFixed(1)}`);
}

function chiSquareOf(counts: readonly number[]): number {
  const expected = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  return counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
}

/** Asserts an even spread for a Service with far more endpoints than one slice has. */
async function spreadsOverMany(kproxy: KproxyProcess, { manifests, lab, mode }: WebLab): Promise<void> {
  const { name, to, network, pod, slices, requests, chiSquareLimit } = MANY;
  const all = await lab.host(pod, "cni0");
  await all.netns.run(["ip", "route", "add", "local", network, "dev", "lo"]);
  await all.call("serve", { protocol: "tcp", ip: "0.0.0.0", port: WEB_TARGET_PORT });
  await lab.node.netns.run(["ip", "route", "add", network, "via", pod, "dev", "cni0"]);
  const objects = [
    service(name, { clusterIP: to.ip, ports: [`http:${to.port}`] }),
    ...slices.map((ips, i) =>
      slice(`${name}.${i}`, [`http:${WEB_TARGET_PORT}`], ips.map((ip) => `${ip}@node-a`))
    ),
  ];
  await kproxy.change(() => manifests.replace("many.json", objects), name);
  const client = await lab.host("10.244.0.7", "cni0");
  await client.netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=1024 65535"]);
  const counts = await countAnswers(client, to, requests);
  const ips: readonly string[] = slices.flat();
  assertEquals([...counts.keys()].filter((ip) => !ips.includes(ip)), []);
  const chiSquare = chiSquareOf(ips.map((ip) => counts.get(ip) ?? 0));
  assert(chiSquare < chiSquareLimit, `${mode.name}: chi-square ${chiSquare.toFixed(0)} over ${ips.length}`);
  // Endpoints that chance omitted must at least be in the rules.
  const rules = await mode.rules(lab.node.netns);
  assertEquals(ips.filter((ip) => !rules.includes(`${ip}:`) && !rules.includes(`${ip} .`)), []);
}

/** Asserts that connections are spread evenly, whatever the number of endpoints was before. */
export async function spreadsEvenly(t: Deno.TestContext, web: WebLab): Promise<void> {
  const { manifests, lab, pod, client, mode } = web;
  const [overThree, overFour, overNodePort] = SPREADS[mode.name].requests;
  for (const ip of MORE_PODS.slice(WEB_PODS.length)) {
    await (await lab.host(ip, "cni0")).call("serve", { protocol: "tcp", ip, port: WEB_TARGET_PORT });
  }
  await manifests.replace("endpoints.json", [webSlice(WEB_PODS)]);
  await using kproxy = await web.start();
  // A connection keeps its port for a minute: no client has enough ports for two steps, and the last ones take long to find.
  const other = await lab.host("10.244.0.6", "cni0");
  for (const { netns } of [pod, other]) {
    await netns.run(["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=1024 65535"]);
  }
  await t.step("over three endpoints", async () => {
    assertEven(mode, await countAnswers(pod, CLUSTER, overThree), WEB_PODS);
  });
  await t.step("over four, after the first was taken out and two were added", async () => {
    const pods = MORE_PODS.slice(1);
    await kproxy.change(() => manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
    assertEven(mode, await countAnswers(other, CLUSTER, overFour), pods);
  });
  await t.step("over three again, through the node port", async () => {
    const pods = MORE_PODS.slice(2);
    await kproxy.change(() => manifests.replace("endpoints.json", [webSlice(pods)]), "shop/web");
    assertEven(mode, await countAnswers(client, NODE_PORT, overNodePort), pods);
  });
  // Round robin needs no chance, and an omitted endpoint would be seen among four, too.
  if (mode.name !== "iptables" && mode.name !== "nftables") return;
  await t.step("over 1,200 in 12 slices", () => spreadsOverMany(kproxy, web));
}
