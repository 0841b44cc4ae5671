import { assert, assertEquals } from "@std/assert";
import { renderPlan } from "../../lib/backend/iptables/plan/plan.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { examplePlan, GOLDEN_PERMISSIONS, goldenNames, loadGolden } from "../support/golden.ts";

for (const name of goldenNames()) {
  Deno.test(`golden rules: ${name}`, { permissions: GOLDEN_PERMISSIONS }, () => {
    const golden = loadGolden(name);
    for (const [family, expected] of Object.entries(golden.expected)) {
      assertEquals(renderPlan(examplePlan(family as IpFamily, golden.objects)), expected);
    }
  });
}

Deno.test("the golden cases cover every worked example", { permissions: GOLDEN_PERMISSIONS }, () => {
  const names = goldenNames();
  for (
    const name of [
      "clusterip",
      "clientip-affinity",
      "nodeport",
      "loadbalancer-local",
      "loadbalancer-source-ranges",
      "no-endpoints",
      "no-local-endpoints",
      "nodeport-ipv6",
      "endpoint-removed",
      "service-deleted",
      "draining-local",
      "all-examples",
      "mixed-dual-stack",
    ]
  ) assert(names.includes(name), name);
});
