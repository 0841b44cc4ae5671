import { assertEquals, assertThrows } from "@std/assert";
import { NftTables } from "./nft_tables.ts";

const START = `
# comments and empty lines do nothing
add table ip t { comment "a table" ; }
add chain ip t plain
add chain ip t hooked { type filter hook prerouting priority dstnat - 10; policy drop; }
add set ip t ips { type ipv4_addr ; comment "some, all" ; }
add set ip t clients { type ipv4_addr ; flags dynamic,timeout ; timeout 1h30m ; }
add map ip t verdicts { type ipv4_addr . inet_proto . inet_service : verdict ; }
add map ip t places { typeof ip daddr . tcp dport . numgen random mod 65536 : ip daddr . tcp dport ; }
`;

function kernel(...lines: readonly string[]): NftTables {
  const tables = new NftTables();
  tables.run(START);
  for (const line of lines) tables.run(line);
  return tables;
}

Deno.test("nft script: chains, sets and maps as they are written", { permissions: "none" }, () => {
  const [table] = kernel().tables;
  assertEquals([table?.family, table?.name], ["IPv4", "t"]);
  assertEquals(table?.chains.get("plain")?.base, null);
  assertEquals(table?.chains.get("hooked")?.base, {
    type: "filter",
    hook: "prerouting",
    priority: -110,
    policy: "drop",
  });
  assertEquals(table?.containers.get("clients")?.timeoutSeconds, 5400);
  const verdicts = table?.containers.get("verdicts");
  assertEquals(verdicts?.keys, ["ipv4_addr", "inet_proto", "inet_service"]);
  assertEquals(verdicts?.values, "verdict");
  const places = table?.containers.get("places");
  assertEquals(places?.keys, ["ipv4_addr", "inet_service", "integer"]);
  assertEquals(places?.values, ["ipv4_addr", "inet_service"]);
});

Deno.test("nft script: elements come, compare by what they mean, and go", { permissions: "none" }, () => {
  const tables = kernel(
    'add element ip t verdicts { 010.0.0.1 . tcp . 080 comment "x" : goto plain , 10.0.0.2 . udp . 53 : drop }',
    "add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto plain }",
    "add element ip t ips { 10.0.0.1, 10.0.0.2 }",
    "delete element ip t ips {\n10.0.0.1\n}",
  );
  const containers = tables.tables[0]!.containers;
  assertEquals([...containers.get("verdicts")!.elements], [
    ["10.0.0.1 . tcp . 80", "goto plain"],
    ["10.0.0.2 . udp . 53", "drop"],
  ]);
  assertEquals([...containers.get("ips")!.elements.keys()], ["10.0.0.2"]);
  tables.run("flush set ip t ips\nflush map ip t verdicts");
  assertEquals([containers.get("verdicts")!.elements.size, containers.get("ips")!.elements.size], [0, 0]);
});

Deno.test(
  "nft script: an affinity set may get another time and keeps its elements",
  { permissions: "none" },
  () => {
    const tables = kernel(
      "add element ip t clients { 10.0.0.1 }",
      "add set ip t clients { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }",
    );
    const clients = tables.tables[0]!.containers.get("clients");
    assertEquals([clients?.timeoutSeconds, clients?.elements.size], [60, 1]);
  },
);

Deno.test("nft script: chains are flushed, filled and deleted", { permissions: "none" }, () => {
  const tables = kernel(
    "add rule ip t plain ip saddr 10.0.0.1 drop",
    "add chain ip t plain",
    'add rule ip t plain counter accept comment "a  b"',
  );
  const { chains } = tables.tables[0]!;
  assertEquals(chains.get("plain")?.rules.map(({ text }) => text), [
    "ip saddr 10.0.0.1 drop",
    'counter accept comment "a  b"',
  ]);
  tables.run("flush chain ip t plain");
  assertEquals(chains.get("plain")?.rules, []);
  tables.run("delete chain ip t plain");
  assertEquals(chains.has("plain"), false);
  tables.run("delete table ip t");
  assertEquals(tables.tables, []);
  tables.run("destroy table ip t");
});

const REFUSED: readonly [lines: readonly string[], why: string][] = [
  [["add rule ip t gone drop"], "no chain gone for a rule"],
  [["add rule ip t plain goto gone"], "no chain gone to go to"],
  [["add rule ip t plain jump hooked"], "only called by the kernel"],
  [["add rule ip t plain ip saddr @gone drop"], "no set or map gone"],
  [["add rule ip t plain ip saddr vmap @ips"], "ips holds ipv4_addr"],
  [["add rule ip t plain ip daddr . th dport vmap @verdicts"], "verdicts holds"],
  [["add rule ip t plain dnat ip to ip daddr . tcp dport map @places"], "places holds"],
  [["add rule ip t plain update @verdicts { ip saddr }"], "no set verdicts"],
  [["add element ip t gone { 10.0.0.1 }"], "no set or map gone"],
  [["add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto gone }"], "no chain gone to go to"],
  [["add element ip t verdicts { 10.0.0.1 . tcp : drop }"], "has not 3 parts"],
  [["add element ip t ips { fd00::1 }"], '"fd00::1" is no ipv4_addr'],
  [["add element ip t verdicts { 10.0.0.1 . tcp . http : drop }"], '"http" is no inet_service'],
  [["add element ip t ips { 10.0.0.1 : drop }"], "has the value drop"],
  [
    [
      "add element ip t verdicts { 10.0.0.1 . tcp . 80 : drop }",
      "add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto plain }",
    ],
    "already",
  ],
  [["delete element ip t ips { 10.0.0.1 }"], "no element 10.0.0.1 to delete"],
  [["add rule ip t hooked goto plain", "delete chain ip t plain"], "still used"],
  [
    ["add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto plain }", "delete chain ip t plain"],
    "still used",
  ],
  [["delete chain ip t gone"], "no chain gone to delete"],
  [["delete set ip t gone"], "no set gone to delete"],
  [["delete table ip gone"], "no table gone"],
  [["add chain ip gone x"], "no such table"],
  [["add table inet t"], "another family"],
  [["insert rule ip t plain drop"], "something unknown to a rule"],
  [["add element ip t ips {"], "not closed"],
  [["add counter ip t c"], "is about counter"],
  [["add set ip t x { type ipv4_addr ; flags interval ; }"], "unknown flag"],
  [["add set ip t x { type mark ; }"], "unknown type"],
  [["add map ip t x { type ipv4_addr ; }"], "is no map"],
  [["add chain ip t x { type route hook output priority 0 ; }"], "unknown type"],
  [["add chain ip t x { type filter hook ingress priority 0 ; }"], "unknown hook"],
  [["add chain ip t x { type filter hook input priority later ; }"], "unknown priority"],
];

for (const [lines, why] of REFUSED) {
  Deno.test(`nft script that is refused: ${lines.at(-1)}`, { permissions: "none" }, () => {
    const error = assertThrows(() => kernel(...lines), Error, why);
    assertEquals(error instanceof SyntaxError || error instanceof RangeError, true);
  });
}
