import { assertEquals } from "@std/assert";
import type { NamespacedName } from "../../../model/objects.ts";
import { ClaimsAfter, claimsByName, withoutDestinations } from "./claims.ts";
import type { ServiceRules } from "./ruleset.ts";

const NONE = { permissions: "none" } as const;
const X = "10.96.0.1 . tcp . 80";
const Y = "10.96.0.2 . tcp . 80";

/** What wants these destinations, each in two maps, and has a list of endpoints for each. */
function wanting(destinations: readonly string[]): ServiceRules {
  return {
    elements: destinations.flatMap((key) =>
      ["service-ips", "firewall-ips"].map((container) => ({ container, key, value: "drop" }))
    ),
    sharedElements: [],
    lists: destinations.map((claim) => ({
      id: claim,
      destinations: [{ container: "endpoints-tcp", prefix: claim, claim }],
      endpoints: ["10.244.0.1 . 8080"],
    })),
    chains: [],
    affinitySets: [],
    usedChains: [],
  };
}

interface Case {
  /** Planned Service → what it wants; null: gone. */
  readonly planned: Readonly<Record<NamespacedName, readonly string[] | null>>;
  /** What Services have in the kernel. */
  readonly before: Readonly<Record<NamespacedName, readonly string[]>>;
  /** Of X; null: nobody. */
  readonly winner: NamespacedName | null;
  /** `from to`. */
  readonly handovers?: readonly string[];
}

/** A Service whose new rules the kernel refused keeps its former ones, so others may want what it has. */
const CASES: Readonly<Record<string, Case>> = {
  "nobody wants it": { planned: { "a/a": [Y] }, before: {}, winner: null },
  "one wants it": { planned: { "a/a": [X] }, before: {}, winner: "a/a" },
  "of two that are planned, the first by name": {
    planned: { "a/b": [X], "a/a": [X], "a/c": [X] },
    before: {},
    winner: "a/a",
  },
  "one that is not planned has it": { planned: { "a/b": [X, Y] }, before: { "a/a": [X] }, winner: "a/a" },
  "one that is not planned had it, and comes later by name": {
    planned: { "a/b": [X] },
    before: { "a/c": [X] },
    winner: "a/b",
    handovers: ["a/c a/b"],
  },
  "what a planned one had does not count": {
    planned: { "a/a": [Y], "a/b": [X] },
    before: { "a/a": [X] },
    winner: "a/b",
    handovers: ["a/a a/b"],
  },
  "one that goes leaves it to one that waits": {
    planned: { "a/a": null },
    before: { "a/a": [X], "a/b": [X] },
    winner: "a/b",
    handovers: ["a/a a/b"],
  },
  "one that goes leaves it to nobody": { planned: { "a/a": null }, before: { "a/a": [X] }, winner: null },
  "the others have other things": { planned: { "a/b": [X] }, before: { "a/a": [Y] }, winner: "a/b" },
};

for (const [name, { planned, before, winner, handovers = [] }] of Object.entries(CASES)) {
  Deno.test(`who has a destination: ${name}`, NONE, () => {
    const services = new Map(Object.entries(planned).map(([name, keys]) => [name, keys && wanting(keys)]));
    const known = claimsByName();
    for (const [name, keys] of Object.entries(before)) for (const key of keys) known.add(key, name);
    const after = new ClaimsAfter(services, known);
    assertEquals(after.winner(X), winner);
    assertEquals(
      after.handovers(Object.values(before).flat()).map(({ from, to }) => `${from} ${to}`),
      handovers,
    );
    for (const [name, keys] of Object.entries(planned)) {
      const isLost = (keys ?? []).includes(X) && name !== winner;
      assertEquals(after.lostBy(name, wanting(keys ?? [])), isLost ? [X] : [], name);
    }
  });
}

Deno.test("what another one has is left out, and the rest stays", NONE, () => {
  const rules = wanting([X, Y]);
  assertEquals(withoutDestinations(rules, []), rules);
  assertEquals(withoutDestinations(rules, [X]), wanting([Y]));
});
