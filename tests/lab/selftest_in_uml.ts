/**
 * `kproxy selftest` in mode ipvs, to be run inside of the user-mode Linux: `tests/lab/uml.sh 'deno test -A tests/lab/selftest_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { kproxy } from "../cli/kproxy.ts";
import { saveAll } from "../support/lab_rules.ts";
import { withNetns } from "../support/netns.ts";

interface Check {
  readonly result: string;
  readonly family: string;
  readonly name: string;
  readonly reason: string;
}

Deno.test("kproxy selftest: this kernel runs mode ipvs, real packets say so, and nothing is left", async () => {
  await withNetns(async (netns) => {
    const servers = (): Promise<string> => netns.run(["ipvsadm", "-Sn"]);
    assertEquals(await servers(), "");
    // Every program takes a second to start here.
    const argv = ["selftest", "--proxy-mode=ipvs", "--time-limit=10m", "-o", "json"];
    const { code, out, err } = await kproxy(argv, { netns: netns.name });
    assertEquals(err, "");
    const { passed, mode, families, checks, notes } = JSON.parse(out);
    assertEquals((checks as Check[]).filter(({ result }) => result !== "ok"), []);
    assertEquals([code, passed, mode, families, notes], [0, true, "ipvs", ["IPv4", "IPv6"], []], out);
    assertEquals(checks.length, 22);
    // Where it was started, nothing has come to be.
    assertEquals([await servers(), await netns.run(["ipset", "list", "-name"])], ["", ""]);
    assertEquals((await saveAll(netns)).match(/KUBE-|^-A/gm), null);
    const left = (await netns.run(["ip", "netns", "list"])).split("\n");
    assertEquals(left.filter((line) => line.startsWith("kproxy-selftest-")), []);
  });
});
