import { assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { countRun, type Counts } from "../../tools/run_tests.ts";
import { whyNotInstallable } from "../../tools/setup.ts";
import { need, program, unmet } from "./skip.ts";
import { UML_NEEDS } from "./uml.ts";
import { tempFolder } from "./temp_files.ts";

/** Result of a suite's tests. */
interface SuiteOutcome {
  readonly counts: Counts;
  /** Standard output, without colours. */
  readonly output: string;
  /** Reasons of skipped tests, in order. */
  readonly skips: readonly string[];
}

/** Runs `suite` in a separate process, with `env` added to the environment. */
async function runSuite(
  suite: string,
  env: Readonly<Record<string, string>>,
): Promise<SuiteOutcome> {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  await Deno.writeTextFile(`${folder}/suite_test.ts`, suite);
  await Deno.writeTextFile(`${folder}/skips`, "");
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--no-check", `--config=${ROOT}/deno.json`, `${folder}/suite_test.ts`],
    env: { ...env, KPROXY_SKIPS: `${folder}/skips`, NO_COLOR: "1" },
    stderr: "null",
  }).output();
  const output = new TextDecoder().decode(stdout);
  const lines = (await Deno.readTextFile(`${folder}/skips`)).split("\n").filter((line) => line !== "");
  return { counts: countRun(output, success), output, skips: lines.map((line) => JSON.parse(line).reason) };
}

const SUITE = `
import { e2eTest, ExcusedError, need } from ${JSON.stringify(import.meta.resolve("./skip.ts"))};
const there = need("walking", "legs", () => undefined);
const never = need("flying", "wings", () => "arms");
const avoidable = need("cooking", "a pot", () => "a pan", true);
e2eTest("walks", [there], () => {});
e2eTest("flies", [there, never], () => {});
e2eTest("cooks", [avoidable], () => {});
e2eTest("stumbles", [there], () => {
  throw new Error("stone");
});
let steps = 0;
e2eTest("limps", [there], () => {
  if (steps++ === 0) throw new ExcusedError("a crowd");
});
e2eTest("crawls", [there], () => {
  throw new ExcusedError("a crowd again");
});
`;

Deno.test("a need that is not met skips the test and says why", async () => {
  const { counts, skips } = await runSuite(SUITE, { CI: "false" });
  assertEquals(counts, { passed: 2, failed: 2, skipped: 2 });
  assertEquals(skips, [
    "flying is not supported here: needs wings, found arms",
    "cooking is not supported here: needs a pot, found a pan",
  ]);
});

Deno.test("in CI, a need that the machine could have met fails the test", async () => {
  const { counts, skips, output } = await runSuite(SUITE, { CI: "true" });
  assertEquals(counts, { passed: 2, failed: 3, skipped: 1 });
  assertEquals(skips, ["flying is not supported here: needs wings, found arms"]);
  assertStringIncludes(output, "once more: limps: a crowd\n");
  assertStringIncludes(output, "a crowd again");
  assertStringIncludes(output, "In CI this must run: cooking is not supported here");
});

Deno.test("a need is probed once", () => {
  let probes = 0;
  const wanted = need("counting", "one probe", () => {
    probes++;
    return "more";
  });
  assertEquals([unmet(wanted)?.found, unmet(wanted)?.found, probes], ["more", "more", 1]);
});

Deno.test("whatever program is missing, CI could have had it where anything can be installed", () => {
  for (const name of ["kubectl", "nfacct", "setpriv", "systemd-analyze", "prometheus", "no-such-program"]) {
    assertEquals(program(name).avoidable(), whyNotInstallable() === undefined, name);
  }
});

Deno.test("without the user-mode Linux CI fails, whatever it lacks: nothing else tries IPVS", () => {
  assertEquals(UML_NEEDS.filter(({ avoidable }) => !avoidable()), []);
});

Deno.test("a program is found on the PATH or missed by its name", () => {
  assertEquals(unmet(program("sh")), undefined);
  assertEquals(unmet(program("no-such-program"))?.message.includes("needs no-such-program"), true);
});
