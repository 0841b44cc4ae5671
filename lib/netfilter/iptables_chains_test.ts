import { assertEquals } from "@std/assert";
import { bodyRules, chainHolds, groupByChain, jumpRules, listingText } from "./iptables_chains.ts";
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

const HELD: readonly [found: readonly string[], same: boolean, sameInAnyOrder: boolean, among: boolean][] = [
  [["-j A", "-j B"], true, true, true],
  [["-j B", "-j A"], false, true, true],
  [["-j A"], false, false, false],
  [["-j A", "-j B", "-j C"], false, false, true],
  [["-j A", "-j A"], false, false, false],
  [["-j A", "-j 'never ends", "-j B"], false, false, true],
  [["-m comment --comment x -j A", "-j B"], false, false, false],
];

pure("a chain holds what it must, compared as its comparison says", () => {
  const rules = ["-j A", "-j B"];
  for (const [found, ...expected] of HELD) {
    const held = (["same", "sameInAnyOrder", "among"] as const).map((comparison) =>
      chainHolds(found, { rules, comparison })
    );
    assertEquals(held, expected, found.join("; "));
  }
  assertEquals(
    chainHolds(["-j MARK --set-xmark 0x4000/0x4000"], {
      rules: [canonicalRuleText("-j MARK --or-mark 0x4000")],
      comparison: "same",
    }),
    true,
  );
});
