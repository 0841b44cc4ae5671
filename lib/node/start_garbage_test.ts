import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { systemClock } from "../kernel/clock.ts";
import { collectAfterStart } from "./start_garbage.ts";

function setUp() {
  let collections = 0;
  const end = new AbortController();
  const observer = collectAfterStart(["IPv4", "IPv6"], end.signal, systemClock, () => collections++);
  return { observer, end, collections: () => collections };
}

Deno.test(
  "garbage is collected once, after the first sync of every family",
  { permissions: "none" },
  async () => {
    using time = new FakeTime();
    const { observer, collections } = setUp();
    observer.synced(syncOutcome("IPv6"));
    observer.synced(syncOutcome("IPv6"));
    await time.tickAsync(5_000);
    assertEquals(collections(), 0);
    observer.synced(syncOutcome("IPv4"));
    assertEquals(collections(), 0);
    await time.tickAsync(1_000);
    assertEquals(collections(), 1);
    observer.synced(syncOutcome("IPv4"));
    observer.synced(syncOutcome("IPv6"));
    await time.tickAsync(5_000);
    assertEquals(collections(), 1);
  },
);

Deno.test("an end comes before it", { permissions: "none" }, async () => {
  using time = new FakeTime();
  const { observer, end, collections } = setUp();
  observer.synced(syncOutcome("IPv6"));
  observer.synced(syncOutcome("IPv4"));
  end.abort();
  await time.tickAsync(5_000);
  assertEquals(collections(), 0);
});
