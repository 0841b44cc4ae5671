/**
 * What the appliers of modes nftables and iptables say to the fakes in their own tests, said to the real programs: both answer alike and
 * end with the same rules. Mode ipvs has the same in the user-mode Linux (`tests/lab/fakes_in_uml.ts`).
 */
import { assert, assertEquals } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import { recordFakes, replayAll } from "../support/fake_replay.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { withFolder } from "../support/temp_files.ts";

const NEEDS = [ROOT_NAMESPACES, ...["nft", "iptables-nft", "iptables-legacy", "ip"].map(program)];
const MOST_RUNS = 600;
const LEAST_RUNS = 400;

for (const mode of ["nftables", "iptables"] as const) {
  e2eTest(
    `the kernel does what the fake of mode ${mode} does, in what its applier's tests say`,
    NEEDS,
    () =>
      withFolder(async (folder) => {
        const { said, runs, differences } = await replayAll(mode, await recordFakes(mode, folder), MOST_RUNS);
        assertEquals(differences, "");
        writeErrorLine(`${mode}: ${said}`);
        assert(runs >= LEAST_RUNS, `only ${runs} runs`);
      }),
  );
}
