import { assertEquals, assertThrows } from "@std/assert";
import type { NftStatement } from "./nft_rule.ts";
import { parseNftVerdict, readNftRule } from "./parse_nft_rule.ts";

const SOURCE = { kind: "source" } as const;
const DESTINATION = { kind: "destination" } as const;
const STATE = { kind: "state" } as const;
const PROTOCOL = { kind: "protocol" } as const;
const PORT = { kind: "destinationPort", only: null } as const;
const named = (name: string) => ({ kind: "named", name }) as const;
const inline = (...elements: (readonly [string, string])[]) =>
  ({ kind: "inline", elements: new Map(elements) }) as const;

const CASES: readonly { text: string; statements: readonly NftStatement[] }[] = [
  {
    text:
      "meta l4proto tcp ct direction reply ct original ip daddr . meta l4proto . ct original proto-dst @out return",
    statements: [
      { kind: "match", not: false, key: [PROTOCOL], operand: inline(["tcp", ""]) },
      { kind: "match", not: false, key: [{ kind: "direction" }], operand: inline(["reply", ""]) },
      {
        kind: "match",
        not: false,
        key: [{ kind: "originalDestination" }, PROTOCOL, { kind: "originalPort" }],
        operand: named("out"),
      },
      { kind: "verdict", verdict: { kind: "return" } },
    ],
  },
  {
    text: "ct state new jump firewall-check",
    statements: [
      { kind: "match", not: false, key: [STATE], operand: inline(["new", ""]) },
      { kind: "verdict", verdict: { kind: "jump", chain: "firewall-check" } },
    ],
  },
  {
    text: "ct state != { established, related } drop",
    statements: [
      { kind: "match", not: true, key: [STATE], operand: inline(["established", ""], ["related", ""]) },
      { kind: "verdict", verdict: { kind: "drop" } },
    ],
  },
  {
    text: "ip daddr . meta l4proto . th dport vmap @service-ips",
    statements: [
      { kind: "verdictMap", key: [DESTINATION, PROTOCOL, PORT], operand: named("service-ips") },
    ],
  },
  {
    text: "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports",
    statements: [
      { kind: "match", not: false, key: [DESTINATION], operand: named("nodeport-ips") },
      { kind: "verdictMap", key: [PROTOCOL, PORT], operand: named("service-nodeports") },
    ],
  },
  {
    text: "ip saddr != { 192.0.2.0/24 , 203.0.113.50 } drop",
    statements: [
      {
        kind: "match",
        not: true,
        key: [SOURCE],
        operand: inline(["192.0.2.0/24", ""], ["203.0.113.50", ""]),
      },
      { kind: "verdict", verdict: { kind: "drop" } },
    ],
  },
  {
    text:
      'ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000 comment "masquerade, then } go"',
    statements: [
      { kind: "match", not: false, key: [DESTINATION], operand: named("cluster-ips") },
      { kind: "match", not: true, key: [SOURCE], operand: inline(["10.244.0.0/16", ""]) },
      { kind: "setMark", keep: 0xffffbfff, flip: 0x4000 },
      { kind: "note" },
    ],
  },
  {
    text: "mark and 0x80000000 != 0 mark set mark xor 0x80000000 masquerade fully-random",
    statements: [
      { kind: "mark", not: true, mask: 0x80000000, value: 0 },
      { kind: "setMark", keep: 0xffffffff, flip: 0x80000000 },
      { kind: "masquerade" },
    ],
  },
  {
    text: "meta mark != 0x00000000/1 meta mark 0xc0000000/2 meta mark 0x5/32",
    statements: [
      { kind: "mark", not: true, mask: 0x80000000, value: 0 },
      { kind: "mark", not: false, mask: 0xc0000000, value: 0xc0000000 },
      { kind: "mark", not: false, mask: 0xffffffff, value: 5 },
    ],
  },
  {
    text: "meta mark 0x1 meta mark set meta mark & 0xff meta mark set 0x7",
    statements: [
      { kind: "mark", not: false, mask: 0xffffffff, value: 1 },
      { kind: "setMark", keep: 0xff, flip: 0 },
      { kind: "setMark", keep: 0, flip: 7 },
    ],
  },
  {
    text: 'iifname "veth*" goto tcp-3',
    statements: [
      { kind: "match", not: false, key: [{ kind: "inInterface" }], operand: inline(["veth*", ""]) },
      { kind: "verdict", verdict: { kind: "goto", chain: "tcp-3" } },
    ],
  },
  {
    text: "fib saddr type local meta l4proto tcp return",
    statements: [
      { kind: "match", not: false, key: [{ kind: "sourceType" }], operand: inline(["local", ""]) },
      { kind: "match", not: false, key: [PROTOCOL], operand: inline(["tcp", ""]) },
      { kind: "verdict", verdict: { kind: "return" } },
    ],
  },
  {
    text: "dnat ip to ip daddr . tcp dport . numgen random mod 3 map @endpoints-tcp",
    statements: [{
      kind: "dnatMap",
      key: [DESTINATION, { kind: "destinationPort", only: "tcp" }, { kind: "random", modulus: 3 }],
      operand: named("endpoints-tcp"),
    }],
  },
  {
    text:
      "meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80 , 1 : 10.0.0.2 . 80 }",
    statements: [
      { kind: "match", not: false, key: [PROTOCOL], operand: inline(["tcp", ""]) },
      {
        kind: "dnatMap",
        key: [{ kind: "random", modulus: 2 }],
        operand: inline(["0", "10.0.0.1 . 80"], ["1", "10.0.0.2 . 80"]),
      },
    ],
  },
  { text: "dnat to 10.0.0.1:8080", statements: [{ kind: "dnat", ip: "10.0.0.1", port: 8080 }] },
  { text: "dnat ip to 10.0.0.1", statements: [{ kind: "dnat", ip: "10.0.0.1", port: null }] },
  {
    text: "numgen random mod 2 vmap { 0 : goto endpoint-A/b , 1 : goto endpoint-C/d }",
    statements: [{
      kind: "verdictMap",
      key: [{ kind: "random", modulus: 2 }],
      operand: inline(["0", "goto endpoint-A/b"], ["1", "goto endpoint-C/d"]),
    }],
  },
  {
    text: "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade",
    statements: [
      { kind: "match", not: false, key: [{ kind: "status" }], operand: inline(["dnat", ""]) },
      {
        kind: "match",
        not: false,
        key: [SOURCE, DESTINATION, PROTOCOL, PORT],
        operand: named("hairpin-connections"),
      },
      { kind: "masquerade" },
    ],
  },
  {
    text: "update @affinity-A { ip saddr } counter packets 3 bytes 180 counter name c",
    statements: [
      { kind: "remember", set: "affinity-A", refresh: true },
      { kind: "note" },
      { kind: "note" },
    ],
  },
  { text: "reject", statements: [{ kind: "reject", with: null }] },
  { text: "reject with tcp reset", statements: [{ kind: "reject", with: "tcp-reset" }] },
  {
    text: "reject with icmp type host-prohibited",
    statements: [{ kind: "reject", with: "icmp-host-prohibited" }],
  },
];

for (const { text, statements } of CASES) {
  Deno.test(`nft rule: ${text}`, { permissions: "none" }, () => {
    assertEquals(readNftRule(text, "IPv4", false), statements);
  });
}

Deno.test("in a table of IPv6 addresses and destinations are of IPv6", { permissions: "none" }, () => {
  assertEquals(readNftRule("ip6 saddr . ip6 daddr @h dnat to [fd00::1]:80", "IPv6", false), [
    { kind: "match", not: false, key: [SOURCE, DESTINATION], operand: named("h") },
    { kind: "dnat", ip: "fd00::1", port: 80 },
  ]);
  assertEquals(readNftRule("dnat to fd00::1", "IPv6", false), [{ kind: "dnat", ip: "fd00::1", port: null }]);
  assertEquals(readNftRule("ip saddr 10.0.0.1 drop", "IPv6", false).map(({ kind }) => kind), ["unread"]);
  assertEquals(readNftRule("dnat to 10.0.0.1:80", "IPv6", false).map(({ kind }) => kind), ["unread"]);
});

const UNREAD: readonly string[] = [
  "ip protocol tcp drop",
  "th sport 80 drop",
  "ct state asleep drop",
  "ct mark 1",
  "ct status confirmed drop",
  "fib daddr . iif type local",
  "fib daddr type broadcast drop",
  "fib oif saddr drop",
  "limit rate 1/second drop",
  "ip daddr @s quota",
  "numgen inc mod 2 vmap { 0 : drop }",
  "numgen random mod 0 vmap { 0 : drop }",
  "ip daddr vmap service-ips",
  "meta mark set meta mark + 1",
  "dnat to 10.0.0.1-10.0.0.5",
  "snat to 10.0.0.1",
  "reject with icmpx admin-prohibited",
  "update @s { ip daddr }",
  "update @s { ip saddr timeout 5s }",
  "jump",
  'drop comment "x',
  "ip saddr { 10.0.0.1, 10.0.0.1 } drop",
  "ip saddr { 10.0.0.1",
];

for (const text of UNREAD) {
  Deno.test(`nft rule that is not understood: ${text}`, { permissions: "none" }, () => {
    assertEquals(readNftRule(text, "IPv4", false).at(-1), { kind: "unread", text });
  });
}

Deno.test("verdicts of elements", { permissions: "none" }, () => {
  assertEquals(parseNftVerdict("goto reject-chain"), { kind: "goto", chain: "reject-chain" });
  assertEquals(parseNftVerdict("drop"), { kind: "drop" });
  assertThrows(() => parseNftVerdict("reject"), SyntaxError, "has no verdict");
  assertThrows(() => parseNftVerdict("drop it"), SyntaxError, "goes on");
});
