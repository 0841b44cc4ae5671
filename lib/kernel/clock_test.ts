import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { within } from "./clock.ts";

Deno.test("a promise is waited for so long and no longer, and not beyond an abort", {
  permissions: "none",
}, async () => {
  using time = new FakeTime();
  const { promise, resolve } = Promise.withResolvers<string>();
  const [soon, late] = [within(promise, 100), within(promise, 99)];
  const aborted = new AbortController();
  const left = within(promise, 100, aborted.signal);
  aborted.abort();
  assertEquals(await left, null);
  assertEquals(await within(promise, 100, aborted.signal), null);
  time.tick(99);
  resolve("there");
  assertEquals([await soon, await late], ["there", null]);
  const failed = within(Promise.reject(new Error("broken")), 100);
  await assertRejects(() => failed, Error, "broken");
});
