
import { assertEquals } from "@std/assert";
import { UdpLab } from "../support/lab_udp.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { NODE_OBJECT } from "../support/node_lab.ts";
for (const family of ["IPv4", "IPv6"] as const) Deno.test("x " + family, async () => {
  await using udp = await UdpLab.create(family);
  const [a, b] = udp.addresses.pods;
  await using manifests = await LabManifests.create();
  await manifests.replace("node.json", [NODE_OBJECT]);
  await manifests.replace("dns.json", udp.objects([a]));
  const args = ["--hostname-override=node-a", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--iptables-min-sync-period=0s", `--manifests=${manifests.folder}`];
  const senders = (["cluster IP","node port","second node address","external IP","load balancer IP"] as const).map((n) => udp.sender(n));
  {
  await using kproxy = await KproxyProcess.start({ netns: udp.lab.node.netns, args });
  await Promise.all(senders.map((s) => s.until(a)));
  await manifests.replace("dns.json", udp.objects([b]));
  await Promise.all(senders.map((s) => s.until(b)));
  
  await kproxy.stop("SIGKILL");
  }
  await manifests.replace("dns.json", udp.objects([a, b]));
  const marks = senders.map((s) => s.story.length);
  await using kproxy = await KproxyProcess.start({ netns: udp.lab.node.netns, args });
  await udp.untilServed(a);
  for (const [i, s] of senders.entries()) { await s.next(5); assertEquals([...new Set(s.story.slice(marks[i]))], [b]); }
  const from = kproxy.lines.length;
  await manifests.replace("dns.json", udp.objects([]));
  await Promise.all(senders.map((s) => s.until("refused")));
  (await kproxy.stop()).code, kproxy.lines.slice(from).map((l)=>JSON.stringify(l)).join("\n");
});
