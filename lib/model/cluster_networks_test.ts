import { assertEquals } from "@std/assert";
import { likelyClusterCidrs } from "./cluster_networks.ts";

Deno.test("the likely clusterCIDR holds the networks of all Nodes, and room for more", {
  permissions: "none",
}, () => {
  const table: readonly (readonly [podCIDRs: readonly string[], IPv4: string | null, IPv6: string | null])[] =
    [
      [[], null, null],
      [["10.244.3.0/24"], "10.244.0.0/16", null],
      [["10.244.0.0/24", "10.244.1.0/24", "10.244.255.0/24"], "10.244.0.0/16", null],
      [["10.244.0.0/24", "10.245.0.0/24"], "10.244.0.0/15", null],
      [["10.128.0.0/23", "10.128.2.0/23"], "10.128.0.0/16", null],
      [["172.16.5.64/26", "172.16.5.128/26"], "172.16.5.0/24", null],
      [["fd00:10:244:1::/64", "10.244.1.0/24"], "10.244.0.0/16", "fd00:10:244::/56"],
      [["fd44:1::/64", "fd44:2::/64"], null, "fd44::/30"],
      [["10.0.0.0/24", "172.16.0.0/24", "none"], null, null],
    ];
  for (const [podCIDRs, IPv4, IPv6] of table) {
    const likely = likelyClusterCidrs(podCIDRs);
    assertEquals([podCIDRs, likely.get("IPv4") ?? null, likely.get("IPv6") ?? null], [podCIDRs, IPv4, IPv6]);
  }
});
