/**
 * What `kproxy run` makes of the recorded worlds in mode ipvs, beside what kube-proxy made of them, inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/recorded_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { comparableTables, loadRecorded, NODE_ADDRESSES, withWorld, WORLDS } from "../recorded/recorded.ts";
import { withNetns } from "../support/netns.ts";

/** Lines in order, without what the kernel says of its own memory. */
function sortedLines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "")
    .map((line) => line.replace(/ (?:hashsize|bucketsize) \d+| initval 0x[0-9a-f]+/g, "").trimEnd()).sort();
}

for (const world of WORLDS) {
  Deno.test(`mode ipvs makes of ${world} what kube-proxy made`, async () => {
    const recorded = await loadRecorded(world, "ipvs");
    const wanted = (section: string): string[] => sortedLines((recorded.get(section) ?? []).join("\n"));
    await withNetns(async (netns) => {
      await netns.run(["ip", "link", "add", "eth0", "type", "dummy"]);
      for (const address of NODE_ADDRESSES) {
        await netns.run(["ip", "address", "add", address, "dev", "eth0"]);
      }
      await netns.run(["ip", "link", "set", "eth0", "up"]);
      await withWorld(world, "ipvs", netns, async () => {
        assertEquals(sortedLines(await netns.run(["ipvsadm", "-Sn"])), wanted("ipvs"));
        assertEquals(sortedLines(await netns.run(["ipset", "save"])), wanted("ipset"));
        const addresses = (await netns.run(["ip", "-o", "address", "show", "dev", "kube-ipvs0"])).split("\n");
        const bound = addresses.flatMap((line) => /inet6? \S+/.exec(line)?.[0] ?? []);
        assertEquals(
          bound.filter((address) => !address.startsWith("inet6 fe80:")).sort(),
          wanted("addresses"),
        );
        for (const tool of ["iptables", "ip6tables"]) {
          assertEquals(
            comparableTables((await netns.run([`${tool}-save`])).split("\n"), "ipvs"),
            comparableTables(recorded.get(tool) ?? [], "ipvs"),
            tool,
          );
        }
      });
    });
  });
}
