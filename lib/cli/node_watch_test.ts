import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { defaultConfig } from "../config/defaults.ts";
import type { DetectLocalMode } from "../config/types.ts";
import type { NodeObject } from "../model/objects.ts";
import { silentLogger } from "../observe/log.ts";
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
const ALL_OPEN = "The primary address is not known, node ports are open on all addresses";

const never = { whenSynced: () => new Promise<void>(() => {}) };
const synced = { whenSynced: () => Promise.resolve() };

function nodeWatch(
  detectLocalMode: DetectLocalMode,
  warnings: string[] = [],
  { nodePortAddresses = null, bindAddress = "0.0.0.0", isNodeExpected = true }: {
    nodePortAddresses?: string[] | null;
    bindAddress?: string;
    isNodeExpected?: boolean;
  } = {},
): NodeWatch {
  return new NodeWatch({
    config: { ...defaultConfig(), detectLocalMode, nodePortAddresses, bindAddress },
    nodeName: "node-a",
    isNodeExpected,
    runners: [],
    mode: { reconfigure: () => [] },
    log: { ...silentLogger, warn: (message) => warnings.push(message) },
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

/** Lets what is ready happen. */
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

  const late: string[] = [];
  const never = nodeWatch("ClusterCIDR", late, primary).whenReady(synced, signal);
  await time.tickAsync(30_000);
  assertEquals([await never, late], [true, [NO_NODE, ALL_OPEN]]);
});
