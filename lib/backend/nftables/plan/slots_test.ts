import { assertEquals, assertThrows } from "@std/assert";
import { assignSlots } from "./slots.ts";

const split = (text: string): string[] => text === "" ? [] : text.split("");

for (
  const [what, before, wanted, slots] of [
    ["from nothing", "", "abc", "abc"],
    ["nothing changes", "cab", "abc", "cab"],
    ["one is replaced", "abc", "abd", "abd"],
    ["one is replaced in the middle", "abc", "acd", "adc"],
    ["the first goes: the last takes its place", "abc", "bc", "cb"],
    ["the last goes", "abc", "ab", "ab"],
    ["one comes", "ba", "abc", "bac"],
    ["all are replaced", "abc", "xyz", "xyz"],
    ["all go", "abc", "", ""],
    ["two go, one comes", "abcd", "bcx", "xbc"],
    ["of the same two times, the first stays", "aab", "abc", "acb"],
  ] as const
) {
  Deno.test(`slots: ${what}`, { permissions: "none" }, () => {
    assertEquals(assignSlots(split(before), split(wanted)).join(""), slots);
  });
}

Deno.test("slots: holes are filled", { permissions: "none" }, () => {
  assertEquals(assignSlots([undefined, "b", undefined], ["a", "b", "c"]), ["a", "b", "c"]);
});

Deno.test("slots: the same endpoint twice is refused", { permissions: "none" }, () => {
  assertThrows(() => assignSlots(["c"], ["a", "a"]), RangeError, "must differ");
});
