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

const DUAL = nodeWith(
  "Hostname=node-a",
  "InternalIP=192.168.1.5",
  "InternalIP=fd00::5",
  "ExternalIP=203.0.113.5",
);

/** Node addresses and bind address, with the expected IPs of the node. */
interface NodeIpCase {
  readonly what: string;
  readonly node: NodeObject | null;
  readonly bind?: string;
  readonly primary?: IpFamily;
  readonly ips: readonly [IPv4: string, IPv6: string];
  readonly isLoopback?: boolean;
}

const NODE_IPS: readonly NodeIpCase[] = [
  { what: "no node", node: null, ips: ["127.0.0.1", "::1"], isLoopback: true },
  {
    what: "no node, wildcard bind address",
    node: null,
    bind: "0.0.0.0",
    ips: ["127.0.0.1", "::1"],
    isLoopback: true,
  },
  { what: "no node, IPv6 wildcard", node: null, bind: "::", ips: ["127.0.0.1", "::1"], isLoopback: true },
  { what: "dual stack", node: DUAL, bind: "0.0.0.0", ips: ["192.168.1.5", "fd00::5"] },
  {
    what: "IPv6 first",
    node: nodeWith("InternalIP=fd00::5", "InternalIP=10.0.0.5"),
    primary: "IPv6",
    ips: ["10.0.0.5", "fd00::5"],
  },
  { what: "external only", node: nodeWith("ExternalIP=203.0.113.5"), ips: ["203.0.113.5", "::1"] },
  {
    what: "internal before external",
    node: nodeWith("ExternalIP=203.0.113.5", "InternalIP=10.0.0.5"),
    ips: ["10.0.0.5", "::1"],
  },
  {
    what: "other family external",
    node: nodeWith("InternalIP=10.0.0.5", "ExternalIP=2001:db8::5"),
    ips: ["10.0.0.5", "2001:db8::5"],
  },
  {
    what: "first of each family",
    node: nodeWith("InternalIP=10.0.0.5", "InternalIP=10.0.0.6"),
    ips: ["10.0.0.5", "::1"],
  },
  {
    what: "unparsable skipped",
    node: nodeWith("InternalIP=x", "InternalIP=010.0.0.5"),
    ips: ["10.0.0.5", "::1"],
  },
  { what: "bind address of the same family", node: DUAL, bind: "10.9.9.9", ips: ["10.9.9.9", "fd00::5"] },
  {
    what: "bind address of the other family",
    node: DUAL,
    bind: "fd00::9",
    primary: "IPv6",
    ips: ["192.168.1.5", "fd00::9"],
  },
  {
    what: "loopback bind address",
    node: DUAL,
    bind: "127.0.0.1",
    ips: ["127.0.0.1", "fd00::5"],
    isLoopback: true,
  },
  {
    what: "bind address without a node",
    node: null,
    bind: "fd00::9",
    primary: "IPv6",
    ips: ["127.0.0.1", "fd00::9"],
  },
];

Deno.test("node IPs come from the Node and the bind address", pure, () => {
  for (const { what, node, bind = "", primary = "IPv4", ips: [IPv4, IPv6], isLoopback = false } of NODE_IPS) {
    assertEquals([what, nodeIps(node, bind)], [what, {
      primaryFamily: primary,
      IPv4,
      IPv6,
      primaryIsLoopback: isLoopback,
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
