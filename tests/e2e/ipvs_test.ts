/**
 * IPVS on a real kernel. Those of most test machines have none, so this runs in a user-mode Linux.
 *
 * @module
 */
import { e2eTest } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

const LIMIT_MS = 180_000;

e2eTest(
  "IPVS, sets and addresses of a real kernel, in a user-mode Linux",
  UML_NEEDS,
  () => testInUml(["tests/lab/ipvs_kernel_in_uml.ts"], "14 passed | 0 failed", LIMIT_MS),
);
