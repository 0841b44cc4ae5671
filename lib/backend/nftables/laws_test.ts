/** The laws of nftables mode over generated clusters, on a table in memory. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../tests/support/arbitrary_objects.ts";
import { exampleTracker } from "../../../tests/support/golden.ts";
import { exampleNftablesOptions, exampleNftablesPlan } from "../../../tests/support/golden_nftables.ts";
import { NftTable, type NormalizedTable } from "../../../tests/support/nft_table.ts";
import type { ApiObject } from "../../model/objects.ts";
import { diffNftables, isEmpty } from "./diff/diff.ts";
import { diffObserved, NO_TABLE } from "./diff/diff_observed.ts";
import { planChange } from "./diff/plan_change.ts";
import { planNftables } from "./plan/plan.ts";
import type { NftablesPlan } from "./plan/ruleset.ts";

const OPTIONS = exampleNftablesOptions("IPv4");
/** A machine under load, and the search for a smaller counterexample, must not take minutes. */
const RUNS = { numRuns: 100, interruptAfterTimeLimit: 20_000 };

function fresh(plan: NftablesPlan): NftTable {
  const table = new NftTable();
  table.apply(diffObserved(plan, NO_TABLE).operations);
  return table;
}

function wanted(objects: readonly ApiObject[]): NormalizedTable {
  const plan = exampleNftablesPlan("IPv4", objects);
  return fresh(plan).normalized(plan.base);
}

Deno.test("law: where everything is as planned, nothing is written", { permissions: "none" }, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, (objects) => {
      const plan = exampleNftablesPlan("IPv4", objects);
      const { operations, committed } = diffObserved(plan, NO_TABLE);
      const table = new NftTable();
      table.apply(operations);
      assert(isEmpty(diffNftables(plan, committed)));
      const again = diffObserved(plan, table.observed());
      assert(isEmpty(again.operations));
      assert(isEmpty(diffNftables(plan, again.committed)));
    }),
    RUNS,
  );
});

Deno.test("law: any changes, one by one, end in what a first sync makes", { permissions: "none" }, () => {
  fc.assert(
    fc.property(fc.array(ARBITRARY_CLUSTER, { minLength: 2, maxLength: 5 }), (clusters) => {
      const tracker = exampleTracker("IPv4", clusters[0]!);
      const first = planNftables(tracker.checkout().state, "all", OPTIONS);
      const { operations, committed } = diffObserved(first, NO_TABLE);
      const table = new NftTable();
      table.apply(operations);
      for (let step = 1; step < clusters.length; step++) {
        offerChanges(tracker, clusters[step - 1]!, clusters[step]!);
        const { state, updatedServices } = tracker.checkout();
        const plan = planChange(state, updatedServices, OPTIONS, committed);
        table.apply(diffNftables(plan, committed));
        committed.apply(plan);
        assertEquals(table.normalized(plan.base), wanted(clusters[step]!));
        assert(isEmpty(diffNftables(plan, committed)));
        // What is remembered is what is there: a full difference finds nothing either, nor does reading it back.
        const all = planNftables(state, "all", OPTIONS);
        assert(isEmpty(diffNftables(all, committed)));
        const { base, services, leftover } = diffObserved(all, table.observed()).operations;
        assert(isEmpty({ base, services, leftover: { ...leftover, staleChains: [] } }));
      }
    }),
    RUNS,
  );
});

Deno.test("law: a full sync over anything ends in what a first sync makes", { permissions: "none" }, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
      const table = fresh(exampleNftablesPlan("IPv4", before));
      const plan = exampleNftablesPlan("IPv4", after);
      const { operations, committed } = diffObserved(plan, table.observed());
      table.apply(operations);
      assertEquals(table.normalized(plan.base), wanted(after));
      assert(isEmpty(diffNftables(plan, committed)));
      // Shared chains that nobody uses are gone too.
      assertEquals(
        [...table.observed().chains.keys()].sort(),
        [...fresh(plan).observed().chains.keys()].sort(),
      );
    }),
    RUNS,
  );
});

Deno.test("law: other settings end in what a first sync makes with them", { permissions: "none" }, () => {
  const others = exampleNftablesOptions("IPv4", {
    masqueradeMark: 0x8000,
    detector: { kind: "interface", name: "cni0" },
    nodePortIps: ["192.0.2.11"],
    serviceCidrs: [],
    trafficCounters: true,
  });
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, (objects) => {
      const { operations, committed } = diffObserved(exampleNftablesPlan("IPv4", objects), NO_TABLE);
      const table = new NftTable();
      table.apply(operations);
      const plan = exampleNftablesPlan("IPv4", objects, others);
      table.apply(diffNftables(plan, committed));
      committed.apply(plan);
      assertEquals(table.normalized(plan.base), fresh(plan).normalized(plan.base));
      assert(isEmpty(diffNftables(plan, committed)));
      // And back, by a full sync; sets of counters may stay, but nothing in them.
      const usual = exampleNftablesPlan("IPv4", objects);
      table.apply(diffObserved(usual, table.observed()).operations);
      const { elements, ...rest } = table.normalized(usual.base);
      const expected = fresh(usual).normalized(usual.base);
      const left = Object.entries(elements).filter(([name, list]) =>
        name in expected.elements || list.length > 0
      );
      assertEquals({ elements: Object.fromEntries(left), ...rest }, expected);
    }),
    RUNS,
  );
});

Deno.test("law: a plan does not depend on the order of events", { permissions: "none" }, () => {
  const shuffled = ARBITRARY_CLUSTER.chain((objects) =>
    fc.tuple(fc.constant(objects), fc.shuffledSubarray([...objects], { minLength: objects.length }))
  );
  fc.assert(
    fc.property(shuffled, ([objects, other]) => {
      assertEquals(exampleNftablesPlan("IPv4", other), exampleNftablesPlan("IPv4", objects));
    }),
    RUNS,
  );
});

Deno.test("a plan that leaves out who gives a destination up is refused", { permissions: "none" }, () => {
  let refused = 0;
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, (objects) => {
      const { state } = exampleTracker("IPv4", objects).checkout();
      const { committed } = diffObserved(planNftables(state, "all", OPTIONS), NO_TABLE);
      for (const name of state.services.keys()) {
        // As though it had lost everything to the others, and only those were planned.
        const others = objects.filter((object) =>
          object.kind !== "Service" || `shop/${object.name}` !== name
        );
        const after = exampleTracker("IPv4", others).checkout().state;
        const changed = new Set(after.services.keys());
        const plan = planNftables(after, changed, OPTIONS);
        const affected = committed.affectedBy(plan);
        if (affected.size === 0) continue;
        refused++;
        assertEquals([...affected], [name]);
        assertThrows(() => diffNftables(plan, committed), TypeError, "must be planned too");
        const closed = planChange(after, changed, OPTIONS, committed);
        assertEquals([...closed.services.keys()].sort(), [name, ...changed].sort());
        diffNftables(closed, committed);
      }
    }),
    { numRuns: 100, seed: 5 },
  );
  assert(refused > 0);
});
