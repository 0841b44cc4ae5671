/**
 * Ends and starts of kproxy while clients connect: the rules stay, the next one takes them over, and no connection fails.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { ConnectLoop } from "../support/connect_loop.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LAB_MODES } from "../support/lab_mode.ts";
import {
  WEB_CLUSTER_IP,
  WEB_NEEDS,
  WEB_NODE_PORT,
  WEB_PODS,
  WEB_PORT,
  WEB_TARGET_PORT,
  WebLab,
  webSlice,
} from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";

const [A, B, C] = WEB_PODS;
const CLUSTER = { ip: WEB_CLUSTER_IP, port: WEB_PORT };
const NODE_PORT = { ip: "192.0.2.10", port: WEB_NODE_PORT };

/** How it is ended, with which code, and what it says then. */
const ENDS = [["SIGTERM", 0, "Stopping"], ["SIGINT", 0, "Stopping"], ["SIGKILL", 137, ""]] as const;

for (
  const [mode, [signal, code, says]] of LAB_MODES.flatMap((mode) => ENDS.map((end) => [mode, end] as const))
) {
  e2eTest(`no connection fails while kproxy is ended by ${signal} and started again, ${mode.name}`, [
    ...WEB_NEEDS,
    ...mode.needs,
  ], async () => {
    await using web = await WebLab.create(mode);
    const loops = [];
    let before = "";
    {
      await using kproxy = await web.start();
      loops.push(await ConnectLoop.start(web.pod, CLUSTER), await ConnectLoop.start(web.client, NODE_PORT));
      await loops[0]!.answered(50);
      before = await web.rules();
      assertEquals((await kproxy.stop(signal)).code, code);
      assert(kproxy.log.includes(says), kproxy.log);
    }
    assertEquals(await web.rules(), before, "rules after the end");
    await loops[0]!.answered(50);
    {
      await using kproxy = await web.start();
      assertEquals(await web.rules(), before, "rules after the new start");
      await loops[0]!.answered(50);
      // It is not only there, it works.
      await kproxy.change(() => web.manifests.replace("endpoints.json", [webSlice([C])]), "shop/web");
      await loops[0]!.answered(50);
    }
    for (const loop of loops) {
      const { byServer } = await loop.stopUnbroken();
      assertEquals(Object.keys(byServer).sort(), [A, B, C].map((ip) => `${ip}:${WEB_TARGET_PORT}`));
    }
  });
}

for (const mode of LAB_MODES) {
  e2eTest(
    `what changed while kproxy was away is in force after its start, without a gap, ${mode.name}`,
    [...WEB_NEEDS, ...mode.needs],
    async () => {
      await using web = await WebLab.create(mode);
      {
        await using kproxy = await web.start();
        await kproxy.stop("SIGKILL");
      }
      const running = await ConnectLoop.start(web.pod, CLUSTER);
      await running.answered(30);
      await web.manifests.replace("endpoints.json", [webSlice([B, C])]);
      await using _kproxy = await web.start();
      const { byServer } = await running.report();
      await running.answered(100);
      const later = (await running.stopUnbroken()).byServer;
      assertEquals(later[`${A}:${WEB_TARGET_PORT}`], byServer[`${A}:${WEB_TARGET_PORT}`]);
      assert((later[`${C}:${WEB_TARGET_PORT}`] ?? 0) > 0);
    },
  );
}

e2eTest("a second signal ends kproxy at once, even in the middle of a sync", WEB_NEEDS, async () => {
  await using web = await WebLab.create();
  const bin = await Deno.makeTempDir({ prefix: "kproxy-bin-" });
  try {
    // A program that never comes back, as one that waits for the lock of the tables does.
    const never =
      `#!/bin/sh\ncase "$*" in *--version*) exec /usr/sbin/iptables-restore "$@";; esac\nexec sleep 60\n`;
    await Deno.writeTextFile(`${bin}/iptables-restore`, never, { mode: 0o755 });
    await using kproxy = KproxyProcess.spawn({ ...web.options(), path: bin });
    await kproxy.untilMessage("Manifests read");
    await new Promise((resolve) => setTimeout(resolve, 300));
    kproxy.kill("SIGTERM");
    await kproxy.untilMessage("Stopping, rules stay in place");
    // Well within the time that a sync under way is given.
    await new Promise((resolve) => setTimeout(resolve, 100));
    const start = performance.now();
    const { signal } = await kproxy.stop("SIGTERM");
    assertEquals(signal, "SIGTERM");
    assert(performance.now() - start < 1_000);
  } finally {
    await Deno.remove(bin, { recursive: true });
  }
});

e2eTest("kproxy says why it does not start, with the exit code for it", WEB_NEEDS, async (t) => {
  await using web = await WebLab.create();
  const cases: readonly [name: string, args: readonly string[], code: number, says: RegExp][] = [
    ["an unknown mode", ["--proxy-mode=ebpf"], 2, /ebpf.*(iptables|nftables)/],
    ["an unknown flag", ["--cluster-cdir=10.0.0.0/8"], 2, /--cluster-cdir.*did you mean.*--cluster-cidr/],
    ["a wrong value", ["--iptables-masquerade-bit=32"], 2, /masquerade/i],
    ["a manifest path that is not there", ["--manifests=/nowhere/at/all"], 2, /\/nowhere\/at\/all/],
  ];
  for (const [name, args, code, says] of cases) {
    await t.step(name, async () => {
      await using kproxy = KproxyProcess.spawn(web.options(args));
      const status = await kproxy.ended();
      assertEquals(status.code, code, kproxy.log);
      assertMatch(kproxy.log, says);
      assertEquals((await web.lab.node.netns.run(["iptables-save", "-t", "nat"])).includes("KUBE-"), false);
    });
  }
});

e2eTest(
  "networks of a family that the node does not have end kproxy before it writes a rule",
  WEB_NEEDS,
  async () => {
    await using web = await WebLab.create();
    const { netns } = web.lab.node;
    await netns.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"]);
    await using kproxy = KproxyProcess.spawn(web.options(["--cluster-cidr=fd00:10:244::/56"]));
    assertEquals((await kproxy.ended()).code, 2, kproxy.log);
    assertMatch(kproxy.log, /clusterCIDR: has no IPv4 network, but this node is only IPv4/);
    assert(!(await netns.run(["iptables-save"])).includes("KUBE-"));
  },
);
