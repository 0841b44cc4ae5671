import { assertEquals } from "@std/assert";
import { FLOW_CASES } from "./flow_cases.ts";
import { explainedStep, IPVS_DIFFERENCES } from "./ipvs_differences.ts";

const STEPS = FLOW_CASES.flatMap((one) =>
  one.flows.map((flow) => typeof flow === "string" ? null : explainedStep(flow, one.name))
).filter((step) => step !== null);

Deno.test("every way that a packet takes only in IPVS mode has a reason", { permissions: "none" }, () => {
  const unexplained = STEPS.filter((step) => !IPVS_DIFFERENCES.some(({ explains }) => explains(step)));
  assertEquals(unexplained, []);
});

Deno.test("every reason explains some step", { permissions: "none" }, () => {
  const idle = IPVS_DIFFERENCES.filter(({ explains }) => !STEPS.some(explains)).map(({ reason }) => reason);
  assertEquals(idle, []);
});
