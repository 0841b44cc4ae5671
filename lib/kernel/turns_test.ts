import { assertEquals, assertRejects } from "@std/assert";
import { inTurns } from "./turns.ts";

/** Says each of its steps. */
function* steps(count: number, said: string[]): Generator<void, string> {
  for (let step = 1; step <= count; step++) {
    said.push(`step ${step}`);
    yield;
  }
  return "done";
}

Deno.test("between steps everything else has its turn, and after an abort nothing goes on", {
  permissions: "none",
}, async () => {
  const said: string[] = [];
  setTimeout(() => said.push("other"));
  assertEquals(await inTurns(steps(2, said)), "done");
  assertEquals(said, ["step 1", "other", "step 2"]);
  said.length = 0;
  setTimeout(() => said.push("other"));
  assertEquals(await inTurns(steps(2, said), { turnMs: 60_000 }), "done");
  assertEquals(said, ["step 1", "step 2"]);
  const end = new AbortController();
  setTimeout(() => end.abort(new Error("over")));
  await assertRejects(() => inTurns(steps(9, said), { signal: end.signal }), Error, "over");
  assertEquals(said, ["step 1", "step 2", "step 1", "other"]);
});
