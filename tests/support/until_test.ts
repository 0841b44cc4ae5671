import { assertEquals, AssertionError, assertRejects } from "@std/assert";
import { eventually, until } from "./until.ts";

Deno.test(
  "a wait ends once it is so, and a check's value is its outcome",
  { permissions: "none" },
  async () => {
    let looks = 0;
    await until(() => ++looks === 3);
    assertEquals(looks, 3);
    await until(() => Promise.resolve(++looks === 5), "five looks", { everyMs: 1 });
    const seen = await eventually(() => {
      assertEquals(++looks % 4, 0);
      return looks;
    });
    assertEquals(seen, 8);
  },
);

Deno.test(
  "what never comes fails by name, or by what the check saw last",
  { permissions: "none" },
  async () => {
    const patience = { everyMs: 1, limitMs: 5 };
    await assertRejects(() => until(() => false, "snow", patience), AssertionError, "come to this: snow");
    const isWarm = false;
    await assertRejects(() => until(() => isWarm, undefined, patience), AssertionError, "isWarm");
    let looks = 0;
    const error = await assertRejects(
      () => eventually(() => assertEquals(++looks, 0), patience),
      AssertionError,
    );
    assertEquals(looks > 1 && error.message.includes(`${looks}`), true, error.message);
  },
);

Deno.test("what is no failed assertion ends a wait at once", { permissions: "none" }, async () => {
  let looks = 0;
  const look = (): never => {
    looks++;
    throw new TypeError("broken");
  };
  await assertRejects(() => until(look), TypeError, "broken");
  await assertRejects(() => eventually(look), TypeError, "broken");
  assertEquals(looks, 2);
});
