import { assertEquals, assertThrows } from "@std/assert";
import {
  isNodeEligible,
  type LocalDetectorConfig,
  matchingNodeIps,
  nodeIps,
  nodePortAddresses,
  nodeZone,
  selectLocalDetector,
} from "./node.ts";
import type { IpFamily, NodeObject } from "./objects.ts";
import { testNode } from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

/** Addresses written `type=address`. */
function nodeWith(...addresses: string[]): NodeObject {
  return testNode({
    addresses: addresses.map((text) => {
      const [type = "", address = ""] = text.split("=");
      return { type, address };
    }),
  });
}

Deno.test("node IPs come from the Node and the bind address", pure, () => {
  const dual = nodeWith(
    "Hostname=node-a",
    "InternalIP=192.168.1.5",
    "InternalIP=fd00::5",
    "ExternalIP=203.0.113.5",
  );
  const table: readonly [string, NodeObject | null, string, IpFamily, string, string, boolean][] = [
    ["no node", null, "", "IPv4", "127.0.0.1", "::1", true],
    ["no node, wildcard bind address", null, "0.0.0.0", "IPv4", "127.0.0.1", "::1", true],
    ["no node, IPv6 wildcard", null, "::", "IPv4", "127.0.0.1", "::1", true],
    ["dual stack", dual, "0.0.0.0", "IPv4", "192.168.1.5", "fd00::5", false],
    [
      "IPv6 first",
      nodeWith("InternalIP=fd00::5", "InternalIP=10.0.0.5"),
      "",
      "IPv6",
      "10.0.0.5",
      "fd00::5",
      false,
    ],
    ["external only", nodeWith("ExternalIP=203.0.113.5"), "", "IPv4", "203.0.113.5", "::1", false],
    [
      "internal before external",
      nodeWith("ExternalIP=203.0.113.5", "InternalIP=10.0.0.5"),
      "",
      "IPv4",
      "10.0.0.5",
      "::1",
      false,
    ],
    [
      "other family external",
      nodeWith("InternalIP=10.0.0.5", "ExternalIP=2001:db8::5"),
      "",
      "IPv4",
      "10.0.0.5",
      "2001:db8::5",
      false,
    ],
    [
      "first of each family",
      nodeWith("InternalIP=10.0.0.5", "InternalIP=10.0.0.6"),
      "",
      "IPv4",
      "10.0.0.5",
      "::1",
      false,
    ],
    [
      "unparsable skipped",
      nodeWith("InternalIP=x", "InternalIP=010.0.0.5"),
      "",
      "IPv4",
      "10.0.0.5",
      "::1",
      false,
    ],
    ["bind address of the same family", dual, "10.9.9.9", "IPv4", "10.9.9.9", "fd00::5", false],
    ["bind address of the other family", dual, "fd00::9", "IPv6", "192.168.1.5", "fd00::9", false],
    ["loopback bind address", dual, "127.0.0.1", "IPv4", "127.0.0.1", "fd00::5", true],
    ["bind address without a node", null, "fd00::9", "IPv6", "127.0.0.1", "fd00::9", false],
  ];
  for (const [what, node, bindAddress, primaryFamily, IPv4, IPv6, primaryIsLoopback] of table) {
    assertEquals([what, nodeIps(node, bindAddress)], [what, {
      primaryFamily,
      IPv4,
      IPv6,
      primaryIsLoopback,
      areMissing: node !== null && IPv4 === "127.0.0.1" && IPv6 === "::1",
    }]);
  }
});

const OWN = nodeIps(nodeWith("InternalIP=192.168.1.5"), "");

Deno.test("node-port addresses are chosen per family", pure, () => {
  const table: readonly [string[] | null, IpFamily, boolean, boolean, string[]][] = [
    [null, "IPv4", true, true, ["0.0.0.0/0"]],
    [null, "IPv6", true, false, ["::/0"]],
    [[], "IPv4", true, true, ["0.0.0.0/0"]],
    [["192.168.1.9/24"], "IPv4", false, false, ["192.168.1.0/24"]],
    [["192.168.1.9/24"], "IPv6", true, false, ["::/0"]],
    [["fd00::/64"], "IPv4", true, true, ["0.0.0.0/0"]],
    [["fd00::/64"], "IPv6", false, false, ["fd00::/64"]],
    [["10.0.0.0/8", "0.0.0.0/0", "127.0.0.0/8"], "IPv4", true, true, ["0.0.0.0/0"]],
    [["10.0.0.0/8", "1.2.3.4/0"], "IPv4", true, true, ["0.0.0.0/0"]],
    [["127.0.0.0/8"], "IPv4", false, true, ["127.0.0.0/8"]],
    [["127.0.0.1/32"], "IPv4", false, true, ["127.0.0.1/32"]],
    [["126.0.0.0/7"], "IPv4", false, true, ["126.0.0.0/7"]],
    [["128.0.0.0/1"], "IPv4", false, false, ["128.0.0.0/1"]],
    [["10.0.0.0/8", "127.0.0.0/8"], "IPv4", false, true, ["10.0.0.0/8", "127.0.0.0/8"]],
    [["::1/128"], "IPv6", false, false, ["::1/128"]],
    [["primary"], "IPv4", false, false, ["192.168.1.5/32"]],
    [["primary"], "IPv6", true, false, ["::/0"]],
    [["primary", "10.0.0.0/8"], "IPv4", false, false, ["192.168.1.5/32", "10.0.0.0/8"]],
    [["localhost"], "IPv4", false, true, ["127.0.0.0/8"]],
    [["localhost"], "IPv6", false, false, ["::1/128"]],
    [["all"], "IPv4", true, true, ["0.0.0.0/0"]],
    [["all"], "IPv6", true, false, ["::/0"]],
    [["primary", "localhost"], "IPv4", false, true, ["192.168.1.5/32", "127.0.0.0/8"]],
  ];
  for (const [configured, family, matchAll, containsIPv4Loopback, cidrs] of table) {
    const got = nodePortAddresses(family, configured, OWN);
    assertEquals([
      configured,
      family,
      got.matchAll,
      got.containsIPv4Loopback,
      got.cidrs.map((cidr) => cidr.text),
    ], [
      configured,
      family,
      matchAll,
      containsIPv4Loopback,
      cidrs,
    ]);
  }
  assertEquals(nodePortAddresses("IPv4", ["primary"]).matchAll, true);
  assertThrows(() => nodePortAddresses("IPv4", ["10.0.0.1"]), SyntaxError, '"10.0.0.1" is not a CIDR');
});

Deno.test("matching host addresses are sorted, listed once and of the family", pure, () => {
  const host = [
    "192.168.1.9",
    "fe80::1%eth0",
    "127.0.0.1",
    "::1",
    "192.168.1.10",
    "10.0.0.1",
    "192.168.1.9",
    "fd00::7",
  ];
  const match = (family: IpFamily, configured: string[] | null): readonly string[] =>
    matchingNodeIps(nodePortAddresses(family, configured), host);
  assertEquals(match("IPv4", null), ["10.0.0.1", "127.0.0.1", "192.168.1.10", "192.168.1.9"]);
  assertEquals(match("IPv6", null), ["::1", "fd00::7", "fe80::1"]);
  assertEquals(match("IPv4", ["192.168.1.0/24"]), ["192.168.1.10", "192.168.1.9"]);
  assertEquals(match("IPv4", ["192.168.1.9/32", "10.0.0.0/8"]), ["10.0.0.1", "192.168.1.9"]);
  assertEquals(match("IPv6", ["192.168.1.0/24"]), ["::1", "fd00::7", "fe80::1"]);
  assertEquals(match("IPv4", ["172.16.0.0/12"]), []);
});

const DETECTION: LocalDetectorConfig = {
  mode: "ClusterCIDR",
  clusterCIDR: "",
  podCIDRs: [],
  bridgeInterface: "",
  interfaceNamePrefix: "",
};

Deno.test("the local detector follows the mode and the family", pure, () => {
  const cidr = (text: string) => ({ kind: "cidr", cidr: text });
  const none = { kind: "none" };
  const both = "10.244.3.0/16, fd00:10:244::/64";
  const table: readonly [Partial<LocalDetectorConfig>, IpFamily, unknown, string | null][] = [
    [{ clusterCIDR: "10.244.3.0/16" }, "IPv4", cidr("10.244.0.0/16"), null],
    [{ clusterCIDR: both }, "IPv4", cidr("10.244.0.0/16"), null],
    [{ clusterCIDR: both }, "IPv6", cidr("fd00:10:244::/64"), null],
    [{ clusterCIDR: "10.1.0.0/16,10.2.0.0/16" }, "IPv4", cidr("10.1.0.0/16"), null],
    [{ clusterCIDR: "10.1.0.0/16" }, "IPv6", none, "wrongFamily"],
    [{ clusterCIDR: "" }, "IPv4", none, "unset"],
    [{ clusterCIDR: "10.1.0.0/16", mode: "NodeCIDR" }, "IPv4", none, "unset"],
    [{ mode: "NodeCIDR", podCIDRs: ["10.244.1.0/24", "fd00::/80"] }, "IPv4", cidr("10.244.1.0/24"), null],
    [{ mode: "NodeCIDR", podCIDRs: ["10.244.1.0/24", "fd00::/80"] }, "IPv6", cidr("fd00::/80"), null],
    [{ mode: "NodeCIDR", podCIDRs: ["fd00::/80"] }, "IPv4", none, "wrongFamily"],
    [{ mode: "BridgeInterface", bridgeInterface: "cbr0" }, "IPv6", { kind: "interface", name: "cbr0" }, null],
    [{ mode: "BridgeInterface" }, "IPv4", none, "unset"],
    [
      { mode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
      "IPv4",
      { kind: "interfacePrefix", prefix: "veth" },
      null,
    ],
    [{ mode: "InterfaceNamePrefix" }, "IPv4", none, "unset"],
  ];
  for (const [config, family, detector, problem] of table) {
    const got = selectLocalDetector(family, { ...DETECTION, ...config });
    assertEquals<unknown>([config, family, got.detector, got.problem?.kind ?? null], [
      config,
      family,
      detector,
      problem,
    ]);
  }
  assertEquals(
    selectLocalDetector("IPv6", { ...DETECTION, clusterCIDR: "10.1.0.0/16" }).problem?.message,
    "clusterCIDR has no IPv6 network; local IPv6 traffic is not detected",
  );
  assertThrows(
    () => selectLocalDetector("IPv4", { ...DETECTION, clusterCIDR: "10.1.0.0" }),
    SyntaxError,
    '"10.1.0.0" is not a CIDR',
  );
});

Deno.test("a node is eligible while it is known, stays, and is not about to be removed", pure, () => {
  assertEquals(isNodeEligible(null), false);
  assertEquals(isNodeEligible(testNode()), true);
  assertEquals(isNodeEligible(testNode({ taintKeys: ["node.kubernetes.io/not-ready"] })), true);
  assertEquals(isNodeEligible(testNode({ taintKeys: ["a", "ToBeDeletedByClusterAutoscaler"] })), false);
  assertEquals(isNodeEligible(testNode({ deleting: true })), false);
});

Deno.test("the zone is the value of its label, or empty", pure, () => {
  assertEquals(nodeZone(null), "");
  assertEquals(nodeZone(testNode()), "");
  assertEquals(nodeZone(testNode({ labels: { "topology.kubernetes.io/zone": "z1" } })), "z1");
});

Deno.test(
  "node ports wait for the node's address where it is not known, unless others are named",
  pure,
  () => {
    const without = nodeIps(nodeWith(), "");
    assertEquals(without.areMissing, true);
    assertEquals(nodeIps(nodeWith("InternalIP=fd00::5"), "").areMissing, false);
    assertEquals(nodeIps(nodeWith("InternalIP=192.168.1.5"), "").areMissing, false);
    const none = { matchAll: false, containsIPv4Loopback: false, cidrs: [] };
    assertEquals(nodePortAddresses("IPv4", ["primary"], without), none);
    for (const configured of [null, [], ["fd00::/64"]]) {
      assertEquals(nodePortAddresses("IPv4", configured, without).matchAll, true);
    }
  },
);
