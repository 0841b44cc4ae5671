import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { SharedPortals } from "./shared_portals.ts";

Deno.test("portals of a former life serve until the next one's rules are in force, and some seconds more", async () => {
  using time = new FakeTime();
  const shared = new SharedPortals();
  let closed = 0;
  const portal = { port: 1, update: () => {}, close: () => Promise.resolve(void closed++) };
  shared.lingering.leave("here", portal);
  shared.left();
  // An API server may be away for that long.
  await time.tickAsync(3_600_000);
  assertEquals(closed, 0);
  shared.inForce();
  await time.tickAsync(4_900);
  // A life that ends as fast leaves the same rules.
  shared.left();
  await time.tickAsync(3_600_000);
  assertEquals(closed, 0);
  shared.inForce();
  await time.tickAsync(5_000);
  assertEquals(closed, 1);
  await shared.end(new AbortController().signal);
});
