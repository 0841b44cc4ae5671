import { assertEquals } from "@std/assert";
import { examplePlan } from "../../../../tests/support/golden.ts";
import { testService } from "../../../../tests/support/model_objects.ts";
import { renderPlan } from "./render.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("a Service that is gone has no text in a plan", { permissions: PURE }, () => {
  const plan = examplePlan("IPv4", [testService()]);
  const withGone = { ...plan, services: new Map([["shop/gone", null], ...plan.services]) };
  assertEquals(renderPlan(withGone), renderPlan(plan));
});
