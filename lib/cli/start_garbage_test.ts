import { assertEquals } from "@std/assert";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { collectAfterStart } from "./start_garbage.ts";

Deno.test("garbage is collected once, after the first sync of every family", { permissions: "none" }, () => {
  let collections = 0;
  const observer = collectAfterStart(["IPv4", "IPv6"], () => collections++);
  observer.synced(syncOutcome("IPv6"));
  observer.synced(syncOutcome("IPv6"));
  assertEquals(collections, 0);
  observer.synced(syncOutcome("IPv4"));
  observer.synced(syncOutcome("IPv4"));
  observer.synced(syncOutcome("IPv6"));
  assertEquals(collections, 1);
});

Deno.test("an engine that does not allow it is left alone", { permissions: "none" }, () => {
  collectAfterStart(["IPv4"]).synced(syncOutcome("IPv4"));
});
