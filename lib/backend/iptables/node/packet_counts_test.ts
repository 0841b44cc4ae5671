import { assertEquals } from "@std/assert";
import { invalidDropped, LastingCount } from "./packet_counts.ts";

const LISTING = `-N KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -c 17 1020 -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -c 3 180 -j ACCEPT
`;

Deno.test("the dropped packets are those of the rule against invalid ones", { permissions: "none" }, () => {
  assertEquals(invalidDropped(LISTING), 17);
  assertEquals(
    invalidDropped(LISTING.split("\n").filter((line) => !line.includes("INVALID")).join("\n")),
    null,
  );
  assertEquals(invalidDropped(""), null);
});

Deno.test("a count goes on when the rule was written again", { permissions: "none" }, () => {
  const count = new LastingCount();
  assertEquals([3, 5, 5, 0, 2, 1].map((now) => count.take(now)), [3, 5, 5, 5, 7, 8]);
});
