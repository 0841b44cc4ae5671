/**
 * `--init-only` with all rights, then `run` with CAP_NET_ADMIN and CAP_NET_RAW and nothing else: as root without its
 * other capabilities, and as the user nobody; and where kernel settings cannot be written at all.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { kproxy as runToEnd } from "../cli/kproxy.ts";
import { asNobody, boundingSet, NOBODY } from "../support/as_nobody.ts";
import { ConnectLoop } from "../support/connect_loop.ts";
import { KproxyProcess, type RunAs } from "../support/kproxy_process.ts";
import { WEB_CLUSTER_IP, WEB_NEEDS, WEB_PODS, WEB_PORT, WebLab, webSlice } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";

const NEEDS = [...WEB_NEEDS, program("setpriv")];
const CAN = ["net_admin", "net_raw"];
/** CAP_NET_ADMIN and CAP_NET_RAW as /proc shows them. */
const CAPABILITIES = "0000000000003000";

const AS_ROOT: RunAs = {
  prefix: ["setpriv", boundingSet(CAN), "--inh-caps=-all"],
  deno: Deno.execPath(),
};

const CASES: readonly [
  who: string,
  uid: number,
  run: (work: (as: RunAs) => Promise<void>) => Promise<void>,
][] = [
  ["root without its other capabilities", 0, (work) => work(AS_ROOT)],
  ["nobody with two capabilities", NOBODY, (work) => asNobody(CAN, work)],
];

for (const [who, uid, run] of CASES) {
  e2eTest(`after --init-only, ${who} programs rules and follows changes`, NEEDS, async () => {
    await using web = await WebLab.create();
    await Deno.chmod(web.manifests.folder, 0o755);
    const options = web.options();
    const init = await runToEnd(["run", "--init-only", ...options.args], { netns: options.netns.name });
    assertEquals(init.code, 0, init.err);
    assert(!(await options.netns.run(["iptables-save"])).includes("KUBE-"), "no rules yet");
    await run(async (as) => {
      await using kproxy = await KproxyProcess.start({ ...options, as });
      const status = await Deno.readTextFile(`/proc/${kproxy.pid}/status`);
      assertEquals(/^CapEff:\s+(\w+)$/m.exec(status)?.[1], CAPABILITIES);
      assertEquals(/^Uid:\s+(\d+)/m.exec(status)?.[1], String(uid));
      const said = kproxy.lines.map(({ msg }) => msg);
      assert(!said.includes("Set sysctl"), "what --init-only has set is not set again");
      const loop = await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT });
      await loop.answered(50);
      await kproxy.change(
        () => web.manifests.replace("endpoints.json", [webSlice(WEB_PODS.slice(1))]),
        "shop/web",
      );
      await loop.answered(50);
      await loop.stopUnbroken();
      // Lowering the score of one's own process needs CAP_SYS_RESOURCE.
      await kproxy.untilMessage("OOM score stays as it is");
      const refused = kproxy.lines.find(({ msg }) => msg === "OOM score stays as it is");
      assert(String(refused?.problem).includes("choom"), kproxy.log);
      assertEquals((await kproxy.stop()).code, 0);
    });
  });
}

/** As a container without privileges has it. */
const READ_ONLY_SYSCTLS: RunAs = {
  prefix: [
    "sh",
    "-c",
    'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0" "$@"',
  ],
  deno: Deno.execPath(),
};

e2eTest(
  "with a read-only /proc/sys kproxy serves, and says which settings stay as they are",
  NEEDS,
  async () => {
    await using web = await WebLab.create();
    const options = web.options(["--conntrack-tcp-timeout-close-wait=35m"]);
    await using kproxy = await KproxyProcess.start({ ...options, as: READ_ONLY_SYSCTLS });
    const loop = await ConnectLoop.start(web.pod, { ip: WEB_CLUSTER_IP, port: WEB_PORT });
    await loop.answered(30);
    await loop.stopUnbroken();
    const event = kproxy.lines.find(({ reason }) => reason === "readOnlySysFS");
    const told = String(event?.note);
    assert(/nf_conntrack_tcp_timeout_close_wait is \d+ instead of 2100/.test(told), kproxy.log);
    assertEquals((await kproxy.stop()).code, 0);
  },
);
