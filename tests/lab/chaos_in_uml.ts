/**
 * A minute of chaos in IPVS mode, inside of the user-mode Linux: `tests/lab/uml.sh 'deno test -A tests/lab/chaos_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { reportLines } from "../chaos/chaos.ts";
import { runChaos } from "../chaos/run.ts";

Deno.test("a minute of chaos in mode ipvs", async () => {
  const lines: string[] = [];
  const report = await runChaos({ mode: "ipvs", minutes: 1, seed: 34, log: (line) => lines.push(line) });
  assertEquals(report.problems, [], [...reportLines(report), ...lines].join("\n"));
});
