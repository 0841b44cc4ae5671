import { assertEquals } from "@std/assert";
import { bodyRules, groupByChain, holdsAmongOthers, jumpRules, listingText } from "./iptables_jumps.ts";
import { canonicalRuleText } from "./canonical_iptables_rule.ts";

const pure = (name: string, fn: () => void) => Deno.test(name, { permissions: "none" }, fn);

pure("lines are sorted by chain in their order", () => {
  const bodies = groupByChain(["-A B 1", "-A A 2", "-A B 3"]);
  assertEquals([...bodies], [["B", ["-A B 1", "-A B 3"]], ["A", ["-A A 2"]]]);
});

pure("what must be there is canonical: chains by their bodies, the kernel's own by our jumps", () => {
  const written = "-j MARK --or-mark 0x4000";
  assertEquals([...bodyRules([["OURS", [`-A OURS ${written}`]], ["EMPTY", []]])], [
    ["OURS", [canonicalRuleText(written)]],
    ["EMPTY", []],
  ]);
  const jump = (table: "nat" | "filter", chain: string, target: string) =>
    ({ table, chain, target, args: `-j ${target}` }) as const;
  const jumps = [jump("nat", "OUTPUT", "A"), jump("filter", "INPUT", "B"), jump("nat", "OUTPUT", "C")];
  assertEquals([...jumpRules(jumps, "nat")], [["OUTPUT", ["-j A", "-j C"]]]);
});

pure("a listing asks for chains table by table", () => {
  const text = listingText([["nat", ["A", "B"]], ["filter", []]]);
  assertEquals(text, "*nat\n-S A\n-S B\nCOMMIT\n*filter\nCOMMIT\n");
});

pure("a chain holds our rules among others', whatever cannot be read", () => {
  const rules = ["-j A", canonicalRuleText("-j MARK --or-mark 0x4000")];
  const found = ["-j B", "-j MARK --set-xmark 0x4000/0x4000", "-j 'never ends", "-j A"];
  assertEquals([holdsAmongOthers(found, rules), holdsAmongOthers(found.slice(0, 3), rules)], [true, false]);
});
