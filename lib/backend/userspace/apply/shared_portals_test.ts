import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { SharedPortals } from "./shared_portals.ts";

Deno.test("portals of a former life serve until the next one's rules are in force, and some seconds more", async () => {
  using time = new FakeTime();
  let closed = 0;
  const portal = { port: 1, update: () => {}, close: () => Promise.resolve(void closed++) };
  const shared = new SharedPortals(() => Promise.resolve(portal));
  (await shared.open({ family: "IPv4", protocol: "TCP", ip: "127.0.0.1", requested: null, range: null }))
    .leave();
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
