/**
 * Which IP families a node comes to serve when a program gives no answer at the start, and what is said of a family that it cannot
 * have while the cluster counts on it.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { service } from "../flows/objects.ts";
import { httpGet } from "../support/http_get.ts";
import { KproxyProcess, type LogLine } from "../support/kproxy_process.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { type Netns, withNetns } from "../support/netns.ts";
import { e2eTest, program } from "../support/skip.ts";
import { StubProgram } from "../support/stub_program.ts";

const NEEDS = [...WEB_NEEDS, ...["nft", "curl"].map(program)];
const SERVICE = service("shop/web", { clusterIPs: ["10.96.0.1", "fd00:96::1"], ports: ["http:80"] });
const AGAIN = "A program gave no answer, asking again";
const FIRST_SYNC = "First sync done, Services are served";
const KILLED = "kill -KILL $$";

/** A program that looks whether IPv6 works. */
const PROBES = [
  { mode: "iptables", name: "ip6tables", args: "*-S POSTROUTING*" },
  { mode: "iptables", name: "sysctl", args: "*disable_ipv6*" },
  { mode: "nftables", name: "nft", args: "-c -f -" },
  { mode: "nftables", name: "nft", args: "--version" },
];

async function withManifests(work: (netns: Netns, args: readonly string[]) => Promise<void>): Promise<void> {
  await using manifests = await LabManifests.create();
  await manifests.replace("web.json", [SERVICE]);
  await withNetns((netns) => work(netns, [`--manifests=${manifests.folder}`, "--hostname-override=node-a"]));
}

function linesOf(lines: readonly LogLine[], msg: string): readonly LogLine[] {
  return lines.filter((line) => line.msg === msg);
}

for (const { mode, name, args } of PROBES) {
  e2eTest(
    `both families are served after one ${name} ${args} that was killed, mode ${mode}`,
    NEEDS,
    async () => {
      await withManifests(async (netns, ours) => {
        await using stub = await StubProgram.create(name, args, KILLED, 1);
        const options = { netns, args: [...ours, `--proxy-mode=${mode}`], path: stub.folder };
        await using kproxy = await KproxyProcess.start(options);
        const [again] = linesOf(kproxy.lines, AGAIN);
        assertEquals(again?.["program"], name, kproxy.log);
        assertMatch(String(again?.["problem"]), /was killed by signal SIGKILL$/);
        assertEquals((await kproxy.stop()).code, 0, kproxy.log);
      });
    },
  );
}

e2eTest("a start whose ip6tables is always killed ends with status 1, and says so", NEEDS, async () => {
  await withManifests(async (netns, ours) => {
    await using stub = await StubProgram.create("ip6tables", "*-S POSTROUTING*", KILLED);
    const options = { netns, args: [...ours, "--proxy-mode=iptables"], path: stub.folder };
    await using kproxy = KproxyProcess.spawn(options);
    assertEquals((await kproxy.ended()).code, 1, kproxy.log);
    assertEquals(linesOf(kproxy.lines, AGAIN).length, 3);
    assertMatch(
      kproxy.lines.at(-1)?.msg ?? "",
      /^Error: Command "ip6tables .*" was killed by signal SIGKILL$/,
    );
  });
});

for (const mode of ["iptables", "nftables"] as const) {
  e2eTest(
    `IPv6 that is off while the cluster counts on it is reported, and served once it is on, mode ${mode}`,
    NEEDS,
    async () => {
      await withManifests(async (netns, ours) => {
        const args = [...ours, `--proxy-mode=${mode}`, "--iptables-sync-period=1s"];
        await using former = await KproxyProcess.start({ netns, args });
        await former.stop();
        await netns.run(["sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=1"]);
        await using kproxy = await KproxyProcess.start({ netns, args }, 1);
        await kproxy.untilMessage("The cluster counts on an IP family that this node cannot serve");
        const events = linesOf(kproxy.lines, "Event").filter((line) =>
          line["reason"] === "IPFamilyNotServed"
        );
        assertEquals(events.length, 1, kproxy.log);
        const use = "rules of an earlier start are there, and no proxy updates them";
        const reason = "IPv6 is not supported here: needs net.ipv6.conf.all.disable_ipv6 = 0, found 1";
        assertEquals(events[0]?.["note"], `cannot serve IPv6, although ${use}: ${reason}`);
        const ready = JSON.parse((await httpGet(netns, "http://127.0.0.1:10256/readyz")).body);
        assertEquals([ready.ready, ready.unserved], [true, { IPv6: { reason, use } }]);
        assert(!kproxy.lines.some(({ msg }) => msg === AGAIN), kproxy.log);

        // What is switched on later is served without a new process.
        const from = kproxy.lines.length;
        await netns.run(["sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=0"]);
        await kproxy.until(
          "the first sync of IPv6",
          (lines) => lines.some(({ msg, family }) => msg === FIRST_SYNC && family === "IPv6"),
          from,
        );
        assertEquals((await kproxy.stop()).code, 0, kproxy.log);
      });
    },
  );
}
