import { assertEquals } from "@std/assert";
import type { ObservedOwn } from "./apply_fresh.ts";
import { SharedLook } from "./apply_shared_look.ts";

const NONE = { permissions: "none" } as const;
const SEEN: ObservedOwn = { addresses: null, virtualServers: new Map(), sets: new Map() };

/** IPv4 looks at 1,000 ms, and IPv6 may wait. */
function looked(isWaiting: boolean): SharedLook {
  const look = new SharedLook();
  look.wait("IPv4");
  look.begin("IPv4");
  if (isWaiting) look.wait("IPv6");
  look.keep(SEEN, "IPv4", 1_000);
  look.end("IPv4");
  return look;
}

Deno.test("who waits while the other family looks need not look, once", NONE, () => {
  const look = looked(true);
  look.begin("IPv6");
  assertEquals([look.take("IPv6", 1_500), look.take("IPv6", 1_500)], [SEEN, null]);
});

Deno.test("who comes later looks", NONE, () => {
  const look = looked(false);
  look.wait("IPv6");
  look.begin("IPv6");
  assertEquals(look.take("IPv6", 1_500), null);
});

Deno.test("a look that is old, or after which somebody changed something, is none", NONE, () => {
  const old = looked(true);
  old.begin("IPv6");
  assertEquals(old.take("IPv6", 11_001), null);
  const changed = looked(true);
  changed.forget();
  changed.begin("IPv6");
  assertEquals(changed.take("IPv6", 1_500), null);
});

Deno.test("a sync that did not need it leaves none to the next one", NONE, () => {
  const look = looked(true);
  look.begin("IPv6");
  look.end("IPv6");
  look.wait("IPv6");
  look.begin("IPv6");
  assertEquals(look.take("IPv6", 1_500), null);
});

Deno.test("a family does not take what it has seen itself for the one that waits", NONE, () => {
  const look = looked(false);
  look.wait("IPv6");
  look.begin("IPv4");
  look.keep(SEEN, "IPv4", 1_000);
  assertEquals(look.take("IPv4", 1_500), null);
  look.end("IPv4");
  look.begin("IPv6");
  assertEquals(look.take("IPv6", 1_500), SEEN);
});

Deno.test("what waits while the other family syncs once more is not kept", NONE, () => {
  const look = looked(true);
  look.begin("IPv4");
  look.end("IPv4");
  look.begin("IPv6");
  assertEquals(look.take("IPv6", 1_500), null);
});
