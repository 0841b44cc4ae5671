/**
 * UDP clients that never stop sending from one port: their flows follow the Service, and live ones stay where they are.
 *
 * @module
 */
import { assert, assertEquals, fail } from "@std/assert";
import { type FlowReconciliation, groupFlows, StaleFlowReconciler } from "../../lib/sync/stale_flows.ts";
import { Conntrack } from "../../lib/kernel/conntrack.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import { silentLogger } from "../../lib/observe/log.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { service, slice } from "../flows/objects.ts";
import { assertWithin } from "../support/busyness.ts";
import { LabProxy } from "../support/lab_proxy.ts";
import { UDP_FRONTENDS, UdpLab } from "../support/lab_udp.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import type { UdpSender } from "../support/udp_sender.ts";
import { until } from "../support/until.ts";

const NEEDS = [ROOT_NAMESPACES, ...["ip", "sysctl", "conntrack", "iptables", "ip6tables"].map(program)];
const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
async function allUntil(senders: readonly UdpSender[], outcome: string): Promise<void> {
  await Promise.all(senders.map((sender) => sender.until(outcome)));
}

// Flows that follow their endpoints, replaced, gone and back: conntrack_run_test.ts.
e2eTest("without looking after flows they stay where they were, or nowhere", NEEDS, async () => {
  await using udp = await UdpLab.create("IPv4");
  const [a, b] = udp.addresses.pods;
  const early = udp.sender("external IP");
  await early.until("refused");
  await using proxy = await LabProxy.start(udp.lab.node.netns, udp.objects([a]), { staleFlows: false });
  await udp.untilServed(a);
  const senders = UDP_FRONTENDS.map((name) => udp.sender(name));
  await allUntil(senders, a);
  proxy.set(udp.objects([b]));
  await udp.untilServed(b);
  for (const sender of senders) assertEquals(await sender.next(5), [a]);
  assertEquals(await early.next(5), ["refused"]);
});

e2eTest("clients that were there before the Service or its address reach it", NEEDS, async () => {
  await using udp = await UdpLab.create("IPv4");
  const [a] = udp.addresses.pods;
  const senders = UDP_FRONTENDS.map((name) => udp.sender(name));
  for (const sender of senders) {
    const [outcome] = await sender.next(2);
    assert(outcome === "silence" || outcome === "refused", outcome);
  }
  const bare = { type: "ClusterIP", ports: ["dns:53/UDP"], externalIPs: [], ingress: [] } as const;
  await using proxy = await LabProxy.start(udp.lab.node.netns, udp.objects([a], bare));
  await senders[0]!.until(a);
  // Only the Service changes.
  proxy.set(udp.objects([a]));
  await allUntil(senders, a);
  // And back: addresses that are none of the Service's any more lead nowhere near its pods.
  proxy.set(udp.objects([a], bare));
  for (const sender of senders.slice(1)) {
    const seen = new Set<string>();
    for (let tries = 0; tries < 50 && !seen.has("silence") && !seen.has("refused"); tries++) {
      for (const outcome of await sender.next(1)) seen.add(outcome);
    }
    const after = await sender.next(5);
    assertEquals(after.includes(a), false, after.join(", "));
  }
  assertEquals(await senders[0]!.next(5), [a]);
});

e2eTest("a node port of another host is left alone", NEEDS, async () => {
  await using udp = await UdpLab.create("IPv4");
  const [a, b] = udp.addresses.pods;
  const elsewhere = { ip: "198.51.100.77", port: 30053 };
  await using proxy = await LabProxy.start(udp.lab.node.netns, udp.objects([a]));
  const known = udp.sender("node port");
  await known.until(a);
  const { netns } = udp.lab.node;
  // A flow that is not answered is forgotten after 30 s otherwise.
  await netns.run(["sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=600"]);
  await udp.pod.probe({ protocol: "udp", source: udp.addresses.pod, sourcePort: 7000, to: elsewhere });
  const listed = () => netns.run(["conntrack", "-L", "-p", "udp", "--orig-dst", elsewhere.ip]);
  const before = await listed();
  assert(before.includes("dport=30053"), before);
  proxy.set(udp.objects([b]));
  await known.until(b);
  assert((await listed()).includes("dport=30053"), "it was deleted");
});

/** Who answers a flow time after time; it may have begun before it was served, and is led there a little later. */
async function homeOf(sender: UdpSender, pods: readonly string[]): Promise<string> {
  for (let tries = 0; tries < 50; tries++) {
    const [home = "", ...others] = await sender.next(5);
    if (others.length === 0 && pods.includes(home)) return home;
  }
  return fail(`no endpoint is its home: ${sender.story.slice(-10).join(", ")}`);
}

for (const family of FAMILIES) {
  e2eTest(`a restart under load moves no flow of a live endpoint, ${family}`, NEEDS, async () => {
    await using udp = await UdpLab.create(family);
    const { netns } = udp.lab.node;
    const [a, b, gone] = udp.addresses.pods;
    const senders = Array.from(
      { length: 15 },
      (_, i) => udp.sender(UDP_FRONTENDS[i % UDP_FRONTENDS.length]!),
    );
    /** Where each flow is at home. */
    const homes: string[] = [];
    {
      await using _proxy = await LabProxy.start(netns, udp.objects([a, b, gone]));
      // All of them, in force and at rest.
      for (const ip of [a, b, gone]) await udp.untilServed(ip);
      for (const sender of senders) homes.push(await homeOf(sender, [a, b, gone]));
    }
    assert(homes.includes(a) || homes.includes(b), "no flow is at a live endpoint");
    const { text } = await new Conntrack(netns.exec).dump(family);
    const leaving = groupFlows(text).filter(({ replyIp }) => replyIp === gone)
      .reduce((sum, { flows }) => sum + flows, 0);
    assert(leaving > 0, "no flow is at the endpoint that goes");
    const marks = senders.map((sender) => sender.story.length);

    // One endpoint goes while no kproxy runs.
    await using proxy = await LabProxy.start(netns, udp.objects([a, b]));
    await Promise.all(
      senders.filter((_, i) => homes[i] === gone).map(async (sender) => {
        for (let tries = 0; (await sender.next(1)).includes(gone); tries++) {
          assert(tries < 100, "it stays where it was");
        }
      }),
    );
    for (const sender of senders) await sender.next(5);
    senders.forEach((sender, i) => {
      const seen = new Set(sender.story.slice(marks[i]));
      if (homes[i] !== gone) assertEquals([...seen], [homes[i]], "a live flow was moved or disturbed");
      else assertEquals(seen.has(a) || seen.has(b), true, [...seen].join(", "));
    });
    const deleted = proxy.reconciliations.filter((one) => one.family === family)
      .reduce((sum, one) => sum + one.deleted, 0);
    assertEquals(deleted, leaving, "flows deleted");
  });
}

e2eTest(
  "of 20,000 flows the 10,000 that are stale go at once, in two runs of the program",
  NEEDS,
  async () => {
    await withNetns(async ({ exec, run }) => {
      const services = 100;
      const frontends = Array.from({ length: services }, (_, i) => `10.96.0.${i}`);
      const line = (i: number, reply: string): string => {
        const client = `10.1.${i >> 8}.${i & 255}`;
        return `-A -t 3000 -u SEEN_REPLY -p udp -s ${client} -d ${
          frontends[i % services]
        } -r ${reply} -q ${client} ` +
          `--sport 20000 --dport 53 --reply-port-src 5353 --reply-port-dst 20000\n`;
      };
      const stdin = Array.from(
        { length: 20_000 },
        (_, i) => line(i, i < 10_000 ? "10.244.1.3" : "10.244.1.4"),
      ).join("");
      await run(["conntrack", "--load-file", "-"], { stdin });

      const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
      frontends.forEach((clusterIP, i) => {
        const dns = service(`shop/dns${i}`, { clusterIP, clusterIPs: [clusterIP], ports: ["dns:53/UDP"] });
        for (const raw of [dns, slice(`shop/dns${i}.1`, ["dns:5353/UDP"], ["10.244.1.4"])]) {
          for (const object of decodeObject(raw, "test").objects) {
            if (object.kind === "Service") tracker.updateService(undefined, object);
            else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
          }
        }
      });
      const programs: string[] = [];
      const reconciliations: FlowReconciliation[] = [];
      const reconciler = new StaleFlowReconciler({
        family: "IPv4",
        conntrack: new Conntrack({
          run: (argv, options) => {
            programs.push(argv.join(" "));
            return exec.run(argv, options);
          },
        }),
        nodePortIps: () => [],
        log: silentLogger,
        observe: (reconciliation) => reconciliations.push(reconciliation),
        requestSync: () => {},
        nowMs: () => performance.now(),
        random: Math.random,
      });
      const { state, updatedServices, triggerTimesMs, ...udp } = tracker.checkout();
      const report = { commands: 1, bytes: 0, written: {}, total: {} };
      const outcome = { family: "IPv4", full: true, report, durationMs: 1, services: [], ...udp } as const;
      assertEquals(updatedServices.size, services);
      await reconciler.afterSync({ ...outcome, state, triggerTimesMs });
      // A look that takes longer than a sync may wait goes on beside it.
      await until(() => reconciliations.length > 0, "the look's end");
      const [{ deleted, durationMs } = { deleted: 0, durationMs: 0 }] = reconciliations;
      assertEquals(deleted, 10_000);
      assertEquals(programs, ["conntrack -L -p udp -f ipv4", "conntrack --load-file -"]);
      assertEquals((await run(["conntrack", "-C"])).trim(), "10000");
      // It takes 0.2 s on two cores, 0.7 s beside user-mode kernels; one run for each flow would take minutes.
      await assertWithin(durationMs, 2_000, "the deletion");
    });
  },
);
