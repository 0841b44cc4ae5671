/**
 * IPVS on a real kernel. Those of most test machines have none, so this runs in a user-mode Linux: the kernel layer, what the tools
 * say after a first sync, a whole life of the mode, the suites of the other modes, its UDP flows, `kproxy selftest`, and what its
 * applier's tests say to the fake.
 *
 * @module
 */
import { recordFakes } from "../support/fake_replay.ts";
import { e2eTest, program } from "../support/skip.ts";
import { withFolder } from "../support/temp_files.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

/** A few minutes where nothing else runs; many times that where much does. */
const LIMIT_MS = 2_700_000;

e2eTest(
  "IPVS mode in a user-mode Linux",
  [...UML_NEEDS, program("curl")],
  () =>
    withFolder(async (folder) => {
      const recorded = await recordFakes("ipvs", folder);
      await testInUml(
        [
          "tests/lab/ipvs_kernel_in_uml.ts",
          "tests/lab/ipvs_refusals_in_uml.ts",
          "tests/lab/recorded_in_uml.ts",
          "tests/lab/ipvs_in_uml.ts",
          "tests/lab/ipvs_suites_in_uml.ts",
          "tests/lab/ipvs_affinity_in_uml.ts",
          "tests/lab/conntrack_in_uml.ts",
          "tests/lab/selftest_in_uml.ts",
          "tests/lab/fakes_in_uml.ts",
          "--",
          recorded,
        ],
        "26 passed (55 steps) | 0 failed",
        LIMIT_MS,
      );
    }),
);
