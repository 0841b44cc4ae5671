/**
 * What `kproxy run` makes of the recorded worlds in mode iptables, beside what kube-proxy made of them.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { link, withNamespaces } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { comparableTables, loadRecorded, NODE_ADDRESSES, withWorld, WORLDS } from "./recorded.ts";

for (const [world, variant] of WORLDS.flatMap((world) => [[world, "nft"], [world, "legacy"]] as const)) {
  const needs = ["ip", `iptables-${variant}`, `ip6tables-${variant}`, "nfacct"].map(program);
  e2eTest(`mode iptables (${variant}) makes of ${world} the rules that kube-proxy made`, [
    ROOT_NAMESPACES,
    ...needs,
  ], async () => {
    const recorded = await loadRecorded(world, "iptables");
    await withNamespaces(2, async ([node, peer]) => {
      await link(
        { netns: node!, name: "eth0", addresses: NODE_ADDRESSES },
        { netns: peer!, name: "eth0", addresses: [] },
      );
      // By it a kubelet says which variant it uses.
      await node!.run([`iptables-${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
      await withWorld(world, "iptables", node!, async () => {
        for (const tool of ["iptables", "ip6tables"]) {
          const saved = (await node!.run([`${tool}-${variant}-save`])).split("\n");
          const own = saved.filter((line) => !line.startsWith(":KUBE-IPTABLES-HINT "));
          assertEquals(
            comparableTables(own, "iptables"),
            comparableTables(recorded.get(tool) ?? [], "iptables"),
            tool,
          );
        }
      });
    });
  });
}
