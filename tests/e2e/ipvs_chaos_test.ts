/**
 * A minute of chaos in mode ipvs. The kernels of most test machines have no IPVS, so this runs in a user-mode Linux.
 *
 * @module
 */
import { e2eTest, program } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

/** Three minutes or less where nothing else runs; many times that where much does. */
const LIMIT_MS = 2_700_000;

e2eTest(
  "a minute of chaos in mode ipvs, in a user-mode Linux",
  [...UML_NEEDS, ...["curl", "prlimit"].map(program)],
  () => testInUml(["tests/lab/ipvs_chaos_in_uml.ts"], "1 passed | 0 failed", LIMIT_MS),
);
