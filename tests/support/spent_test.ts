import { assert } from "@std/assert";
import { startWork } from "./spent.ts";

Deno.test("work counts by the clock, and a pause does not", { permissions: "none" }, async () => {
  const spentMs = startWork();
  for (const startMs = performance.now(); performance.now() - startMs < 20;);
  const workedMs = spentMs();
  assert(workedMs > 0, `${workedMs} ms`);
  // Tests of other files may work beside this one: it is no longer than the clock tells.
  const [startMs, again] = [performance.now(), startWork()];
  await new Promise((resolve) => setTimeout(resolve, 30));
  const pausedMs = again();
  assert(pausedMs <= performance.now() - startMs, `${pausedMs} ms`);
});
