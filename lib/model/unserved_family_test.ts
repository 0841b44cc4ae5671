import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/model_objects.ts";
import { unreadNode } from "./node.ts";
import { nodeUse, serviceUse } from "./unserved_family.ts";

const pure = { permissions: "none" } as const;

Deno.test("a Node speaks of a family by its first address of it, or else by a pod network", pure, () => {
  const node = {
    ...unreadNode("a"),
    addresses: [
      { type: "Hostname", address: "a" },
      { type: "InternalIP", address: "192.0.2.1" },
      { type: "ExternalIP", address: "203.0.113.1" },
    ],
    podCIDRs: ["10.244.0.0/24", "fd00:10:244::/64"],
  };
  assertEquals(nodeUse(node, "IPv4"), "Node a has the address 192.0.2.1");
  assertEquals(nodeUse(node, "IPv6"), "Node a has the pod CIDR fd00:10:244::/64");
  assertEquals(nodeUse({ ...node, podCIDRs: ["10.244.0.0/24"] }, "IPv6"), null);
});

Deno.test("a Service speaks of a family by its first cluster IP of it; None is of neither", pure, () => {
  const dual = testService({ name: "web", clusterIPs: ["10.96.0.9", "fd00:96::9"] });
  assertEquals(serviceUse(dual, "IPv4"), `Service ${dual.namespace}/web has the cluster IP 10.96.0.9`);
  assertEquals(serviceUse(dual, "IPv6"), `Service ${dual.namespace}/web has the cluster IP fd00:96::9`);
  assertEquals(serviceUse({ ...dual, clusterIPs: ["10.96.0.9"] }, "IPv6"), null);
  assertEquals(serviceUse({ ...dual, clusterIPs: ["None"] }, "IPv4"), null);
});
