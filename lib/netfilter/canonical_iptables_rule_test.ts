import { assertEquals } from "@std/assert";
import { readableRuleText } from "./canonical_iptables_rule.ts";

const NONE = { permissions: "none" } as const;

const PAIRS: readonly (readonly [written: string, saved: string, isSame: boolean])[] = [
  [
    '-m comment --comment "shop/web:http -> 10.0.0.1:80" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-A',
    '-m comment --comment "shop/web:http -> 10.0.0.1:80" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-A',
    true,
  ],
  [
    "-m comment --comment shop/web:http -s 10.0.0.1 -j KUBE-MARK-MASQ",
    "-s 10.0.0.1/32 -m comment --comment shop/web:http -j KUBE-MARK-MASQ",
    true,
  ],
  [
    "-m comment --comment shop/web:http ! -s 10.0.0.0/8 -d 10.96.0.1 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ",
    "! -s 10.0.0.0/8 -d 10.96.0.1/32 -p tcp -m comment --comment shop/web:http -m tcp --dport 80 -j KUBE-MARK-MASQ",
    true,
  ],
  ["-s 10.0.0.1 -d 10.0.0.2 -j X", "-s 10.0.0.2/32 -d 10.0.0.1/32 -j X", false],
  ["! -s 10.0.0.1 -d 10.0.0.2 -j X", "-s 10.0.0.1/32 ! -d 10.0.0.2/32 -j X", false],
  ['-m comment --comment "a -j b" -j X', '-m comment --comment "a" -j b -j X', false],
  ["-p tcp -m tcp --dport 80 -j X", "-p tcp -m tcp --sport 80 -j X", false],
  ["-m set --match-set A dst,dst -j X", "-m set --match-set A dst,src -j X", false],
];

for (const [written, saved, isSame] of PAIRS) {
  Deno.test(`${written} ${isSame ? "is" : "is not"} ${saved}`, NONE, () => {
    assertEquals(readableRuleText(written) === readableRuleText(saved), isSame);
  });
}
