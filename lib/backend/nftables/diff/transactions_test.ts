import { assertEquals } from "@std/assert";
import type { Chain, Element, Operations, ServiceOperations } from "../plan/ruleset.ts";
import { baseLines, countWritten, groupsByWeight } from "./transactions.ts";

const NONE = { permissions: "none" } as const;

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
  const operations: Operations = {
    base: {
      containers: [container],
      chains: chains(1),
      hookedChains: hooked,
      deletedElements: elements(1),
      addedElements: elements(2),
      sharedChains: chains(2),
    },
    services: [
      service("shop/web", {
        deletedElements: elements(4),
        addedElements: elements(8),
        writtenSets: sets,
        writtenChains: chains(10),
        staleChains: names(20),
        staleSets: names(4),
      }),
      service("shop/cart", { writtenSets: sets, staleSets: names(8) }),
    ],
    leftover: {
      foreignHooks: names(40),
      deletedElements: elements(16),
      staleChains: names(80),
      staleSets: names(16),
    },
  };
  assertEquals(countWritten(operations), {
    chains: 1 + 3 + 2 + 10 + 20 + 40 + 80,
    elements: 1 + 2 + 4 + 8 + 16,
    sets: 1 + 2 + 4 + 2 + 8 + 16,
  });
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
  assertEquals(baseLines({ table: "ip kproxy", addressType: "ipv4_addr" }, base, true), [
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
    const light = service("light", { addedElements: elements(9) });
    const heavy = service("heavy", changes);
    const last = service("last", { deletedElements: elements(1) });
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
