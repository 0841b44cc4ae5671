/**
 * Programs that hang, with children that hold their pipes: `kproxy run` names them and goes on, or ends.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { service, slice } from "../flows/objects.ts";
import { assertWithin } from "../support/busyness.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";
import { until } from "../support/until.ts";

/** One that the end of its parent does not end. */
const HANGS = "sleep 470 & wait";
const CHANGES = [[WEB_PODS[2]], WEB_PODS, [WEB_PODS[0]]];
const WAITING = "Waiting for a program";

e2eTest("a conntrack that hangs holds up no rules", WEB_NEEDS, async () => {
  await using web = await WebLab.create();
  await web.manifests.replace("dns.json", [
    service("shop/dns", { clusterIP: "10.96.0.10", ports: ["dns:53/UDP"] }),
    slice("shop/dns.1", ["dns:53/UDP"], ["10.244.0.11@node-a"]),
  ]);
  await using stub = await StubProgram.create("conntrack", "-L*", HANGS);
  await using kproxy = await KproxyProcess.start({ ...web.options(), path: stub.folder });
  await stub.started();
  const startMs = performance.now();
  for (const pods of CHANGES) {
    await web.manifests.replace("endpoints.json", [webSlice(pods)]);
    const wanted = pods.map((ip) => `${ip}:8080`);
    const served = async (): Promise<boolean> => {
      const rules = await web.lab.node.netns.run(["iptables-save", "-t", "nat"]);
      const now = [...rules.matchAll(/shop\/web:http.* --to-destination (\S+)/g)].map(([, to]) => to);
      return String(now.toSorted()) === String(wanted.toSorted());
    };
    await until(served, `serving ${wanted}`, { everyMs: 50 });
  }
  // Each takes some tenths of a second, and that program's limit is far longer.
  await assertWithin(performance.now() - startMs, 3_000, "three changes");
  await kproxy.untilMessage(WAITING);
  assertEquals(kproxy.lines.find(({ msg }) => msg === WAITING)?.["program"], "conntrack");
  assertEquals((await kproxy.stop()).code, 0, kproxy.log);
});

e2eTest(
  "a sysctl that hangs at the start is named, and a signal still ends the start",
  WEB_NEEDS,
  async () => {
    await using web = await WebLab.create();
    await using stub = await StubProgram.create("sysctl", "*", HANGS);
    await using kproxy = KproxyProcess.spawn({ ...web.options(), path: stub.folder });
    await kproxy.untilMessage(WAITING);
    assertEquals(kproxy.lines.find(({ msg }) => msg === WAITING)?.["program"], "sysctl");
    assertEquals((await kproxy.stop()).code, 0, kproxy.log);
  },
);
