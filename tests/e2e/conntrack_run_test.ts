/**
 * The same as `conntrack_test.ts` proves of the parts, of `kproxy run` as a whole: UDP clients that never stop sending from
 * one port follow the Service, and a kill and a new start move no live flow (asks rows 3 and 4).
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { type UdpFrontend, UdpLab } from "../support/lab_udp.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const NEEDS = [
  ROOT_NAMESPACES,
  ...["ip", "sysctl", "conntrack", "iptables", "ip6tables", "nft"].map(program),
];
const FRONTENDS: readonly UdpFrontend[] = [
  "cluster IP",
  "node port",
  "second node address",
  "external IP",
  "load balancer IP",
];

const CASES = (["iptables", "nftables"] as const).flatMap((mode) =>
  (["IPv4", "IPv6"] as const).map((family) => ({ mode, family }))
);

for (const { mode, family } of CASES) {
  e2eTest(
    `kproxy run: UDP flows follow their endpoints, also over kill -9 and a new start, ${mode}, ${family}`,
    NEEDS,
    async () => {
      await using udp = await UdpLab.create(family);
      const [first, second, third] = udp.addresses.pods;
      await using manifests = await LabManifests.create();
      const write = (endpoints: readonly string[]) => manifests.replace("dns.json", udp.objects(endpoints));
      await manifests.replace("node.json", [NODE_OBJECT]);
      await write([first]);
      const start = () =>
        KproxyProcess.start({
          netns: udp.lab.node.netns,
          args: [
            `--proxy-mode=${mode}`,
            "--hostname-override=node-a",
            // In nftables mode the default is the primary address alone.
            "--nodeport-addresses=0.0.0.0/0,::/0",
            "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
            "--iptables-min-sync-period=0s",
            `--manifests=${manifests.folder}`,
          ],
        });
      const senders = FRONTENDS.map((name) => udp.sender(name));
      const allReach = (outcome: string) => Promise.all(senders.map((sender) => sender.until(outcome)));

      {
        await using kproxy = await start();
        await allReach(first);
        await write([second]);
        await allReach(second);
        await kproxy.stop("SIGKILL");
      }
      await write([first, second]);
      const marks = senders.map((sender) => sender.story.length);
      await using kproxy = await start();
      await udp.untilServed(first);
      for (const [index, sender] of senders.entries()) {
        await sender.next(5);
        assertEquals(
          [...new Set(sender.story.slice(marks[index]))],
          [second],
          "a live flow stays where it is",
        );
      }
      // From one to none to another one: a flow to nowhere must not stay either.
      await write([]);
      await allReach("refused");
      await write([third]);
      await allReach(third);
      assertEquals((await kproxy.stop()).code, 0);
    },
  );
}
