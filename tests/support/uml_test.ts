import { assertEquals, assertStringIncludes } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { total } from "../../tools/run_tests.ts";
import { runSuite } from "./run_suite.ts";
import { UML_NEEDS } from "./uml.ts";

const SUITE = `
import { e2eTest } from ${JSON.stringify(import.meta.resolve("./skip.ts"))};
import { UML_NEEDS } from ${JSON.stringify(import.meta.resolve("./uml.ts"))};
e2eTest("IPVS", UML_NEEDS, () => {});
`;

/** Calls `use` with a folder for the PATH that has what the probes start, but no `linux.uml`. */
async function withoutUml(use: (path: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-path-" });
  try {
    for (const name of ["unshare", "grep"]) {
      await Deno.symlink(findProgram(name) ?? name, `${folder}/${name}`);
    }
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("CI must be able to run a user-mode Linux: no need of it excuses a skip there", () => {
  assertEquals(UML_NEEDS.map(({ avoidable }) => avoidable()), UML_NEEDS.map(() => true));
});

Deno.test("without linux.uml the tests in it are skipped, and in CI they fail", async () => {
  await withoutUml(async (PATH) => {
    const here = await runSuite(SUITE, { PATH, CI: "false" });
    assertEquals([here.counts, here.skips.length], [{ passed: 0, failed: 0, skipped: 1 }, 1]);
    assertStringIncludes(here.skips[0] ?? "", "needs linux.uml, found none on the PATH");
    // Nothing was booted, as the program for it is not there.
    assertEquals(here.skips[0]?.includes("boots"), false);
    const ci = await runSuite(SUITE, { PATH, CI: "true" });
    assertEquals([total([ci.counts], ci.skips.length, true).failed, ci.skips], [1, []]);
  });
});
