import { assertEquals } from "@std/assert";
import { closestWord } from "./suggest.ts";

Deno.test("closestWord() names a candidate only if it is near", { permissions: "none" }, () => {
  const fields = ["mode", "iptables", "ipvs", "nodePortAddresses", "on"];
  const cases: [string, string | undefined][] = [
    ["mdoe", "mode"],
    ["no", "on"],
    ["abc", undefined],
    ["MODE", "mode"],
    ["iptable", "iptables"],
    ["nodeportaddress", "nodePortAddresses"],
    ["nodePortAddr", undefined],
    ["kubelet", undefined],
    ["of", "on"],
    ["xy", undefined],
    ["", undefined],
  ];
  for (const [word, expected] of cases) assertEquals(closestWord(word, fields), expected, word);
  assertEquals(closestWord("mode", []), undefined);
});
