import { assertEquals } from "@std/assert";
import { type FindingCase as Case, testFindings } from "../../../tests/support/finding_cases.ts";
import { testNode } from "../../../tests/support/model_objects.ts";
import { defaultConfig } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { checkClock } from "./api.ts";
import { checkLocalTraffic, checkNode, ipv6Use } from "./cluster.ts";
import { checkLock, checkMode, checkRights, checkVariant } from "./mode.ts";

const LOCK = { path: "/run/xtables.lock", exists: true, isMounted: false, isHeld: false } as const;
const HOST = { inContainer: false, isUsed: true };

const LOCKS: readonly Case[] = [
  ["free", checkLock(LOCK, HOST), ["ok /run/xtables.lock is free"]],
  ["not there", checkLock({ ...LOCK, exists: false }, HOST), ["ok /run/xtables.lock is not there yet"]],
  ["held", checkLock({ ...LOCK, isHeld: true }, HOST), [
    "warning another program has held /run/xtables.lock",
  ]],
  ["closed to us", checkLock({ ...LOCK, isHeld: null }, HOST), [
    "warning this user may not open /run/xtables.lock",
  ]],
  ["a container's own", checkLock(LOCK, { ...HOST, inContainer: true }), [
    "warning /run/xtables.lock looks like this",
  ]],
  ["the host's in a container", checkLock({ ...LOCK, isMounted: true }, { ...HOST, inContainer: true }), [
    "ok",
  ]],
  ["not used", checkLock({ ...LOCK, isHeld: true }, { ...HOST, isUsed: false }), [
    "ok not used: the nft variant",
  ]],
];

const works = {
  kind: "works",
  mode: "iptables",
  passedOver: [],
  refused: [],
  warnings: [],
} as const;
const noRights = { kind: "unusable", reason: "run needs root or CAP_NET_ADMIN", lacksRights: true } as const;

const MODES: readonly Case[] = [
  ["works", checkMode(works, "iptables"), ["ok iptables works here"]],
  ["a fallback", checkMode({ ...works, passedOver: [{ mode: "ipvs", reason: "no module" }] }, "ipvs"), [
    "warning mode ipvs cannot run here and gives way to iptables: ipvs: no module",
  ]],
  ["a family less", checkMode({ ...works, refused: [{ family: "IPv6", reason: "off" }] }, "iptables"), [
    "ok",
    "warning IPv6 is not served: off",
  ]],
  ["rights that are there", checkRights({ uid: 0, missing: [] }, works), [
    "ok root may read",
    "ok the runtime grants",
  ]],
  [
    "rights that are missing",
    checkRights({ uid: 65534, missing: [["--allow-net", "no API server"]] }, noRights),
    [
      "failure user 65534 has no CAP_NET_ADMIN",
      "warning the runtime does not grant --allow-net: no API server",
    ],
  ],
  ["rights that are not known", checkRights({ uid: null, missing: [] }, undefined), [
    "ok the runtime grants all",
  ]],
];

const chosen = { variant: "nft", reason: "nft is the system's default" } as const;
const variant = { chosen, systemDefault: null, otherHolds: [], unseen: [] };
const VARIANTS: readonly Case[] = [
  ["none works", checkVariant(null, "nftables"), []],
  [
    "one alone",
    checkVariant({ ...variant, systemDefault: { variant: "nft", version: "1.8.9" } }, "iptables"),
    [
      "ok nft: nft is the system's default",
    ],
  ],
  ["mode userspace has rules of iptables, too", checkVariant(variant, "userspace"), [
    "ok nft: nft is the system's default",
  ]],
  [
    "the other is the default",
    checkVariant({ ...variant, systemDefault: { variant: "legacy", version: "1.8.9" } }, "iptables"),
    ["ok nft", "warning the program iptables is the legacy variant"],
  ],
  ["one that this user may not see", checkVariant({ ...variant, unseen: ["legacy"] }, "nftables"), [
    "ok nft, which this mode does not use",
    "warning this user may not list the rules of the legacy variant: if there are some",
  ]],
];

const internal = (address: string) => ({ type: "InternalIP", address });
const machine = {
  nodeName: "a",
  ownIps: ["10.0.0.1"],
  bindAddress: "0.0.0.0",
  refused: [],
  allNodes: [],
} as const;
const NODES: readonly Case[] = [
  ["its own", checkNode(testNode({ name: "a", addresses: [internal("10.0.0.1")] }), machine), [
    "ok Node a: 10.0.0.1; IPv4",
  ]],
  ["none", checkNode(null, machine), ["failure the cluster has no Node a"]],
  ["without addresses", checkNode(testNode({ name: "a", addresses: [], podCIDRs: [] }), machine), [
    "warning Node a has no address",
  ]],
  ["another machine's", checkNode(testNode({ name: "a", addresses: [internal("10.0.0.2")] }), machine), [
    "warning none of the addresses of Node a (10.0.0.2)",
  ]],
  [
    "addresses that are not known",
    checkNode(testNode({ name: "a", addresses: [internal("10.0.0.2")] }), { ...machine, ownIps: null }),
    ["ok"],
  ],
  [
    "of a family that is not served",
    checkNode(
      testNode({ name: "a", addresses: [internal("10.0.0.1"), internal("fd00::1")] }),
      { ...machine, refused: ["IPv6"] },
    ),
    ["failure Node a has the address fd00::1, of an IP family"],
  ],
];

const dualStack = testNode({ addresses: [internal("10.0.0.1"), internal("fd00::1")] });
const localTraffic = (fields: Partial<KubeProxyConfiguration>, node: typeof dualStack | null = dualStack) =>
  checkLocalTraffic({ ...defaultConfig(), ...fields }, { mode: "iptables", node, allNodes: [] });
const all = { iptables: { ...defaultConfig().iptables, masqueradeAll: true } };
const LOCAL_TRAFFIC: readonly Case[] = [
  ["networks of both families", localTraffic({ clusterCIDR: "10.244.0.0/16,fd44::/16" }), [
    "ok told apart by ClusterCIDR",
  ]],
  ["none", localTraffic({}), [
    "warning clusterCIDR is empty; local traffic is not detected: what comes to cluster IPs from outside of the cluster is not",
  ]],
  ["none, and all is masqueraded", localTraffic(all), [
    "warning clusterCIDR is empty; local traffic is not detected: all traffic to cluster IPs is masqueraded",
  ]],
  ["none of a family that the Node has", localTraffic({ clusterCIDR: "10.244.0.0/16" }), [
    "warning clusterCIDR has no IPv6 network; local IPv6 traffic is not detected",
  ]],
  ["none of a family that the Node may not have", localTraffic({ clusterCIDR: "10.244.0.0/16" }, null), [
    "ok told apart by ClusterCIDR",
  ]],
  ["none, and no Node", localTraffic({}, null), ["warning clusterCIDR is empty"]],
  ["no bridge", localTraffic({ detectLocalMode: "BridgeInterface" }), [
    "warning detectLocal.bridgeInterface is empty",
  ]],
];

const CLOCKS: readonly Case[] = [
  ["a clock that agrees", checkClock(-4_900), ["ok agrees"]],
  ["a clock that is late", checkClock(-61_000), ["warning 61 s behind the API server's"]],
  ["no clock", checkClock(null), ["ok the API server tells no time"]],
];

testFindings({
  lock: LOCKS,
  modes: MODES,
  variants: VARIANTS,
  node: NODES,
  "local traffic": LOCAL_TRAFFIC,
  clock: CLOCKS,
});

Deno.test("whether a cluster uses IPv6 is reported by the Node, and by the configuration without one", {
  permissions: "none",
}, () => {
  const bare = { clusterCIDR: "", bindAddress: "0.0.0.0" };
  assertEquals(
    ipv6Use(testNode({ name: "a", addresses: [internal("fd00::1")] }), bare),
    "Node a has the address fd00::1",
  );
  assertEquals(
    ipv6Use(testNode({ addresses: [internal("10.0.0.1")], podCIDRs: [] }), {
      ...bare,
      clusterCIDR: "fd00::/48",
    }),
    null,
  );
  assertEquals(
    ipv6Use(null, { ...bare, clusterCIDR: "10.0.0.0/8,fd00::/48" }),
    "the cluster CIDR is 10.0.0.0/8,fd00::/48",
  );
  assertEquals(ipv6Use(null, { ...bare, bindAddress: "fd00::7" }), "the node's address is fd00::7");
  assertEquals(ipv6Use(null, { ...bare, bindAddress: "::" }), null);
});

Deno.test("words of programs are one line without control characters, and end somewhere", {
  permissions: "none",
}, () => {
  const [finding] = checkMode({
    kind: "unusable",
    reason: `a\nb\u001b[31m${"x".repeat(1000)}`,
    lacksRights: false,
  }, "ipvs");
  assertEquals(finding?.what.startsWith("mode ipvs cannot run here: a b\\u001b[31mxxx"), true);
  assertEquals(/x… \(\d+ characters\)$/.test(finding?.what ?? ""), true);
});
