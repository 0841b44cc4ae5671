import { AssertionError, assertRejects } from "@std/assert";
import { assertWithin } from "./busyness.ts";

Deno.test("a limit holds, and is none that a machine a thousand times as slow would keep", async () => {
  await assertWithin(10, 10, "a start");
  await assertRejects(() => assertWithin(10_000_000, 10, "a start"), AssertionError, "a start: 10000000 ms");
});
