/**
 * What the applier of mode ipvs says to the fake in its own tests, said to the real programs, to be run inside of the user-mode Linux with
 * the folder of a recording: `tests/lab/uml.sh 'deno test -A tests/lab/fakes_in_uml.ts -- FOLDER'` (`tests/e2e/ipvs_test.ts`).
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import { replayAll } from "../support/fake_replay.ts";

/** Each start of a program takes a tenth of a second there. */
const MOST_RUNS = 160;
const LEAST_RUNS = 80;

Deno.test("the kernel does what the fake of mode ipvs does, in what its applier's tests say", async () => {
  const { said, runs, differences } = await replayAll("ipvs", Deno.args[0] ?? "", MOST_RUNS);
  assertEquals(differences, "");
  writeErrorLine(`ipvs: ${said}`);
  assert(runs >= LEAST_RUNS, `only ${runs} runs`);
});
