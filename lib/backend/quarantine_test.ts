import { assertEquals } from "@std/assert";
import { MAX_RETRIES, Quarantine, RETRY_MS } from "./quarantine.ts";

const PURE = { permissions: "none" } as const;

Deno.test("a quarantined Service is due when it changes, else a minute after each refusal", PURE, () => {
  let nowMs = 0;
  const quarantine = new Quarantine(() => nowMs);
  quarantine.refused({ service: "a/one", problem: "no" });
  nowMs = 1_000;
  quarantine.refused({ service: "a/two", problem: "never" });
  assertEquals(quarantine.due(new Set()), []);
  assertEquals(quarantine.due(new Set(["a/two", "a/three"])), ["a/two"]);
  nowMs = RETRY_MS;
  assertEquals(quarantine.due(new Set()), ["a/one"]);
  quarantine.refused({ service: "a/one", problem: "still no" });
  assertEquals(quarantine.due(new Set()), []);
  assertEquals(quarantine.services, [
    { service: "a/one", problem: "still no" },
    { service: "a/two", problem: "never" },
  ]);
  nowMs = RETRY_MS + 1_000;
  assertEquals(quarantine.due(new Set()), ["a/two"]);
  quarantine.release("a/two");
  assertEquals(quarantine.due(new Set(["a/two"])), []);
  quarantine.clear();
  assertEquals(quarantine.services, []);
});

Deno.test("however many are refused, a sync tries a few more than those that changed, in turn", PURE, () => {
  let nowMs = 0;
  const quarantine = new Quarantine(() => nowMs);
  const names = Array.from({ length: 3 * MAX_RETRIES }, (_, i) => `a/s${i}`);
  for (const service of names) quarantine.refused({ service, problem: "no" });
  nowMs = RETRY_MS;
  const last = names.at(-1) ?? "";
  const tried = new Set<string>();
  for (let turn = 0; turn < 3; turn++) {
    const due = quarantine.due(new Set([last]));
    assertEquals(due.filter((service) => service !== last).length, MAX_RETRIES - (turn === 2 ? 1 : 0));
    for (const service of due) {
      tried.add(service);
      if (service !== last) quarantine.refused({ service, problem: "no" });
    }
  }
  assertEquals(tried.size, names.length);
  assertEquals(quarantine.due(new Set()), [last]);
});

Deno.test("parts of a Service are quarantined, due and released one by one", PURE, () => {
  let nowMs = 0;
  const quarantine = new Quarantine(() => nowMs);
  quarantine.refused({ service: "a/one", problem: "b: no", part: "b" });
  nowMs = 1_000;
  quarantine.refused({ service: "a/two", problem: "no" });
  quarantine.refused({ service: "a/one", problem: "a: no", part: "a" });
  assertEquals(quarantine.services, [
    { service: "a/one", problem: "a: no (and 1 more)" },
    { service: "a/two", problem: "no" },
  ]);
  assertEquals([...quarantine.parts("a/one").keys()], ["b", "a"]);
  nowMs = RETRY_MS;
  assertEquals(quarantine.due(new Set()), ["a/one"]);
  assertEquals(["a", "b", "c"].map((part) => quarantine.isPartDue("a/one", part)), [false, true, true]);
  quarantine.keepParts("a/one", (part) => part === "a");
  assertEquals([quarantine.due(new Set()), quarantine.services[0]?.problem], [[], "a: no"]);
  quarantine.keepParts("a/one", () => false);
  quarantine.keepParts("a/three", () => false);
  assertEquals([quarantine.services.length, quarantine.parts("a/one").size], [1, 0]);
});
