/**
 * Ends and starts of kproxy while clients connect: the rules stay, the next process takes them over, and no connection fails. By SIGTERM and
 * SIGKILL, in all modes: `switches_test.ts`, `tests/lab/ipvs_switches_in_uml.ts`.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { NFTABLES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WEB_PODS, WebLab, webSlice } from "../support/lab_web.ts";
import { pathExists } from "../support/path_exists.ts";
import { e2eTest } from "../support/skip.ts";
import { until } from "../support/until.ts";
import { CLUSTER, servers } from "../support/web_changes.ts";
import { tempFolder } from "../support/temp_files.ts";

/** How often something is tried that a machine may leave no time for. */
const TRIES = 5;
const [A, B, C] = WEB_PODS;

e2eTest(
  "what changed while kproxy was away is in force after its start, without a gap",
  [...WEB_NEEDS, ...NFTABLES.needs],
  async () => {
    await using web = await WebLab.create(NFTABLES);
    {
      await using kproxy = await web.start();
      await kproxy.stop("SIGKILL");
    }
    const running = await web.loop(web.pod, CLUSTER);
    await running.answeredFor(250);
    await web.manifests.replace("endpoints.json", [webSlice([B, C])]);
    await using _kproxy = await web.start();
    // What began before may still be on its way.
    await running.resting(() => Promise.resolve());
    const { byServer } = await running.report();
    await running.answeredFor(800);
    const later = (await running.stopUnbroken()).byServer;
    const [ofA, ofC] = servers([A, C]) as [string, string];
    assertEquals(later[ofA], byServer[ofA]);
    assert((later[ofC] ?? 0) > 0);
  },
);

e2eTest("a second signal ends kproxy at once, even in the middle of a sync", WEB_NEEDS, async () => {
  await using web = await WebLab.create();
  await using temporary = await tempFolder();
  const bin = temporary.path;
  // A program that never comes back, as one that waits for the lock of the tables does.
  const never = `#!/bin/sh
case "$*" in *--version*) exec /usr/sbin/iptables-restore "$@";; esac
touch ${bin}/waiting
exec sleep 600
`;
  await Deno.writeTextFile(`${bin}/iptables-restore`, never, { mode: 0o755 });
  // A machine that stands still leaves a sync under way all the time that it is given: then it ends by itself, and says so.
  let isUnfinished = true;
  for (let tries = 0; tries < TRIES && isUnfinished; tries++) {
    await using kproxy = KproxyProcess.spawn({ ...web.options(), path: bin });
    await until(() => pathExists(`${bin}/waiting`));
    kproxy.kill("SIGTERM");
    await kproxy.untilMessage("Stopping, rules stay in place");
    assertEquals((await kproxy.stop("SIGTERM")).code, 0, kproxy.log);
    isUnfinished = kproxy.log.includes("Left a sync unfinished");
    await Deno.remove(`${bin}/waiting`);
  }
  assertEquals(isUnfinished, false, "the second signal ended nothing");
});

e2eTest("kproxy says why it does not start, with the exit code for it", WEB_NEEDS, async (t) => {
  await using web = await WebLab.create();
  const cases: readonly [name: string, args: readonly string[], code: number, says: RegExp][] = [
    ["a wrong value", ["--iptables-masquerade-bit=32"], 2, /masquerade/i],
    ["a manifest path that is not there", ["--manifests=/nowhere/at/all"], 2, /\/nowhere\/at\/all/],
    ["a kubeconfig that is not there", ["--kubeconfig=/nowhere/conf"], 2, /\/nowhere\/conf: cannot be read/],
  ];
  const { netns } = web.lab.node;
  const readSettings = () => netns.run(["sysctl", "net.netfilter.nf_conntrack_tcp_timeout_established"]);
  const settings = await readSettings();
  for (const [name, args, code, says] of cases) {
    await t.step(name, async () => {
      const wanted = ["--conntrack-tcp-timeout-established=1h", ...args];
      await using kproxy = KproxyProcess.spawn(web.options(wanted));
      const status = await kproxy.ended();
      assertEquals(status.code, code, kproxy.log);
      assertMatch(kproxy.log, says);
      assertEquals((await netns.run(["iptables-save", "-t", "nat"])).includes("KUBE-"), false);
      assertEquals(await readSettings(), settings, "nothing of the node was touched");
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
