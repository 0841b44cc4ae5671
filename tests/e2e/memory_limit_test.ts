/**
 * The memory limit of a Pod that is too low for the cluster: the kernel ends kproxy in the middle of its first sync, and again at each
 * start. Who connects meanwhile does not notice, and the start with a limit that is right completes.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { CONTROL_GROUPS, MemoryCgroup } from "../bench/memory_cgroup.ts";
import { anonymousMemory } from "../bench/process_costs.ts";
import { service, slice } from "../flows/objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { IPTABLES, NFTABLES } from "../support/lab_mode.ts";
import { WEB_NEEDS, WebLab } from "../support/lab_web.ts";
import { e2eTest } from "../support/skip.ts";
import { CLUSTER, NODE_PORT } from "../support/web_changes.ts";

/** The cluster has grown by so many Services, of ten endpoints each. */
const SERVICES = 1_500;
/** Beside what it takes to begin: less than the objects of the cluster take. */
const TOO_LITTLE_MB = 8;
/** As deploy/ has it. */
const POD_MB = 1_074;
const FIRST_SYNC = "First sync done, Services are served";

const GROWN = Array.from({ length: SERVICES }, (_, index) => {
  const [name, byte] = [`shop/grown-${index}`, `${Math.floor(index / 250)}.${index % 250 + 1}`];
  const pods = Array.from({ length: 10 }, (_, pod) => `10.${130 + pod}.${byte}@node-b`);
  return [
    service(name, { clusterIP: `10.97.${byte}`, ports: ["http:80"] }),
    slice(`${name}.1`, ["http:8080"], pods),
  ];
});

for (const mode of [IPTABLES, NFTABLES]) {
  const needs = [...WEB_NEEDS, ...mode.needs, CONTROL_GROUPS];
  e2eTest(
    `a Pod's memory limit that ends kproxy in its first sync costs no connection, ${mode.name}`,
    needs,
    async () => {
      await using web = await WebLab.create(mode);
      await using cgroup = await MemoryCgroup.create();
      const as = {
        // A namespace has a /sys of its own, without groups.
        prefix: [...cgroup.starter, "ip", "netns", "exec", web.lab.node.netns.name],
        deno: Deno.execPath(),
      };
      const options = { netns: null, args: web.options().args, as };
      {
        await using kproxy = await web.start();
        await kproxy.stop();
      }
      const loops = [await web.loop(web.pod, CLUSTER), await web.loop(web.client, NODE_PORT)];
      const before = await web.rules();
      await web.manifests.replace("grown.json", GROWN.flat());
      {
        await using kproxy = KproxyProcess.spawn(options);
        await kproxy.untilMessage("Watching");
        // Pages of files are given back before anybody is ended.
        const anonymousMb = await anonymousMemory(kproxy.pid);
        await cgroup.limit(anonymousMb + (await cgroup.memory()).kernelMb + TOO_LITTLE_MB);
        const { signal } = await kproxy.ended();
        assertEquals([signal, kproxy.log.includes(FIRST_SYNC)], ["SIGKILL", false], kproxy.log);
      }
      await loops[0]!.answeredFor(400);
      assertEquals(await web.rules(), before, "rules after the end");
      await cgroup.limit(POD_MB);
      await using kproxy = await KproxyProcess.start(options);
      await loops[0]!.answeredFor(400);
      for (const loop of loops) await loop.stopUnbroken();
      const rules = await web.rules();
      assertEquals(GROWN.filter((_, i) => !rules.includes(`shop/grown-${i}:http`)).length, 0);
      assertEquals((await kproxy.stop()).code, 0);
    },
  );
}
