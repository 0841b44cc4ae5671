/**
 * What the appliers of modes nftables and iptables say to the fakes in their own tests, said to the real programs: both answer alike and
 * end with the same rules. Mode ipvs has the same in the user-mode Linux (`tests/lab/fakes_in_uml.ts`).
 */
import { assert, assertEquals } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import { fakeTests, readRecordings, recordFakes, replay } from "../support/fake_replay.ts";
import { withNamespaces } from "../support/netns.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { withFolder } from "../support/temp_files.ts";

const NEEDS = [ROOT_NAMESPACES, ...["nft", "iptables-nft", "iptables-legacy", "ip"].map(program)];
const LEAST = { nftables: 50, iptables: 50 };

for (const mode of ["nftables", "iptables"] as const) {
  e2eTest(
    `the kernel does what the fake of mode ${mode} does, in all that its applier's tests say`,
    NEEDS,
    async () => {
      const recordings = await withFolder(async (folder) => {
        await recordFakes(await fakeTests(mode), folder);
        return await readRecordings(folder);
      });
      let runs = 0;
      const differences: string[] = [];
      for (const recording of recordings) {
        runs += recording.runs.length;
        await withNamespaces(2, async ([real, other]) => {
          differences.push(...await replay(recording, real!.exec, other!.exec));
        });
      }
      assertEquals(differences.join("\n"), "");
      writeErrorLine(`${mode}: ${recordings.length} sequences of ${runs} runs`);
      assert(recordings.length >= LEAST[mode], `only ${recordings.length} sequences`);
    },
  );
}
