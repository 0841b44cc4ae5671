/**
 * What the applier of mode ipvs says to the fake in its own tests, said to the real programs, to be run inside of the user-mode Linux with
 * the folder of a recording: `tests/lab/uml.sh 'deno test -A tests/lab/fakes_in_uml.ts -- FOLDER'` (`tests/e2e/ipvs_test.ts`).
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import { readRecordings, replay } from "../support/fake_replay.ts";
import { withNamespaces } from "../support/netns.ts";

/** Each start of a program takes a tenth of a second there. */
const MOST_RUNS = 250;
const LEAST_RUNS = 100;

Deno.test("the kernel does what the fake of mode ipvs does, in what its applier's tests say", async () => {
  let [sequences, runs] = [0, 0];
  const differences: string[] = [];
  // The shortest first: they are of more kinds.
  const recordings = (await readRecordings(Deno.args[0] ?? "")).toSorted((left, right) =>
    left.runs.length - right.runs.length
  );
  for (const recording of recordings) {
    if (runs + recording.runs.length > MOST_RUNS) break;
    [sequences, runs] = [sequences + 1, runs + recording.runs.length];
    await withNamespaces(2, async ([real, other]) => {
      differences.push(...await replay(recording, real!.exec, other!.exec));
    });
  }
  assertEquals(differences.join("\n"), "");
  writeErrorLine(`ipvs: ${sequences} sequences of ${runs} runs, of ${recordings.length} sequences`);
  assert(runs >= LEAST_RUNS, `only ${runs} runs`);
});
