import { assertEquals } from "@std/assert";
import type { Chain, Element, Operations, ServiceOperations } from "../plan/ruleset.ts";
import {
  baseLines,
  countWritten,
  groupsByWeight,
  ServicesText,
  type ServiceText,
  serviceText,
} from "./transactions.ts";

const NONE = { permissions: "none" } as const;

const ADDRESS = { table: "ip kproxy", addressType: "ipv4_addr" } as const;

const elements = (count: number): Element[] =>
  Array.from({ length: count }, (_, at) => ({ container: "cluster-ips", key: `10.96.0.${at}`, value: "" }));
const chains = (count: number): Chain[] =>
  Array.from({ length: count }, (_, at) => ({ name: `c${at}`, rules: ["accept"] }));
const names = (count: number): string[] => Array.from({ length: count }, (_, at) => `n${at}`);

function service(name: string, changes: Partial<ServiceOperations> = {}): ServiceOperations {
  return {
    name,
    others: [],
    deletedElements: [],
    writtenSets: [],
    writtenChains: [],
    addedElements: [],
    staleChains: [],
    staleSets: [],
    ...changes,
  };
}

Deno.test("the metrics of a sync count what it writes and what it removes", NONE, () => {
  const hooked = chains(3).map((chain) => ({ ...chain, hook: "type filter hook input priority 0" }));
  const container = { name: "x", kind: "set", spec: "type ipv4_addr ;", comment: "" } as const;
  const sets = names(2).map((name) => ({ name, timeoutSeconds: 60 }));
  const operations: Omit<Operations, "services"> = {
    base: {
      containers: [container],
      chains: chains(1),
      hookedChains: hooked,
      deletedElements: elements(1),
      addedElements: elements(2),
      sharedChains: chains(2),
    },
    leftover: {
      foreignHooks: names(40),
      deletedElements: elements(16),
      staleChains: names(80),
      staleSets: names(16),
    },
  };
  assertEquals(countWritten(operations), {
    chains: 1 + 3 + 2 + 40 + 80,
    elements: 1 + 2 + 16,
    sets: 1 + 16,
  });
  const web = service("shop/web", {
    deletedElements: elements(4),
    addedElements: elements(8),
    writtenSets: sets,
    writtenChains: chains(10),
    staleChains: names(20),
    staleSets: names(4),
  });
  assertEquals(serviceText(ADDRESS, web).counts, { chains: 10 + 20, elements: 4 + 8, sets: 2 + 4 });
});

Deno.test("elements of the base go before others come", NONE, () => {
  const base = {
    containers: [],
    chains: [],
    hookedChains: [],
    deletedElements: elements(2),
    addedElements: elements(1),
    sharedChains: [],
  };
  assertEquals(baseLines(ADDRESS, base, true), [
    "delete element ip kproxy cluster-ips { 10.96.0.0, 10.96.0.1 }",
    "add element ip kproxy cluster-ips { 10.96.0.0 }",
  ]);
});

/** What weighs what ten elements do. */
const HEAVY: readonly (readonly [what: string, changes: Partial<ServiceOperations>])[] = [
  ["a set", { writtenSets: [{ name: "x", timeoutSeconds: 60 }] }],
  ["a chain", { writtenChains: chains(1) }],
  ["a chain that goes", { staleChains: names(1) }],
  ["a set that goes", { staleSets: names(1) }],
  ["elements that come and go", { deletedElements: elements(4), addedElements: elements(6) }],
];

for (const [what, changes] of HEAVY) {
  Deno.test(`transactions of equal weight: ${what} is as much as ten elements`, NONE, () => {
    const text = (name: string, changes: Partial<ServiceOperations>): ServiceText =>
      serviceText(ADDRESS, service(name, changes));
    const light = text("light", { addedElements: elements(9) });
    const heavy = text("heavy", changes);
    const last = text("last", { deletedElements: elements(1) });
    const groups = [...groupsByWeight([light, heavy, last, heavy, light, last], 20)];
    assertEquals(groups.map((group) => group.map(({ name }) => name)), [
      ["light", "heavy", "last"],
      ["heavy", "light", "last"],
    ]);
    assertEquals([...groupsByWeight([heavy, heavy, heavy], 20)].map(({ length }) => length), [2, 1]);
    assertEquals([...groupsByWeight([heavy], 1)].length, 1);
    assertEquals([...groupsByWeight([], 20)], []);
  });
}

Deno.test("each line of several Services is of one of them, and they may have none", NONE, () => {
  const texts = [
    service("shop/none"),
    service("shop/web", { addedElements: elements(2), writtenChains: chains(1) }),
    service("shop/idle"),
    service("shop/cart", { staleChains: names(1) }),
  ].map((operations) => serviceText(ADDRESS, operations));
  const all = new ServicesText(texts);
  assertEquals(all.text.split("\n"), [
    "add chain ip kproxy c0",
    "flush chain ip kproxy c0",
    "add rule ip kproxy c0 accept",
    "add element ip kproxy cluster-ips { 10.96.0.0, 10.96.0.1 }",
    "flush chain ip kproxy n0",
    "",
  ]);
  const owners = [1, 2, 3, 4, 5, 6].map((line) => all.ownerOf(line)?.name);
  assertEquals(owners, ["shop/web", "shop/web", "shop/web", "shop/web", "shop/cart", undefined]);
});
