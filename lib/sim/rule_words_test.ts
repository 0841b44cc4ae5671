import { assertEquals } from "@std/assert";
import { ruleWords } from "./rule_words.ts";

/** Rules of other programs: words that left something out would mislead. */
const IPTABLES: readonly (readonly [rule: string, words: string])[] = [
  ["-p tcp --dport 80 -j MASQUERADE --random-fully", "tcp, port 80: masquerade"],
  ["-j MASQUERADE --to-ports 1", "MASQUERADE --to-ports 1"],
  ["-j REJECT --reject-with tcp-reset", "refuse with tcp-reset"],
  ["-j REJECT --foo", "REJECT --foo"],
  ["-j REDIRECT --to-ports 80", "send to the node itself, port 80"],
  ["-j REDIRECT --to-ports 80-90", "REDIRECT --to-ports 80-90"],
  ["-j DNAT --to-destination 10.0.0.1:80", "send to 10.0.0.1:80"],
  ["-m mark ! --mark 0x4000 -j RETURN", "not marked 0x4000: go back"],
  ["-m mark ! --mark zz -j RETURN", "-m mark ! --mark zz: go back"],
  [
    "-m ipvs --vaddr 10.0.0.1 --vproto 6 --vport 80 -j ACCEPT",
    "through virtual server 10.0.0.1:80: accept",
  ],
  [
    "-m ipvs ! --vaddr 10.0.0.1 --vproto 6 --vport 80 -j ACCEPT",
    "-m ipvs ! --vaddr 10.0.0.1 --vproto 6 --vport 80: accept",
  ],
];
const NFTABLES: readonly (readonly [rule: string, words: string])[] = [
  ["ct status dnat accept", "destination translated: accept"],
  ["ct status snat accept", "source translated: accept"],
  ["ct status dnat,snat accept", "destination or source translated: accept"],
];

Deno.test("rules of others in words leave nothing out", { permissions: "none" }, () => {
  for (const [table, rules] of [["filter", IPTABLES], ["ip filter", NFTABLES]] as const) {
    for (const [rule, words] of rules) {
      assertEquals(ruleWords({ table, chain: "FORWARD", index: 1, rule }, "IPv4"), words, rule);
    }
  }
});
