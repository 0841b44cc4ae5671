/** The laws of nftables mode over generated clusters, on a table in memory. */
import fc from "../../../tests/support/fast_check.ts";
import { assertEquals } from "@std/assert";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../tests/support/arbitrary_objects.ts";
import { exampleTracker } from "../../../tests/support/golden.ts";
import { exampleNftablesOptions, exampleNftablesPlan } from "../../../tests/support/golden_nftables.ts";
import { NftTable, type NormalizedTable } from "../../../tests/support/nft_table.ts";
import type { ApiObject } from "../../model/objects.ts";
import { planNftables } from "./plan/plan.ts";
import type { NftablesPlan } from "./plan/ruleset.ts";
import { atOnce } from "../planning.ts";
import { findDrift, FullSync } from "./store/full_sync.ts";
import type { NftStore } from "./store/store.ts";

const OPTIONS = exampleNftablesOptions("IPv4");
/** A machine under load, and the search for a smaller counterexample, must not take minutes. */
const RUNS = { numRuns: 100, interruptAfterTimeLimit: 20_000 };

async function fresh(plan: NftablesPlan): Promise<NftTable> {
  const table = new NftTable();
  await table.sync(plan);
  return table;
}

async function wanted(objects: readonly ApiObject[]): Promise<NormalizedTable> {
  return (await fresh(exampleNftablesPlan("IPv4", objects))).normalized();
}

/** What a full sync over the table would write; chains that Services share may stay until then. */
function written(plan: NftablesPlan, table: NftTable): readonly string[] {
  const sync = new FullSync(plan, table.listed());
  const services = [...sync.services()].map(({ transaction }) => transaction);
  return [sync.base, ...services, sync.leftover()].flatMap((transaction) => transaction.lines("t"))
    .filter((line) => !line.startsWith("flush chain"));
}

function drift(store: NftStore, table: NftTable): readonly string[] {
  return atOnce(findDrift(store, table.listed())).flatMap((transaction) => transaction.lines("t"));
}

Deno.test("law: where everything is as planned, nothing is written", { permissions: "none" }, async () => {
  await fc.assert(
    fc.asyncProperty(ARBITRARY_CLUSTER, async (objects) => {
      const plan = exampleNftablesPlan("IPv4", objects);
      const table = new NftTable();
      const store = await table.sync(plan);
      assertEquals([store.change(plan).transaction.lines("t"), written(plan, table)], [[], []]);
      assertEquals([drift(store, table), drift(await table.sync(plan), table)], [[], []]);
    }),
    RUNS,
  );
});

Deno.test(
  "law: any changes, one by one, end in what a first sync makes",
  { permissions: "none" },
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(ARBITRARY_CLUSTER, { minLength: 2, maxLength: 5 }),
        async (clusters) => {
          const tracker = exampleTracker("IPv4", clusters[0]!);
          const table = new NftTable();
          const store = await table.sync(planNftables(tracker.checkout().state, "all", OPTIONS));
          for (let step = 1; step < clusters.length; step++) {
            offerChanges(tracker, clusters[step - 1]!, clusters[step]!);
            const { state, updatedServices } = tracker.checkout();
            const plan = planNftables(state, updatedServices, OPTIONS);
            const { transaction, commit } = store.change(plan);
            await table.apply(transaction);
            commit();
            assertEquals(table.normalized(), await wanted(clusters[step]!));
            // What is remembered is what is there: no change finds anything, nor does reading it back.
            const all = planNftables(state, "all", OPTIONS);
            assertEquals(store.change(all).transaction.lines("t"), []);
            assertEquals([written(all, table), drift(store, table)], [[], []]);
          }
        },
      ),
      RUNS,
    );
  },
);

Deno.test(
  "law: a full sync over anything ends in what a first sync makes",
  { permissions: "none" },
  async () => {
    await fc.assert(
      fc.asyncProperty(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, async (before, after) => {
        const table = await fresh(exampleNftablesPlan("IPv4", before));
        const plan = exampleNftablesPlan("IPv4", after);
        const store = await table.sync(plan);
        assertEquals(table.normalized(), await wanted(after));
        assertEquals([store.change(plan).transaction.lines("t"), drift(store, table)], [[], []]);
        // Unused shared chains are gone too.
        assertEquals(
          [...table.listed().chains.keys()].sort(),
          [...(await fresh(plan)).listed().chains.keys()].sort(),
        );
      }),
      RUNS,
    );
  },
);

Deno.test(
  "law: other settings end in what a first sync makes with them",
  { permissions: "none" },
  async () => {
    const others = exampleNftablesOptions("IPv4", {
      masqueradeMark: 0x8000,
      detector: { kind: "interface", name: "cni0" },
      nodePortIps: ["192.0.2.11"],
      serviceCidrs: [],
      trafficCounters: true,
    });
    await fc.assert(
      fc.asyncProperty(ARBITRARY_CLUSTER, async (objects) => {
        const usual = exampleNftablesPlan("IPv4", objects);
        const table = await fresh(usual);
        const plan = exampleNftablesPlan("IPv4", objects, others);
        await table.sync(plan);
        assertEquals(table.normalized(), (await fresh(plan)).normalized());
        // And back; sets of counters may stay, but nothing in them.
        await table.sync(usual);
        const { elements, ...rest } = table.normalized();
        const expected = await wanted(objects);
        const left = Object.entries(elements).filter(([name, list]) =>
          name in expected.elements || list.length > 0
        );
        assertEquals({ elements: Object.fromEntries(left), ...rest }, expected);
      }),
      RUNS,
    );
  },
);

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
