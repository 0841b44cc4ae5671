import { assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { countRun, type Counts } from "../../tools/run_tests.ts";
import { need, program, unmet } from "./skip.ts";

const SUITE = `
import { e2eTest, need } from ${JSON.stringify(import.meta.resolve("./skip.ts"))};
const there = need("walking", "legs", () => undefined);
const never = need("flying", "wings", () => "arms");
const avoidable = need("cooking", "a pot", () => "a pan", true);
e2eTest("walks", [there], () => {});
e2eTest("flies", [there, never], () => {});
e2eTest("cooks", [avoidable], () => {});
e2eTest("stumbles", [there], () => {
  throw new Error("stone");
});
`;

/** Runs the suite above in a process of its own. */
async function runSuite(ci: boolean): Promise<{ counts: Counts; output: string; skips: string[] }> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-skip-" });
  try {
    await Deno.writeTextFile(`${folder}/suite_test.ts`, SUITE);
    await Deno.writeTextFile(`${folder}/skips`, "");
    const { success, stdout } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--no-check", `--config=${ROOT}/deno.json`, `${folder}/suite_test.ts`],
      env: { CI: String(ci), KPROXY_SKIPS: `${folder}/skips`, NO_COLOR: "1" },
      stderr: "null",
    }).output();
    const output = new TextDecoder().decode(stdout);
    const skips = (await Deno.readTextFile(`${folder}/skips`)).trim().split("\n");
    return { counts: countRun(output, success), output, skips: skips.map((line) => JSON.parse(line).reason) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("a need that is not met skips the test and says why", async () => {
  const { counts, skips } = await runSuite(false);
  assertEquals(counts, { passed: 1, failed: 1, skipped: 2 });
  assertEquals(skips, [
    "flying is not supported here: needs wings, found arms",
    "cooking is not supported here: needs a pot, found a pan",
  ]);
});

Deno.test("in CI, a need that the machine could have met fails the test", async () => {
  const { counts, skips, output } = await runSuite(true);
  assertEquals(counts, { passed: 1, failed: 2, skipped: 1 });
  assertEquals(skips, ["flying is not supported here: needs wings, found arms"]);
  assertStringIncludes(output, "This machine could run it: cooking is not supported here");
});

Deno.test("a need is probed once", () => {
  let probes = 0;
  const wanted = need("counting", "one probe", () => {
    probes++;
    return "more";
  });
  assertEquals([unmet(wanted)?.found, unmet(wanted)?.found, probes], ["more", "more", 1]);
});

Deno.test("a program is found on the PATH or missed by its name", () => {
  assertEquals(unmet(program("sh")), undefined);
  assertEquals(unmet(program("no-such-program"))?.message.includes("needs no-such-program"), true);
});
