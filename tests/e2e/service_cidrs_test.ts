/**
 * nftables mode with the ServiceCIDRs of kapi: what no Service has is dropped in them, and only in them, also when
 * they come and go while kproxy runs.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { FlowCase } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import { LabGateway } from "../support/lab_gateway.ts";
import { WEB_ARGS, WEB_NEEDS } from "../support/lab_web.ts";
import type { Netns } from "../support/netns.ts";
import { NODE_OBJECT, NodeLab } from "../support/node_lab.ts";
import { raw, rawServiceCidr } from "../support/raw_objects.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";

const NEEDS = [...WEB_NEEDS, ...KAPI, program("nft")];
const CASE = FLOW_CASES.find(({ name }) => name === "a cluster IP that no Service has");

const KUBERNETES = rawServiceCidr("kubernetes", ["10.96.0.0/16", "fd00:10:96::/112"]);
const MORE = rawServiceCidr("more", ["10.98.0.0/24"]);

/** Waits until the chain of cluster IPs drops just these networks. */
async function untilDropped(netns: Netns, family: "ip" | "ip6", networks: readonly string[]): Promise<void> {
  await eventually(async () => {
    const text = await netns.run(["nft", "list", "chain", family, "kproxy", "cluster-ips-check"]);
    assertEquals([...text.matchAll(/daddr (\S+) drop/g)].map(([, network]) => network ?? ""), networks);
  });
}

e2eTest("ServiceCIDRs of an API server come and go while kproxy runs", NEEDS, async () => {
  assert(CASE !== undefined);
  await using kapi = await Kapi.start();
  await using lab = await NodeLab.create();
  const { netns } = lab.node;
  using _gateway = await LabGateway.open(netns, kapi.port);
  for (const object of [NODE_OBJECT, ...CASE.objects]) await kapi.put(raw(object));
  await kapi.put(KUBERNETES);
  const args = [...WEB_ARGS, "--proxy-mode=nftables", `--kubeconfig=${kapi.kubeconfig}`];
  await using kproxy = await KproxyProcess.start({ netns, args });
  await untilDropped(netns, "ip", ["10.96.0.0/16"]);
  await untilDropped(netns, "ip6", ["fd00:10:96::/112"]);
  const from = kproxy.lines.length;
  const run = async (flows: FlowCase["flows"]): Promise<void> => {
    const flowCase = { ...CASE, flows };
    assertEquals(await new LabFlowCase(lab, flowCase, { mode: "nftables" }).run(() => undefined), []);
  };
  const other = "198.51.100.9@eth0 → 10.98.0.1:80/udp";
  await run([`${other} ⇒ untranslated`]);
  await kapi.put(MORE);
  await untilDropped(netns, "ip", ["10.96.0.0/16", "10.98.0.0/24"]);
  // An established flow would have to be older than the rule.
  await run(CASE.flows.filter((step) => typeof step !== "string" || !step.includes("ESTABLISHED")));
  await kapi.remove(MORE);
  await untilDropped(netns, "ip", ["10.96.0.0/16"]);
  await run([`${other} ⇒ untranslated`, "10.244.0.5@cni0 → 10.96.9.9:80 ⇒ dropped"]);
  // Each of them was a change: nothing was read, and nothing else written. What follows the first lists may still come, and writes nothing.
  const syncs = kproxy.lines.slice(from).filter(({ msg, full, rulesWritten }) =>
    msg === "Synced rules" && (full === true || rulesWritten !== 0)
  );
  assertEquals(
    syncs.map(({ family, full }) => [family, full]),
    [["IPv4", false], ["IPv4", false]],
    kproxy.log,
  );
});
