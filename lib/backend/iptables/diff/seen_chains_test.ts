import { assertEquals } from "@std/assert";
import {
  confirmPrint,
  expectedPrint,
  inheritPrints,
  isMarkedDamaged,
  judgePrint,
  learnPrint,
  leavePrint,
  markDamaged,
  type PrintExpectation,
  type PrintFinding,
  type PrintMemory,
} from "./seen_chains.ts";
import { SharedPrints } from "./shared_prints.ts";

const PURE = { permissions: "none" } as const;
const FORMER = { text: 1, print: 10, isLeft: false };
const LEFT = { ...FORMER, isLeft: true };
const FINDINGS: readonly (readonly [what: string, PrintExpectation, print: number, PrintFinding])[] = [
  ["nothing is known", {}, 10, "new"],
  ["as it was", { same: 10 }, 10, "known"],
  ["not as it was", { same: 10 }, 11, "damaged"],
  ["not as it was, and as before it was written again", { same: 10, repaired: 11 }, 11, "stays"],
  [
    "not as it was, and otherwise than before it was written again",
    { same: 10, repaired: 11 },
    12,
    "damaged",
  ],
  ["other rules, printed as the former ones", { other: FORMER }, 10, "damaged"],
  ["other rules, printed otherwise", { other: FORMER }, 11, "new"],
  [
    "other rules, printed as the former ones even when written again",
    { other: FORMER, repaired: 10 },
    10,
    "stays",
  ],
  ["other rules, once told", { other: LEFT }, 10, "known"],
  ["other rules, once told, printed otherwise", { other: LEFT }, 11, "new"],
  ["nothing is known, and as before it was written again", { repaired: 10 }, 10, "stays"],
];
for (const [what, expectation, print, finding] of FINDINGS) {
  Deno.test(`a print is judged: ${what}`, PURE, () => assertEquals(judgePrint(print, expectation), finding));
}

function memory(chains: string, hashes: number[], before?: PrintMemory): PrintMemory {
  return { chains, hashes, ...inheritPrints(chains.split(" "), hashes, before) };
}

Deno.test(
  "a chain that changed must look otherwise, one that did not as it did, one that came is not known",
  PURE,
  () => {
    const before = memory("A B C", [1, 2, 3]);
    assertEquals(before, { chains: "A B C", hashes: [1, 2, 3], prints: null, doubts: null });
    for (const [index, chain] of ["A", "B"].entries()) learnPrint(before, index, chain, 10 * (index + 1));
    const after = memory("D A B C", [4, 1, 5, 3], before);
    assertEquals(["D", "A", "B", "C"].map((chain, index) => expectedPrint(after, index, chain)), [
      { same: undefined, other: undefined, repaired: undefined },
      { same: 10, other: undefined, repaired: undefined },
      { same: undefined, other: { text: 2, print: 20, isLeft: false }, repaired: undefined },
      { same: undefined, other: undefined, repaired: undefined },
    ]);
    // Another change and the one back: what is known is known of the rules, however often they changed meanwhile.
    const third = memory("D A B", [4, 1, 6], after);
    assertEquals(expectedPrint(third, 2, "B").other, { text: 2, print: 20, isLeft: false });
    assertEquals(expectedPrint(memory("D A B", [4, 1, 2], third), 2, "B").same, 20);
    // A look that finds it well leaves nothing but a number for each chain.
    learnPrint(third, 2, "B", 60);
    assertEquals([third.prints?.[2], third.doubts], [60, null]);
  },
);

Deno.test("what was found damaged is told from what it is after it was written again", PURE, () => {
  const before = memory("A", [1]);
  learnPrint(before, 0, "A", 10);
  markDamaged(before, "A", 11);
  assertEquals(isMarkedDamaged(before, "A"), true);
  const after = memory("A", [1], before);
  assertEquals(isMarkedDamaged(after, "A"), false);
  assertEquals(expectedPrint(after, 0, "A"), { same: 10, other: undefined, repaired: 11 });
  confirmPrint(after, "A");
  assertEquals(after.doubts, null);
});

Deno.test(
  "what was found damaged is known although nobody had seen it well, and after a second write",
  PURE,
  () => {
    const before = memory("A B", [1, 2]);
    markDamaged(before, "A", 11);
    const after = memory("A B", [5, 2], before);
    const damaged = { same: undefined, other: undefined, repaired: 11 };
    const unknown = { same: undefined, other: undefined, repaired: undefined };
    assertEquals([expectedPrint(after, 0, "A"), expectedPrint(after, 1, "B")], [damaged, unknown]);
    const again = memory("A B", [6, 2], after);
    assertEquals([expectedPrint(again, 0, "A"), expectedPrint(again, 1, "B")], [damaged, unknown]);
  },
);

Deno.test("what stays as it was is left until its rules change", PURE, () => {
  const before = memory("A", [1]);
  learnPrint(before, 0, "A", 10);
  const after = memory("A", [2], before);
  leavePrint(after, 0, "A", 10);
  assertEquals(expectedPrint(after, 0, "A").other?.isLeft, true);
  assertEquals(expectedPrint(memory("A", [2], after), 0, "A").other?.isLeft, true, "a full sync");
  assertEquals(expectedPrint(memory("A", [3], after), 0, "A").other?.isLeft, false);
  assertEquals(expectedPrint(memory("A", [1], after), 0, "A"), {
    same: 10,
    other: undefined,
    repaired: undefined,
  });
});

Deno.test(
  "a shared chain whose rules changed must look otherwise, unless they are the same in another order",
  PURE,
  () => {
    const prints = new SharedPrints();
    const look = (print: number): PrintFinding => prints.look("nat X", ["-A X -j TAIL"], print);
    for (const rule of ["one", "two"]) prints.changed("nat X", rule, 1);
    assertEquals([look(10), look(10), look(11)], ["new", "known", "damaged"]);
    prints.changed("nat X", "one", -1);
    assertEquals(look(10), "damaged");
    prints.changed("nat X", "one", 1);
    assertEquals([look(10), look(10)], ["new", "known"], "the same rules may look the same");
    prints.changed("nat X", "one", -1);
    prints.changed("nat X", "one", 1);
    assertEquals([look(12), look(12), look(10)], ["new", "known", "damaged"]);
    prints.changed("nat X", "three", 1);
    prints.markDamaged("nat X", 12);
    assertEquals([look(12), prints.isMarkedDamaged("nat X")], ["damaged", true]);
    prints.written();
    assertEquals([look(12), look(12), prints.isMarkedDamaged("nat X")], ["stays", "known", false]);
    assertEquals([look(13), look(13), look(12)], ["new", "known", "damaged"]);
    // What is found damaged stays so, whatever it looks like, until it is written again.
    prints.changed("nat X", "five", 1);
    prints.markDamaged("nat X", 14);
    assertEquals([look(15), look(15)], ["damaged", "damaged"]);
    prints.changed("nat X", "five", -1);
    prints.written();
    assertEquals([look(13), look(13)], ["new", "known"]);
    const next = new SharedPrints();
    for (const rule of ["one", "two", "four"]) next.changed("nat X", rule, 1);
    next.inherit(prints);
    assertEquals(next.look("nat X", ["-A X -j TAIL"], 13), "damaged");
  },
);

Deno.test(
  "a shared chain that stays as it was is told, and told again when its rules change once more",
  PURE,
  () => {
    const prints = new SharedPrints();
    const look = (print: number): PrintFinding => prints.look("nat X", [], print);
    prints.changed("nat X", "one", 1);
    assertEquals([look(10), look(10)], ["new", "known"]);
    for (const rule of ["two", "three"]) {
      prints.changed("nat X", rule, 1);
      assertEquals(look(10), "damaged", rule);
      prints.markDamaged("nat X", 10);
      prints.written();
      assertEquals([look(10), look(10)], ["stays", "known"], rule);
    }
  },
);

Deno.test(
  "a shared chain that changed and changed back may look as it did, whatever the rules are",
  PURE,
  () => {
    for (const rule of ["one", "two", "three", "four", "five", "six"]) {
      const prints = new SharedPrints();
      prints.changed("nat X", rule, 1);
      assertEquals(prints.look("nat X", [], 10), "new");
      for (const by of [1, -1] as const) prints.changed("nat X", `not ${rule}`, by);
      assertEquals(prints.look("nat X", [], 10), "new", rule);
    }
  },
);
