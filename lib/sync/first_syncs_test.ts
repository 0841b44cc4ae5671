import { assertEquals } from "@std/assert";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { SyncError } from "../errors.ts";
import type { IpFamily } from "../model/objects.ts";
import { observeFirstSyncs } from "./sync_observer.ts";

const NONE = { permissions: "none" } as const;

function setUp(families: readonly IpFamily[]) {
  const heard: [family: IpFamily, isLast: boolean][] = [];
  return { heard, observer: observeFirstSyncs(families, (...first) => heard.push(first)) };
}

Deno.test("each family is reported once, the last one as the last", NONE, () => {
  const { heard, observer } = setUp(["IPv4", "IPv6"]);
  observer.synced(syncOutcome("IPv6"));
  observer.synced(syncOutcome("IPv6"));
  assertEquals(heard, [["IPv6", false]]);
  observer.synced(syncOutcome("IPv4"));
  observer.synced(syncOutcome("IPv4"));
  observer.synced(syncOutcome("IPv6"));
  assertEquals(heard, [["IPv6", false], ["IPv4", true]]);
});

Deno.test("of a failure and of a family that is not asked for nothing is reported", NONE, () => {
  const { heard, observer } = setUp(["IPv4"]);
  observer.failed({
    family: "IPv4",
    full: true,
    error: new SyncError("iptables", "apply", "it broke"),
    durationMs: 1,
  });
  observer.synced(syncOutcome("IPv6"));
  assertEquals(heard, []);
  observer.synced(syncOutcome("IPv4"));
  assertEquals(heard, [["IPv4", true]]);
});
