/** What the fuzzer takes for a find, and what it makes of it. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { startWork } from "../support/spent.ts";
import { Random } from "../chaos/random.ts";
import { findIn, kindOf, minimized } from "./judge.ts";
import { mutated, swollen } from "./mutate.ts";
import { type FuzzTarget, textOf, wholeOf } from "./target.ts";

const NONE = { permissions: "none" } as const;

/** Refuses `no`, breaks at `bad`, and takes time for each `slow`. */
const TARGET: FuzzTarget = {
  name: "test",
  refusals: [SyntaxError],
  read(bytes) {
    const text = textOf(bytes);
    if (text.includes("no")) throw new SyntaxError("no");
    assert(!text.includes("bad"), "bad");
    const spentMs = startWork();
    while (spentMs() < 40 * (text.split("slow").length - 1));
  },
};

Deno.test(
  "what is refused or read is no find, whatever else is thrown is, and so is what takes long",
  NONE,
  async () => {
    assertEquals(await findIn(TARGET, "good"), undefined);
    assertEquals(await findIn(TARGET, "no, bad"), undefined);
    assertMatch(
      await findIn(TARGET, "so bad") ?? "",
      /^AssertionError at tests\/fuzz\/judge_test.ts:\d+: bad$/,
    );
    assertEquals(await findIn(TARGET, "slow"), undefined);
    assertMatch(await findIn(TARGET, "slow".repeat(9)) ?? "", /^took \d+ ms, may take 100$/);
  },
);

Deno.test("of a find the part is left that does the same", NONE, async () => {
  const kind = kindOf(await findIn(TARGET, "bad") ?? "");
  assertEquals(await minimized(TARGET, "this is what is so bad of it", kind), "bad");
  assertEquals(await minimized(TARGET, [["x", 1_000], ["bad", 8], ["y", 1]], kind), [["bad", 1]]);
});

Deno.test(
  "the same seed makes the same inputs, and large ones are about as large as they should be",
  NONE,
  () => {
    const from = ['{"a":[1,{"b":"c"}]}', "*nat\n:A - [0:0]\n", "k8s\0\x0a\x02hi"];
    const made = (): readonly string[] => {
      const random = new Random(7);
      return Array.from({ length: 200 }, (_, at) => mutated(from[at % 3]!, from, random));
    };
    assertEquals(made(), made());
    assert(new Set(made()).size > 150);
    const random = new Random(7);
    for (let at = 0; at < 50; at++) {
      const { length } = wholeOf(swollen(from[at % 3]!, random, 10_000));
      assert(length > 5_000 && length < 11_000, `${length}`);
    }
  },
);
