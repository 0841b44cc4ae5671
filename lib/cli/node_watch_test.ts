import { assertEquals } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import type { DetectLocalMode } from "../config/types.ts";
import { silentLogger } from "../observe/log.ts";
import { NodeWatch } from "./node_watch.ts";

const never = { whenSynced: () => new Promise<void>(() => {}) };
const synced = { whenSynced: () => Promise.resolve() };

function nodeWatch(detectLocalMode: DetectLocalMode, warnings: string[] = []): NodeWatch {
  return new NodeWatch({
    config: { ...defaultConfig(), detectLocalMode },
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
  const node = {
    kind: "Node",
    name: "node-a",
    labels: {},
    addresses: [],
    taintKeys: [],
    deleting: false,
  } as const;
  watch.take({ ...node, podCIDRs: [] }, false);
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  assertEquals(ready, false);
  watch.take({ ...node, podCIDRs: ["10.244.0.0/24"] }, false);
  assertEquals(await waiting, true);
});
