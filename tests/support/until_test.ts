import { assertEquals, AssertionError, assertRejects } from "@std/assert";
import { eventually, until } from "./until.ts";

Deno.test("what never comes and what breaks fails a wait", { permissions: "none" }, async () => {
  const patience = { everyMs: 1, limitMs: 5 };
  await assertRejects(() => until(() => false, "snow", patience), AssertionError, "come to this: snow");
  await assertRejects(() => eventually(() => assertEquals(1, 2), patience), AssertionError);
  const look = (): never => {
    throw new TypeError("broken");
  };
  await assertRejects(() => until(look), TypeError, "broken");
  await assertRejects(() => eventually(look), TypeError, "broken");
});
