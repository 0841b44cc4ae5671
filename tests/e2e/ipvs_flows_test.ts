/**
 * The flow cases with real packets in IPVS mode: TCP, UDP and SCTP. The kernels of most test machines have no IPVS, so this runs in
 * a user-mode Linux. "Same conformance matrix for all three backends" (asks row 13).
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { IPVS_LAB_CASE_GAPS, IPVS_LAB_CASES } from "../support/ipvs_lab_cases.ts";
import { e2eTest } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

/** A few minutes where nothing else runs. */
const LIMIT_MS = 900_000;

e2eTest(
  "flow cases with real packets in IPVS mode, in a user-mode Linux",
  UML_NEEDS,
  () =>
    testInUml(
      ["tests/lab/ipvs_flows_in_uml.ts"],
      `1 passed (${IPVS_LAB_CASES.length} steps) | 0 failed`,
      LIMIT_MS,
    ),
);

Deno.test("every gap of the cases with real packets in IPVS mode is a case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map(({ name }) => name));
  assertEquals(Object.keys(IPVS_LAB_CASE_GAPS).filter((name) => !names.has(name)), []);
});
