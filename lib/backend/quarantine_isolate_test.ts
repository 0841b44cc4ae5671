import { assert, assertEquals, assertRejects } from "@std/assert";
import { isolateRefused, type Refusal } from "./quarantine.ts";

/** A tool that takes a group only if none of its members is bad, and names at most `names` of them. */
function tool(bad: ReadonlySet<number>, names: number) {
  const taken: number[] = [];
  let attempts = 0;
  const attempt = (items: readonly number[]): Promise<Refusal<number> | null> => {
    attempts++;
    const wrong = items.filter((item) => bad.has(item));
    if (wrong.length === 0) {
      taken.push(...items);
      return Promise.resolve(null);
    }
    return Promise.resolve({
      problem: `bad ${wrong[0]}`,
      named: wrong.slice(0, names).map((item) => ({ item, problem: `bad ${item}` })),
    });
  };
  return { attempt, taken, attempts: () => attempts };
}

const ALL = Array.from({ length: 1000 }, (_, i) => i);

for (const [names, limit] of [[0, 70], [1, 4], [2, 3], [10, 2]] as const) {
  Deno.test({
    name: `bad members are found and all others go in, with a tool that names ${names} of them`,
    permissions: "none",
    fn: async () => {
      const bad = new Set([0, 499, 999]);
      const { attempt, taken, attempts } = tool(bad, names);
      const refused = await isolateRefused(ALL, attempt);
      assertEquals(
        refused.toSorted((a, b) => a.item - b.item),
        [0, 499, 999].map((item) => ({ item, problem: `bad ${item}` })),
      );
      assertEquals(taken.toSorted((a, b) => a - b), ALL.filter((item) => !bad.has(item)));
      assert(attempts() <= limit, `${attempts()} attempts`);
    },
  });
}

Deno.test({
  name: "a group of nothing but bad members, of none, and a failure that is no refusal",
  permissions: "none",
  fn: async () => {
    const { attempt, taken } = tool(new Set([1, 2, 3]), 0);
    assertEquals((await isolateRefused([1, 2, 3], attempt)).length, 3);
    assertEquals(taken, []);
    assertEquals(await isolateRefused([], () => Promise.reject(new Error("never asked"))), []);
    await assertRejects(() => isolateRefused([1, 2], () => Promise.reject(new Error("no memory"))), Error);
  },
});
