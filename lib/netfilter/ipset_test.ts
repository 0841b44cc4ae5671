import { assertEquals, assertThrows } from "@std/assert";
import { formatSets } from "../../tests/support/saved_texts.ts";
import {
  createSetLine,
  ipPortEntry,
  ipPortIpEntry,
  ipPortNetEntry,
  normalEntry,
  parseSets,
  parseSetSizes,
  type SetDefinition,
} from "./ipset.ts";

const permissions = "none";

/** Output of ipset 7.17. */
const SAVED = `create A hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xede0d007
add A 10.0.0.1,sctp:80
add A 10.0.0.1,tcp:80
create B hash:ip,port,net family inet6 hashsize 2048 maxelem 100000 bucketsize 12 initval 0x0d6f0c39
add B fd00::1,tcp:80,fd00::1
add B fd00::1,tcp:80,fd00::/64
create C bitmap:port range 0-65535
add C 30000
create D hash:net family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0x1
add D 10.0.0.0/8
create E hash:ip family inet hashsize 1024 maxelem 65536 timeout 300
create F bitmap:port range 0-1024
create G list:set size 8
`;

Deno.test("saved sets are read without what the kernel adds", { permissions }, () => {
  const sets = parseSets(SAVED);
  assertEquals(sets.get("A"), {
    name: "A",
    definition: { name: "A", type: "hash:ip,port", family: "IPv4", maxElements: 65536 },
    entries: new Set(["10.0.0.1,sctp:80", "10.0.0.1,tcp:80"]),
  });
  assertEquals(sets.get("B")?.definition, {
    name: "B",
    type: "hash:ip,port,net",
    family: "IPv6",
    maxElements: 100000,
  });
  assertEquals(sets.get("C")?.definition?.type, "bitmap:port");
  for (const other of ["D", "E", "F", "G"]) assertEquals(sets.get(other)?.definition, null, other);
  assertEquals([...sets.get("D")?.entries ?? []], ["10.0.0.0/8"]);
  assertThrows(() => parseSets("add NONE 1.2.3.4\n"), SyntaxError);
});

Deno.test("written sets are read as they were", { permissions }, () => {
  const sets: { definition: SetDefinition; entries: string[] }[] = [
    {
      definition: { name: "X", type: "hash:ip,port,ip", family: "IPv6", maxElements: 70000 },
      entries: [ipPortIpEntry("fd00::1", "UDP", 53, "fd00::1")],
    },
    {
      definition: { name: "Y", type: "bitmap:port", family: "IPv4", maxElements: 65536 },
      entries: ["30000"],
    },
  ];
  assertEquals(
    [...parseSets(formatSets(sets)).values()],
    sets.map(({ definition, entries }) => ({
      name: definition.name,
      definition,
      entries: new Set(entries),
    })),
  );
  assertEquals(
    createSetLine({ name: "X", type: "hash:ip", family: "IPv4", maxElements: 65536 }),
    "create X hash:ip family inet hashsize 1024 maxelem 65536",
  );
});

Deno.test("entries are written as ipset lists them", { permissions }, () => {
  assertEquals(ipPortEntry("fd00:10:96::9", "TCP", 80), "fd00:10:96::9,tcp:80");
  assertEquals(ipPortNetEntry("203.0.113.5", "TCP", 80, "198.18.0.0/15"), "203.0.113.5,tcp:80,198.18.0.0/15");
  assertEquals(
    ipPortNetEntry("203.0.113.5", "TCP", 80, "198.51.100.77/32"),
    "203.0.113.5,tcp:80,198.51.100.77",
  );
  assertEquals(ipPortNetEntry("fd00::5", "SCTP", 80, "fd00::7/128"), "fd00::5,sctp:80,fd00::7");
  assertEquals(ipPortNetEntry("203.0.113.5", "TCP", 80, "0.0.0.0/0"), null);
  assertEquals(ipPortNetEntry("fd00::5", "TCP", 80, "::/0"), null);
  assertThrows(() => ipPortNetEntry("203.0.113.5", "TCP", 80, "all"), SyntaxError);
});

Deno.test(
  "a network of one address is written without its length, a /32 of IPv6 is not",
  { permissions },
  () => {
    assertEquals(normalEntry("203.0.113.5,tcp:80,198.51.100.77/32"), "203.0.113.5,tcp:80,198.51.100.77");
    assertEquals(normalEntry("fd00::5,tcp:80,fd00::7/128"), "fd00::5,tcp:80,fd00::7");
    assertEquals(normalEntry("fd00::5,tcp:80,fd00::/32"), "fd00::5,tcp:80,fd00::/32");
    assertEquals(normalEntry("203.0.113.5,tcp:80,198.18.0.0/15"), "203.0.113.5,tcp:80,198.18.0.0/15");
    assertEquals(normalEntry("30000"), "30000");
  },
);

Deno.test("sizes of sets, as ipset 7.17 prints them and as an old one does", { permissions }, () => {
  const header = "Type: hash:ip\nRevision: 6\nHeader: family inet\nSize in memory: 216\nReferences: 0\n";
  assertEquals(
    parseSetSizes(
      `Name: A\n${header}Number of entries: 17\n\nName: B\n${header}\nName: C\n${header}Number of entries: 0\n`,
    ),
    new Map([["A", 17], ["B", null], ["C", 0]]),
  );
  assertEquals(parseSetSizes(""), new Map());
});
