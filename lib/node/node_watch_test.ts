import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { defaultConfig } from "../config/defaults.ts";
import { UnsupportedError } from "../errors.ts";
import type { DetectLocalMode } from "../config/types.ts";
import type { RefusedFamily } from "../kernel/ip_families.ts";
import type { NodeObject } from "../model/objects.ts";
import { nodeIps, nodePortAddresses } from "../model/node.ts";
import { type LogValues, silentLogger } from "../observe/log.ts";
import { NodeWatch } from "./node_watch.ts";

const NODE: NodeObject = {
  kind: "Node",
  name: "node-a",
  labels: {},
  addresses: [],
  podCIDRs: [],
  taintKeys: [],
  deleting: false,
};
const NO_NODE = "There is no Node of this name, so nothing is known of its addresses and zone";
const MAY_NOT = "The Node may not be read, so nothing is known of its addresses and zone";
const NONE_OPEN =
  "The primary address is not known: everything is served but node ports, which are open nowhere";
const FORBIDDEN = 'GET /api/v1/nodes: status 403: nodes is forbidden: User "x" cannot list resource "nodes"';

const never = { whenSynced: () => new Promise<void>(() => {}), refusal: () => null };
const synced = { whenSynced: () => Promise.resolve(), refusal: () => null };
/** A server that answers for the Node with 403. */
const forbidden = { ...synced, refusal: () => FORBIDDEN };

function nodeWatch(
  detectLocalMode: DetectLocalMode,
  warnings: string[] = [],
  {
    clusterCIDR = "",
    nodePortAddresses = null,
    bindAddress = "0.0.0.0",
    isNodeExpected = true,
    refused = [],
    nodes = [],
    told = {},
  }: {
    clusterCIDR?: string;
    nodePortAddresses?: string[] | null;
    bindAddress?: string;
    isNodeExpected?: boolean;
    refused?: readonly RefusedFamily[];
    /** Receives the Nodes that the rules are made from. */
    nodes?: (NodeObject | null)[];
    /** Receives the values of the last warning. */
    told?: { values?: LogValues | undefined };
  } = {},
): NodeWatch {
  return new NodeWatch({
    config: { ...defaultConfig(), clusterCIDR, detectLocalMode, nodePortAddresses, bindAddress },
    nodeName: "node-a",
    isNodeExpected,
    runners: [],
    refused,
    mode: {
      reconfigure: (node) => {
        nodes.push(node);
        return [];
      },
    },
    log: {
      ...silentLogger,
      warn: (message, values) => {
        warnings.push(message);
        told.values = values;
      },
    },
  });
}

for (const mode of ["ClusterCIDR", "NodeCIDR"] as const) {
  Deno.test(`a stop while the Node is awaited lets no sync begin (${mode})`, async () => {
    const stop = new AbortController();
    const warnings: string[] = [];
    const ready = nodeWatch(mode, warnings).whenReady(never, stop.signal);
    stop.abort();
    assertEquals(await ready, false);
    assertEquals(warnings, []);
  });
}

Deno.test("syncs may begin once the source has said whether there is a Node", async () => {
  const stop = new AbortController();
  assertEquals(await nodeWatch("ClusterCIDR").whenReady(synced, stop.signal), true);
});

Deno.test("in mode NodeCIDR syncs begin once the Node has pod CIDRs", async () => {
  const stop = new AbortController();
  const watch = nodeWatch("NodeCIDR");
  let ready = false;
  const waiting = watch.whenReady(synced, stop.signal).then((value) => ready = value);
  watch.take(NODE, false);
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  assertEquals(ready, false);
  watch.take({ ...NODE, podCIDRs: ["10.244.0.0/24"] }, false);
  assertEquals(await waiting, true);
});

Deno.test("a clusterCIDR without the primary family is reported once, and the Node's first address decides which that is", () => {
  const node = (...addresses: string[]): NodeObject => ({
    ...NODE,
    addresses: addresses.map((address) => ({ type: "InternalIP", address })),
  });
  const told: { values?: LogValues } = {};
  const cases: readonly [clusterCIDR: string, bindAddress: string, node: NodeObject, warns: boolean][] = [
    ["10.244.0.0/16", "0.0.0.0", node("192.0.2.10"), false],
    ["10.244.0.0/16", "0.0.0.0", node("2001:db8::10"), true],
    ["10.244.0.0/16", "0.0.0.0", node("2001:db8::10", "192.0.2.10"), true],
    ["10.244.0.0/16", "192.0.2.10", node("2001:db8::10", "192.0.2.10"), false],
    ["fd00:10:244::/56", "0.0.0.0", node("2001:db8::10"), false],
    ["fd00:10:244::/56", "0.0.0.0", node("192.0.2.10", "2001:db8::10"), true],
    ["10.244.0.0/16,fd00:10:244::/56", "0.0.0.0", node("2001:db8::10"), false],
    ["", "0.0.0.0", node("2001:db8::10"), false],
  ];
  for (const [clusterCIDR, bindAddress, own, warns] of cases) {
    const warnings: string[] = [];
    const watch = nodeWatch("ClusterCIDR", warnings, { clusterCIDR, bindAddress, told });
    watch.take(own, false);
    watch.take(own, true);
    const wanted = warns ? ["Configuration may be incomplete or incorrect"] : [];
    assertEquals(warnings, wanted, `${clusterCIDR} ${bindAddress} ${JSON.stringify(own.addresses)}`);
  }
  assertEquals(told.values, {
    field: "clusterCIDR",
    problem: "has no IPv4 network, but this node is primarily IPv4",
  });
});

Deno.test("a node whose first address is of a family that cannot be served gets no rules", async () => {
  const refused = [{ family: "IPv6", reason: "it is off", hasRules: false }] as const;
  const cases = [["192.0.2.10"], ["192.0.2.10", "fd00::10"], ["fd00::10"], ["fd00::10", "192.0.2.10"]];
  for (const [index, own] of cases.entries()) {
    const watch = nodeWatch("ClusterCIDR", [], { refused });
    const addresses = own.map((address) => ({ type: "InternalIP", address }));
    watch.take({ ...NODE, addresses }, false);
    const ready = watch.whenReady(synced, new AbortController().signal);
    if (index < 2) assertEquals(await ready, true);
    else {
      const message =
        "the primary IP family IPv6, that of the Node's first address, cannot be served: it is off";
      await assertRejects(() => ready, UnsupportedError, message);
    }
  }
});

/** Lets promises that are ready settle. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

Deno.test("a Node that the API server does not have is said, and waited for only for its primary address", async () => {
  const cases: readonly [options: Parameters<typeof nodeWatch>[2], waits: boolean, warnings: string[]][] = [
    [{}, false, [NO_NODE]],
    [{ isNodeExpected: false }, false, []],
    [{ nodePortAddresses: ["10.0.0.0/8"] }, false, [NO_NODE]],
    [{ nodePortAddresses: ["primary"] }, true, [NO_NODE]],
    [{ nodePortAddresses: ["primary"], bindAddress: "192.0.2.1" }, false, [NO_NODE]],
    [{ nodePortAddresses: ["primary"], isNodeExpected: false }, false, []],
  ];
  for (const [options, waits, expected] of cases) {
    const stop = new AbortController();
    const warnings: string[] = [];
    let ready: boolean | undefined;
    const waiting = nodeWatch("ClusterCIDR", warnings, options).whenReady(synced, stop.signal)
      .then((value) => ready = value);
    await turns();
    assertEquals([ready, warnings], [waits ? undefined : true, expected], JSON.stringify(options));
    stop.abort();
    await waiting;
    assertEquals(ready, !waits);
  }
});

Deno.test("the primary address is waited for until the Node has one, or for 30 s", async () => {
  using time = new FakeTime();
  const primary = { nodePortAddresses: ["primary"] };
  const { signal } = new AbortController();
  const warnings: string[] = [];
  const watch = nodeWatch("ClusterCIDR", warnings, primary);
  watch.take(NODE, false);
  let ready = false;
  const waiting = watch.whenReady(synced, signal).then((value) => ready = value);
  await time.tickAsync(29_000);
  assertEquals([ready, warnings], [false, ["The own Node has no addresses yet"]]);
  watch.take({ ...NODE, addresses: [{ type: "InternalIP", address: "192.0.2.1" }] }, false);
  assertEquals(await waiting, true);
});

const UNREAD: readonly [
  why: string,
  loop: typeof synced | typeof forbidden,
  first: string,
  advice: RegExp,
][] = [
  ["does not have", synced, NO_NODE, /--hostname-override/],
  ["does not let be read", forbidden, MAY_NOT, /RBAC/],
];
for (const [why, loop, first, advice] of UNREAD) {
  Deno.test(`without an address of a Node that the API server ${why}, no node port is open until there is one`, async () => {
    using time = new FakeTime();
    const { signal } = new AbortController();
    const warnings: string[] = [];
    const nodes: (NodeObject | null)[] = [];
    const told: { values?: LogValues | undefined } = {};
    const watch = nodeWatch("ClusterCIDR", warnings, { nodePortAddresses: ["primary"], nodes, told });
    const ready = watch.whenReady(loop, signal);
    await time.tickAsync(30_000);
    assertEquals([await ready, warnings], [true, [first, NONE_OPEN]]);
    assertMatch(String(told.values?.["advice"]), advice);
    assertEquals(told.values?.["problem"], loop === forbidden ? FORBIDDEN : undefined);
    watch.take({ ...NODE, addresses: [{ type: "InternalIP", address: "192.0.2.1" }] }, true);
    const open = nodes.map((node) => {
      const { matchAll, cidrs } = nodePortAddresses("IPv4", ["primary"], nodeIps(node, "0.0.0.0"));
      return [matchAll, cidrs.map(({ text }) => text)];
    });
    assertEquals(open, [[false, []], [false, ["192.0.2.1/32"]]]);
  });
}

const POD_CIDRS: readonly [
  addresses: readonly string[],
  podCIDRs: readonly string[],
  problem: string | null,
][] = [
  [["192.0.2.1"], ["10.244.0.0/24"], null],
  [["192.0.2.1", "fd00::1"], ["10.244.0.0/24"], null],
  [["192.0.2.1", "fd00::1"], ["fd00:244::/64", "10.244.0.0/24"], null],
  [[], ["10.244.0.0/24"], null],
  [
    ["192.0.2.1", "fd00::1"],
    ["fd00:244::/64"],
    "cluster is IPv4-primary but node.spec.podCIDRs contains only IPv6",
  ],
  [
    ["fd00::1", "192.0.2.1"],
    ["10.244.0.0/24"],
    "cluster is IPv6-primary but node.spec.podCIDRs contains only IPv4",
  ],
];
for (const [addresses, podCIDRs, problem] of POD_CIDRS) {
  Deno.test(`mode NodeCIDR with addresses ${addresses} and pod CIDRs ${podCIDRs}`, async () => {
    const nodes: (NodeObject | null)[] = [];
    const watch = nodeWatch("NodeCIDR", [], { nodes });
    const ready = watch.whenReady(synced, new AbortController().signal);
    const own = addresses.map((address) => ({ type: "InternalIP", address }));
    const take = (): void => watch.take({ ...NODE, addresses: own, podCIDRs: [...podCIDRs] }, false);
    if (problem === null) {
      take();
      assertEquals([await ready, nodes.length], [true, 1]);
      // Those that come later and would not do leave the former ones in force.
      const wrong = podCIDRs[0] === "10.244.0.0/24" ? "fd00:245::/64" : "10.245.0.0/24";
      watch.take({ ...NODE, addresses: own, podCIDRs: [wrong] }, true);
      assertEquals(nodes.length, podCIDRs.length === 2 ? 2 : 1);
    } else {
      const rejected = assertRejects(() => ready, Error, problem);
      take();
      await rejected;
      assertEquals(nodes, []);
    }
  });
}
