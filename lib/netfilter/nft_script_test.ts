import { assert, assertEquals, assertThrows } from "@std/assert";
import { baseOf, NftTable } from "./nft_ruleset.ts";
import { parseNftScript, tablesOfScript } from "./nft_script.ts";

const NONE = { permissions: "none" } as const;
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

function tableOf(...lines: readonly string[]): NftTable {
  const [table] = tablesOfScript([START, ...lines].join("\n"));
  return new NftTable(table!, "IPv4");
}

Deno.test("nft script: chains, sets and maps as they are written", NONE, () => {
  const table = tableOf();
  const { name, comment, chains, containers } = table.listed;
  assertEquals([name, comment], ["ip t", "a table"]);
  assertEquals(baseOf(chains.get("plain")?.hook), null);
  assertEquals(baseOf(chains.get("hooked")?.hook), {
    type: "filter",
    hook: "prerouting",
    priority: -110,
    policy: "drop",
  });
  assertEquals(containers.get("clients")?.timeoutSeconds, 5400);
  assertEquals(table.keyTypes("verdicts"), ["ipv4_addr", "inet_proto", "inet_service"]);
  assertEquals(table.keyTypes("places"), ["ipv4_addr", "inet_service", "integer"]);
  assertEquals([...table.problems()], []);
});

Deno.test("nft script: elements come and go", NONE, () => {
  const { containers } = tableOf(
    'add element ip t verdicts { 10.0.0.1 . tcp . 80 comment "x" : goto plain , 10.0.0.2 . udp . 53 : drop }',
    "add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto plain }",
    "add element ip t ips { 10.0.0.1, 10.0.0.2 }",
    "delete element ip t ips {\n10.0.0.1\n}",
    "add element ip t clients { 10.0.0.1 }",
    "add set ip t clients { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }",
  ).listed;
  assertEquals([...containers.get("verdicts")!.elements], [
    ["10.0.0.1 . tcp . 80", "goto plain"],
    ["10.0.0.2 . udp . 53", "drop"],
  ]);
  assertEquals([...containers.get("ips")!.elements.keys()], ["10.0.0.2"]);
  const clients = containers.get("clients");
  assertEquals([clients?.timeoutSeconds, clients?.elements.size], [60, 1]);
});

Deno.test("nft script: chains are flushed, filled and deleted", NONE, () => {
  const rules = [
    "add rule ip t plain ip saddr 10.0.0.1 drop",
    "add chain ip t plain",
    'add rule ip t plain counter accept comment "a  b"',
  ];
  assertEquals(tableOf(...rules).listed.chains.get("plain")?.rules, [
    "ip saddr 10.0.0.1 drop",
    'counter accept comment "a  b"',
  ]);
  assertEquals(tableOf(...rules, "flush chain ip t plain").listed.chains.get("plain")?.rules, []);
  assertEquals(tableOf("delete chain ip t plain").listed.chains.has("plain"), false);
  assertEquals(tablesOfScript(`${START}delete table ip t\ndestroy table ip t`), []);
});

const REFUSED: readonly [line: string, why: string][] = [
  ["add rule ip t gone drop", "no rule to a chain that is there"],
  ["insert rule ip t plain drop", "no rule to a chain"],
  ["add element ip t gone { 10.0.0.1 }", "no set or map that is there"],
  [
    "add element ip t ips { 10.0.0.1 }\nadd element ip t ips { 10.0.0.1 : drop }",
    "which is there with the value",
  ],
  ["delete element ip t ips { 10.0.0.1 }", "which is not there"],
  ["delete chain ip t gone", "no chain that is there"],
  ["delete set ip t gone", "no set that is there"],
  ["delete table ip gone", "no table that is there"],
  ["add chain ip gone x", "no table that is there"],
  ["add element ip t ips {", "not closed"],
  ["add counter ip t c", "not understood"],
  ["frob", "no table that is there"],
];

for (const [line, why] of REFUSED) {
  Deno.test(`nft script that is refused: ${line}`, NONE, () => {
    const { tables, problems } = parseNftScript(`${START}${line}\n`);
    assertEquals(
      [tables.length, problems.length, problems[0]?.message.includes(why)],
      [1, 1, true],
      problems[0]?.message,
    );
    assertThrows(() => tablesOfScript(`${START}${line}`), SyntaxError, why);
  });
}

const UNREAD: readonly string[] = [
  "add rule ip t plain goto gone",
  "add rule ip t plain ip saddr @gone drop",
  "add rule ip t plain ip saddr vmap @verdicts",
  "add rule ip t plain ip daddr . th dport vmap @verdicts",
  "add rule ip t plain update @gone { ip saddr }",
  "add element ip t verdicts { 10.0.0.1 . tcp . 80 : goto gone }",
  "add set ip t x { type mark ; }",
  "add chain ip t x { type filter hook ingress priority 0 ; }",
  "add chain ip t x { type filter hook input priority later ; }",
];

for (const line of UNREAD) {
  Deno.test(`nft script whose rules no packet can be walked through: ${line}`, NONE, () => {
    assertEquals([...tableOf(line).problems()].length, 1);
  });
}

Deno.test("braces that never close cost as much time as there are lines", NONE, () => {
  const startMs = performance.now();
  const { problems } = parseNftScript(`${START}add element ip t ips {\n${"10.0.0.1,\n".repeat(50_000)}`);
  assertEquals(problems.map(({ message }) => message.endsWith("has braces that are not closed")), [true]);
  // Reading all earlier lines again for each line took minutes.
  assert(performance.now() - startMs < 5_000);
});
