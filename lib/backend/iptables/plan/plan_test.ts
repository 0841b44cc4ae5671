import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "../../../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleOptions, exampleState, exampleTracker } from "../../../../tests/support/golden.ts";
import type { EndpointSlice } from "../../../model/objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { fullSync, NOTHING_HELD } from "../store/full_sync.ts";
import { planIptables } from "./plan.ts";
import { renderPlan } from "./render.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };
const OPTIONS = exampleOptions("IPv4");

Deno.test(
  "the plan depends on the objects, not on the order or the way they came",
  { permissions: PURE },
  () => {
    const clusterAndOrder = ARBITRARY_CLUSTER.chain((cluster) =>
      fc.tuple(
        fc.constant(cluster),
        fc.shuffledSubarray([...cluster], { minLength: cluster.length }),
        ARBITRARY_CLUSTER,
      )
    );
    fc.assert(
      fc.property(clusterAndOrder, ([cluster, shuffled, detour]) => {
        const wanted = renderPlan(planIptables(exampleState("IPv4", cluster), "all", OPTIONS));
        assertEquals(renderPlan(planIptables(exampleState("IPv4", shuffled), "all", OPTIONS)), wanted);
        const tracker = exampleTracker("IPv4", detour);
        tracker.checkout();
        offerChanges(tracker, detour, cluster);
        assertEquals(renderPlan(planIptables(tracker.checkout().state, "all", OPTIONS)), wanted);
      }),
      { numRuns: 60 },
    );
  },
);

Deno.test("rules are counted as they are written", { permissions: PURE }, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, (cluster) => {
      const plan = planIptables(exampleState("IPv4", cluster), "all", OPTIONS);
      const [filter, nat] = renderPlan(plan).split("*nat").map((text) => text.match(/^-A /gm)?.length ?? 0);
      const { store } = fullSync(plan, NOTHING_HELD, { family: "IPv4" });
      assertEquals(store.ruleCounts, { filter: filter!, nat: nat! });
    }),
    { numRuns: 30 },
  );
});

Deno.test(
  "a plan of some Services has only those, and null for one that is gone",
  { permissions: PURE },
  () => {
    const state = exampleState("IPv4", [
      testService(),
      testService({ name: "cart", clusterIP: "10.96.0.11" }),
    ]);
    const plan = planIptables(state, new Set(["shop/web", "shop/gone"]), OPTIONS);
    assertEquals([...plan.services.keys()], ["shop/gone", "shop/web"]);
    assertEquals(plan.services.get("shop/gone"), null);
    assert(plan.services.get("shop/web") !== null);
    assert(!plan.all);
    assertThrows(() => fullSync(plan, NOTHING_HELD, { family: "IPv4" }), TypeError, "all Services");
  },
);

const sliceOf = (count: number): EndpointSlice =>
  testSlice({
    endpoints: Array.from(
      { length: count },
      (_, index) =>
        testSliceEndpoint(`10.1.${index >> 8}.${index & 255}`, { ready: index === 0, serving: index === 0 }),
    ),
  });

for (const [count, comments] of [[1000, true], [1001, false]] as const) {
  Deno.test(`${count} endpoints, ready or not: ${comments ? "" : "no "}comments on the endpoint rules`, {
    permissions: PURE,
  }, () => {
    const state = exampleState("IPv4", [testService({ ports: [testPort()] }), sliceOf(count)]);
    const text = renderPlan(planIptables(state, "all", OPTIONS));
    assertEquals(text.includes(`"shop/web -> 10.1.0.0:8080"`), comments);
    assert(text.includes(`"shop/web cluster IP"`));
  });
}

Deno.test("options of the other family are refused", { permissions: PURE }, () => {
  assertThrows(() => planIptables(exampleState("IPv6", []), "all", OPTIONS), RangeError, "one family");
});
