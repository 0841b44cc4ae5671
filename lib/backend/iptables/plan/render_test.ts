import { assertEquals } from "@std/assert";
import { examplePlan } from "../../../../tests/support/golden.ts";
import { testService } from "../../../../tests/support/model_objects.ts";
import { countWrittenRules, renderPlan } from "./render.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("the gauges of the last sync count rules, less the chains that it deletes", {
  permissions: "none",
}, () => {
  const cases = [
    { lines: [], count: 0 },
    {
      lines: [":KUBE-SVC-A - [0:0]", "-A KUBE-SVC-A -j KUBE-SEP-A", "-I KUBE-SERVICES -j KUBE-SVC-A"],
      count: 2,
    },
    { lines: ["-D KUBE-SERVICES -j KUBE-SVC-A"], count: 0 },
    { lines: ["-A KUBE-A -j RETURN", "-A KUBE-A -j DROP", ":KUBE-B - [0:0]", "-X KUBE-B"], count: 1 },
  ];
  for (const { lines, count } of cases) {
    const transactions = [{ table: "nat", lines }, {
      table: "filter",
      lines: ["-A KUBE-FORWARD -j ACCEPT"],
    }] as const;
    assertEquals(countWrittenRules({ transactions }), { nat: count, filter: 1 }, lines.join());
  }
});

Deno.test("a Service that is gone has no text in a plan", { permissions: PURE }, () => {
  const plan = examplePlan("IPv4", [testService()]);
  const withGone = { ...plan, services: new Map([["shop/gone", null], ...plan.services]) };
  assertEquals(renderPlan(withGone), renderPlan(plan));
});
