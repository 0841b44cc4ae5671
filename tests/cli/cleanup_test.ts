import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { withNetns } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { kproxy } from "./kproxy.ts";

const NEEDS = [ROOT_NAMESPACES, program("ip"), program("iptables-restore"), program("ip6tables-restore")];
const OBJECTS = `--manifests=${ROOT}/tests/golden/mixed-dual-stack/objects.yaml`;

/** Chains that belong to the kubelet and stay. */
const KUBELET_REGEXP = /KUBE-FIREWALL/;

e2eTest(
  "cleanup lists, then removes, what is in the kernel in both families, and nothing of others",
  NEEDS,
  async () => {
    const ways = [["cleanup"], ["run", "--cleanup"], ["--cleanup=true", "--proxy-mode=ipvs"], [
      "--cleanup-iptables",
    ]];
    for (const argv of ways) {
      await withNetns(async (netns) => {
        for (const [family, tool] of [["ipv4", "iptables"], ["ipv6", "ip6tables"]] as const) {
          const { out } = await kproxy([
            "render",
            OBJECTS,
            `--family=${family}`,
            "--hostname-override=node-a",
          ]);
          await netns.run([`${tool}-restore`, "--noflush"], { stdin: out });
          await netns.run([tool, "-t", "nat", "-N", "OTHERS"]);
          await netns.run([tool, "-t", "nat", "-A", "PREROUTING", "-j", "OTHERS"]);
        }
        const options = { netns: netns.name };
        const listed = await kproxy(["cleanup", "--dry-run"], options);
        assertEquals([listed.code, listed.err], [0, ""]);
        for (const family of ["IPv4", "IPv6"]) {
          assertMatch(listed.out, new RegExp(`^${family} (nft|legacy) nat: -X KUBE-SERVICES$`, "m"));
        }
        const { code, out } = await kproxy(argv, options);
        assertEquals(code, 0, argv.join(" "));
        const counts = [...out.matchAll(/^Removed (\d+) chains and jumps of IPv[46] (?:nft|legacy)$/gm)];
        const removed = counts.reduce((sum, [, count]) => sum + Number(count), 0);
        assertEquals(removed, listed.out.trimEnd().split("\n").length);
        for (const tool of ["iptables", "ip6tables"]) {
          const saved = await netns.run([`${tool}-save`]);
          const left = saved.split("\n").filter((line) =>
            line.includes("KUBE-") && !KUBELET_REGEXP.test(line)
          );
          assertEquals(left, [], argv.join(" "));
          assertStringIncludes(saved, "-A PREROUTING -j OTHERS\n");
        }
        assertEquals(await kproxy(["cleanup"], options), { code: 0, out: "Nothing to remove\n", err: "" });
      });
    }
  },
);

e2eTest(
  "cleanup without root says so in one line and ends with 1",
  [...NEEDS, program("setpriv")],
  async () => {
    await withNetns(async (netns) => {
      // Root's files stay readable, so that only the missing capability tells.
      const drop = ["setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all"];
      const { kproxyArgv } = await import("./kproxy.ts");
      const { code, stderr } = await netns.exec.run([...drop, Deno.execPath(), ...kproxyArgv(), "cleanup"]);
      assertEquals(code, 1, stderr);
      assertEquals(stderr, "Error: cleanup needs root or CAP_NET_ADMIN: nothing could be looked at\n");
    });
  },
);
