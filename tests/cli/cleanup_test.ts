import { assertEquals, assertMatch } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { kproxy } from "./kproxy.ts";

const NEEDS = [ROOT_NAMESPACES, program("ip"), program("iptables-restore"), program("ip6tables-restore")];
const OBJECTS = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;

/** Chains that belong to the kubelet and stay. */
const KUBELET_REGEXP = /KUBE-FIREWALL/;

// What goes and what stays: tests/e2e/cleanup_modes_test.ts.
e2eTest("the flags of kube-proxy for a cleanup clean up, in both families", NEEDS, async () => {
  await withNetns(async (netns) => {
    const ways = [["run", "--cleanup"], ["--cleanup=true", "--proxy-mode=ipvs"], ["--cleanup-iptables"]];
    for (const argv of ways) {
      for (const tool of ["iptables", "ip6tables"]) {
        const text = "*nat\n:KUBE-SERVICES - [0:0]\n:OTHERS - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";
        await netns.run([`${tool}-restore`], { stdin: text });
      }
      const { code, out } = await kproxy(argv, { netns: netns.name });
      assertEquals([code, out.match(/^Removed .* of IPv[46] (?:nft|legacy)$/gm)?.length], [0, 2], out);
      for (const tool of ["iptables", "ip6tables"]) {
        assertEquals((await netns.run([`${tool}-save`])).match(/KUBE-\S+|^:OTHERS/gm), [":OTHERS"]);
      }
    }
  });
});

e2eTest(
  "cleanup without root says so in one line and ends with 1",
  [...NEEDS, program("setpriv")],
  async () => {
    await withNetns(async (netns) => {
      // Root's files stay readable, so that only the missing capability shows.
      const drop = ["setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all"];
      const { kproxyArgv } = await import("./kproxy.ts");
      const { code, stderr } = await netns.exec.run([...drop, Deno.execPath(), ...kproxyArgv(), "cleanup"]);
      assertEquals(code, 1, stderr);
      assertEquals(stderr, "Error: cleanup needs root or CAP_NET_ADMIN: nothing could be looked at\n");
    });
  },
);

e2eTest(
  "cleanup beside rules that nft added to tables of iptables: ours go, those stay",
  [...NEEDS, program("iptables-nft"), program("nft")],
  async () => {
    const native = ["tcp dport 4999 redirect to :5000", "meta mark set meta mark or 0x20"];
    for (const rule of native) {
      await withNetns(async (netns) => {
        const options = { netns: netns.name };
        const nft = (...args: readonly string[]): Promise<string> => netns.run(["nft", ...args]);
        const { out } = await kproxy(["render", OBJECTS, "--family=ipv4", "--hostname-override=node-a"]);
        await netns.run(["iptables-nft-restore", "--noflush"], { stdin: out });
        await netns.run(["iptables-nft", "-t", "nat", "-N", "OTHERS"]);
        await netns.run(["iptables-nft", "-t", "nat", "-A", "OTHERS", "-j", "KUBE-MARK-MASQ"]);
        // As a proxy that could not read the table has left it, and a rule for which iptables has no words in a chain of ours.
        await nft("add", "rule", "ip", "nat", "OUTPUT", ...rule.split(" "));
        await nft("add", "rule", "ip", "nat", "OUTPUT", "counter", "jump", "KUBE-SERVICES");
        await nft("add", "rule", "ip", "nat", "KUBE-SERVICES", ...rule.split(" "));
        await nft("add", "rule", "ip", "filter", "INPUT", "ct", "state", "invalid,new", "counter");

        const listed = await kproxy(["cleanup", "--dry-run"], options);
        assertEquals([listed.code, listed.err.replaceAll(/^.*KUBE-MARK-MASQ.*\n/gm, "")], [0, ""], rule);
        assertMatch(listed.out, /^IPv4 nft nat: delete chain ip nat KUBE-SERVICES$/m);
        const cleaned = await kproxy(["cleanup"], options);
        assertEquals(cleaned.code, 0, cleaned.err);
        const left = (await nft("-a", "list", "ruleset")).split("\n");
        assertEquals(
          left.filter((line) => line.includes("KUBE-") && !KUBELET_REGEXP.test(line)).map((line) =>
            /(chain|jump) KUBE-\S+/.exec(line)?.[0]
          ),
          // A rule of others leads there.
          ["chain KUBE-MARK-MASQ", "jump KUBE-MARK-MASQ"],
          rule,
        );
        // The native ones, and the mark that KUBE-MARK-MASQ goes on making.
        const kept = left.filter((line) => /dport 4999|meta mark set|ct state invalid/.test(line));
        assertEquals(
          kept.map((line) =>
            line.trim().replace(/ # handle.*/, "").replace(/(\||or) 0x0*20/, "or 0x20")
              // Cleanup asks over loopback whether a kproxy runs, which a rule of others counts.
              .replace(/packets \d+ bytes \d+/, "packets N")
          ),
          [
            "ct state invalid,new counter packets N",
            "counter packets N meta mark set mark or 0x4000",
            rule,
          ],
          left.join("\n"),
        );
        await nft("flush", "chain", "ip", "nat", "OTHERS");
        assertMatch((await kproxy(["cleanup"], options)).out, /^Removed 1 chains and jumps of IPv4 nft$/m);
        assertEquals((await kproxy(["cleanup"], options)).out, "Nothing to remove\n");
      });
    }
  },
);
