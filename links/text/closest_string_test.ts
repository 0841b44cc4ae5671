import { assertEquals, assertThrows } from "@std/assert";
import { closestString } from "@std/text/closest-string";

Deno.test("closestString finds the word of the least edits", { permissions: "none" }, () => {
  const modes = ["iptables", "ipvs", "nftables", "userspace"];
  for (
    const [given, expected] of [["iptable", "iptables"], ["IPVS", "ipvs"], ["nftable", "nftables"], [
      "usrspace",
      "userspace",
    ]]
  ) {
    assertEquals(closestString(given!, modes), expected);
  }
  assertEquals(closestString("AB", ["ab", "AC"], { caseSensitive: true }), "AC");
  assertEquals(closestString("", ["abc", "a"]), "a");
});

Deno.test("closestString measures as it is told, and needs a word", { permissions: "none" }, () => {
  const byLength = (a: string, b: string): number => Math.abs(a.length - b.length);
  assertEquals(closestString("xxxx", ["abc", "long", "longer"], { compareFn: byLength }), "long");
  assertThrows(() => closestString("a", []), TypeError, "at least one");
});
