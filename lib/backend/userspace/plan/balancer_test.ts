import { assertEquals } from "@std/assert";
import { Balancer } from "./balancer.ts";

const [A, B, C] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map((ip) => ({ ip, port: 80 })) as [
  { ip: string; port: number },
  { ip: string; port: number },
  { ip: string; port: number },
];

/** A balancer on the test's clock; a random number of nearly 1 leaves the order as it is. */
function balancer({ mostClients = 100 } = {}) {
  const clock = { nowMs: 0 };
  return { clock, it: new Balancer({ nowMs: () => clock.nowMs, random: () => 0.999, mostClients }) };
}

Deno.test("endpoints take turns, and begin anew when they are others", () => {
  const { it } = balancer();
  assertEquals(it.pick("x"), null);
  it.update([A, B, C], 0);
  assertEquals([1, 2, 3, 4].map(() => it.pick("x")), [A, B, C, A]);
  it.update([C, B, A], 0);
  assertEquals(it.pick("x"), B, "the same ones in another order are no reason to begin anew");
  it.update([A, B], 0);
  assertEquals([1, 2, 3].map(() => it.pick("x")), [A, B, A]);
  it.update([], 0);
  assertEquals(it.pick("x"), null);
});

Deno.test("other endpoints are shuffled", () => {
  const it = new Balancer({ nowMs: () => 0, random: () => 0 });
  it.update([A, B, C], 0);
  assertEquals([1, 2, 3].map(() => it.pick("x")), [B, C, A]);
});

Deno.test("a client with affinity keeps its endpoint for as long as it comes again in time", () => {
  const { it, clock } = balancer();
  it.update([A, B], 10);
  assertEquals([it.pick("x"), it.pick("y"), it.pick("x")], [A, B, A]);
  clock.nowMs = 9_999;
  assertEquals(it.pick("x"), A, "and each time counts anew");
  clock.nowMs = 19_998;
  assertEquals([it.pick("x"), it.pick("y")], [A, A], "the one that came too late has its turn");
  clock.nowMs = 40_000;
  assertEquals(it.pick("x"), B);
});

Deno.test("an endpoint that does not answer, or is gone, is taken from its clients", () => {
  const { it } = balancer();
  it.update([A, B], 10);
  assertEquals([it.pick("x"), it.pick("x", true), it.pick("x")], [A, B, B]);
  it.update([A, C], 10);
  assertEquals([it.has(B), it.has(A)], [false, true]);
  assertEquals(it.pick("x"), A);
  it.update([A, C], 0);
  assertEquals([it.pick("x"), it.pick("x")], [C, A], "without affinity no client is remembered");
});

Deno.test("of too many clients those are forgotten that were not seen for longest", () => {
  const { it } = balancer({ mostClients: 2 });
  it.update([A, B, C], 10);
  assertEquals([it.pick("x"), it.pick("y"), it.pick("x"), it.pick("z")], [A, B, A, C]);
  assertEquals([it.pick("x"), it.pick("y")], [A, A], "y was forgotten, x not");
});
