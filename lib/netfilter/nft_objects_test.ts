import { assertEquals } from "@std/assert";
import {
  type Chain,
  type Container,
  diffObjects,
  type Element,
  type NftObjects,
  NftTransaction,
  NO_OBJECTS,
} from "./nft_objects.ts";

const NONE = { permissions: "none" } as const;

const HOOK = "type filter hook input priority 0; policy accept;";
const elements = (count: number): Element[] =>
  Array.from({ length: count }, (_, at) => ({ container: "cluster-ips", key: `10.96.0.${at}`, value: "" }));
const chains = (count: number): Chain[] =>
  Array.from({ length: count }, (_, at) => ({ name: `c${at}`, rules: ["accept"] }));
const names = (count: number): string[] => Array.from({ length: count }, (_, at) => `n${at}`);
const CLIENTS: Container = {
  name: "affinity-a",
  kind: "set",
  spec: "type ipv4_addr ; flags dynamic,timeout ;",
  timeoutSeconds: 60,
  comment: "",
};
const MAP: Container = { name: "m", kind: "map", spec: "type ipv4_addr : verdict ;", comment: "x" };

function objects(changes: Partial<NftObjects>): NftObjects {
  return { ...NO_OBJECTS, ...changes };
}

const DIFFERENCES: readonly [name: string, wanted: NftObjects, held: NftObjects, lines: readonly string[]][] =
  [
    [
      "what is not held is made, what it leads to first",
      {
        containers: [MAP, CLIENTS],
        chains: [{ name: "web", rules: ["drop"] }, { name: "in", hook: HOOK, rules: ["jump web"] }],
        elements: [{ container: "m", key: "10.0.0.1", value: "goto web", comment: "a" }],
      },
      NO_OBJECTS,
      [
        'add map t m { type ipv4_addr : verdict ; comment "x" ; }',
        "add set t affinity-a { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }",
        "add chain t web",
        "flush chain t web",
        "add rule t web drop",
        'add element t m { 10.0.0.1 comment "a" : goto web }',
        "add chain t in",
        "delete chain t in",
        `add chain t in { ${HOOK} }`,
        "add rule t in jump web",
      ],
    ],
    [
      "what is not wanted goes",
      NO_OBJECTS,
      {
        containers: [CLIENTS],
        chains: [{ name: "web", rules: ["drop"] }, { name: "in", hook: HOOK, rules: [] }],
        elements: elements(2),
      },
      [
        "delete element t cluster-ips { 10.96.0.0, 10.96.0.1 }",
        "flush chain t in",
        "delete chain t in",
        "flush chain t web",
        "delete set t affinity-a",
      ],
    ],
    [
      "an element of another value goes and comes, all that go first",
      objects({
        elements: [{ container: "m", key: "a", value: "drop" }, { container: "s", key: "b", value: "" }],
      }),
      objects({
        elements: [{ container: "m", key: "a", value: "goto web" }, { container: "s", key: "c", value: "" }],
      }),
      [
        "delete element t m { a }",
        "delete element t s { c }",
        "add element t m { a : drop }",
        "add element t s { b }",
      ],
    ],
    [
      "a comment that was not read equals any",
      objects({
        elements: ["x", "y"].map((key) => ({ container: "m", key, value: "drop", comment: "new" })),
      }),
      objects({
        elements: [{ container: "m", key: "x", value: "drop" }, {
          container: "m",
          key: "y",
          value: "drop",
          comment: "old",
        }],
      }),
      ["delete element t m { y }", 'add element t m { y comment "new" : drop }'],
    ],
    [
      "another timeout, and another order of rules",
      objects({ containers: [CLIENTS, MAP], chains: [{ name: "web", rules: ["accept", "drop"] }] }),
      objects({
        containers: [{ ...CLIENTS, timeoutSeconds: 5 }, { ...MAP, comment: "" }],
        chains: [{ name: "web", rules: ["drop", "accept"] }],
      }),
      [
        "add set t affinity-a { type ipv4_addr ; flags dynamic,timeout ; timeout 60s ; }",
        "add chain t web",
        "flush chain t web",
        "add rule t web accept",
        "add rule t web drop",
      ],
    ],
    [
      "a base chain that hangs elsewhere",
      objects({ chains: [{ name: "in", hook: HOOK, rules: ["drop"] }] }),
      objects({ chains: [{ name: "in", hook: HOOK.replace("0", "1"), rules: ["drop"] }] }),
      ["add chain t in", "delete chain t in", `add chain t in { ${HOOK} }`, "add rule t in drop"],
    ],
  ];

for (const [name, wanted, held, lines] of DIFFERENCES) {
  Deno.test(`difference: ${name}`, NONE, () => {
    assertEquals(diffObjects(wanted, held).lines("t"), lines);
    assertEquals(diffObjects(wanted, wanted).lines("t"), []);
  });
}

Deno.test(
  "a transaction counts what it writes and what it removes; a chain or set weighs what ten elements do",
  NONE,
  () => {
    const transaction = new NftTransaction();
    assertEquals([transaction.isEmpty, transaction.weight], [true, 0]);
    transaction.deletedElements.push(...elements(1));
    transaction.addedElements.push(...elements(2));
    assertEquals([transaction.isEmpty, transaction.weight], [false, 3]);
    transaction.containers.push(CLIENTS);
    transaction.deletedContainers.push(...names(4));
    transaction.chains.push(...chains(10));
    transaction.baseChains.push(...chains(20));
    transaction.deletedBaseChains.push(...names(40));
    transaction.flushedChains.push(...names(80));
    assertEquals(transaction.counts, { chains: 150, elements: 3, sets: 5 });
    assertEquals(transaction.weight, 3 + 10 * 155);
  },
);
