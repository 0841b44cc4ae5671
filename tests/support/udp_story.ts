/**
 * UDP clients that never stop sending from one port, while kproxy and endpoints change: the story of `kproxy run` for
 * one mode and IP family.
 *
 * @module
 */
import { assertEquals, assertNotEquals } from "@std/assert";
import type { ProxyMode } from "../../lib/config/types.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { LabManifests } from "./lab_manifests.ts";
import { UDP_FRONTENDS, UdpLab } from "./lab_udp.ts";
import { NODE_OBJECT } from "./node_lab.ts";

/**
 * Clients of every frontend, which send before it exists, follow the endpoints: one is replaced, then a kill and restart move no live flow, then
 * there is none, then another one, and then one that goes out of service.
 *
 * @throws {AssertionError} if a client does not
 */
export async function followUdpEndpoints(
  mode: ProxyMode,
  family: IpFamily,
  pace: Parameters<UdpLab["sender"]>[1] = {},
): Promise<void> {
  await using udp = await UdpLab.create(family);
  const [first, second, third] = udp.addresses.pods;
  await using manifests = await LabManifests.create();
  const write = (endpoints: readonly string[]) => manifests.replace("dns.json", udp.objects(endpoints));
  await manifests.replace("node.json", [NODE_OBJECT]);
  // The Service at first: of its addresses it has only the cluster IP.
  const bare = { type: "ClusterIP", ports: ["dns:53/UDP"], externalIPs: [], ingress: [] } as const;
  await manifests.replace("dns.json", udp.objects([first], bare));
  const start = () =>
    KproxyProcess.start({
      netns: udp.lab.node.netns,
      args: [
        `--proxy-mode=${mode}`,
        "--hostname-override=node-a",
        // In nftables mode the default is only the primary address.
        "--nodeport-addresses=0.0.0.0/0,::/0",
        "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
        "--iptables-min-sync-period=0s",
        "--ipvs-min-sync-period=0s",
        `--manifests=${manifests.folder}`,
      ],
    });
  const senders = UDP_FRONTENDS.map((name) => udp.sender(name, pace));
  const allReach = (outcome: string) => Promise.all(senders.map((sender) => sender.until(outcome)));
  // They send before the Service exists, and before it has its addresses.
  await Promise.all(senders.map(async (sender) => assertNotEquals(await sender.next(1), [first])));

  {
    await using kproxy = await start();
    await senders[0]!.until(first);
    await write([first]);
    await allReach(first);
    await write([second]);
    await allReach(second);
    await kproxy.stop("SIGKILL");
  }
  await write([first, second]);
  const marks = senders.map((sender) => sender.story.length);
  await using kproxy = await start();
  await udp.untilServed(first, pace);
  for (const [index, sender] of senders.entries()) {
    await sender.next(5);
    assertEquals(
      [...new Set(sender.story.slice(marks[index]))],
      [second],
      "a live flow stays where it is",
    );
  }
  // From one to none to another one: a flow without an endpoint must not persist, either.
  await write([]);
  await allReach("refused");
  await write([third]);
  await allReach(third);
  await write([`${third} gone`, first]);
  await allReach(first);
  await write([first, second]);
  await udp.untilServed(second, pace);
  for (const sender of senders) {
    assertEquals(await sender.next(10), [first], "another endpoint moves no live flow");
  }
  assertEquals((await kproxy.stop()).code, 0);
}
