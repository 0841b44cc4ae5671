import { assertEquals, assertStringIncludes } from "@std/assert";
import { findProgram } from "../../tools/setup.ts";
import { total } from "../../tools/run_tests.ts";
import { runSuite } from "./run_suite.ts";
import { need, unmet } from "./skip.ts";
import { bootNeed, UML_NEEDS, umlFailure } from "./uml.ts";

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

/** Calls `use` with a script that counts its runs, says `says` and ends with `status`. */
async function withScript(
  says: string,
  status: number,
  use: (script: string, runs: () => number) => void,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-boot-" });
  const script = `${folder}/boot.sh`;
  try {
    const text = `#!/bin/sh\necho "$@" >> ${folder}/runs\necho '${says}' >&2\nexit ${status}\n`;
    await Deno.writeTextFile(script, text, { mode: 0o755 });
    await Deno.writeTextFile(`${folder}/runs`, "");
    use(script, () => Deno.readTextFileSync(`${folder}/runs`).split("true\n").length - 1);
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

Deno.test("where it does not boot, its last words are the reason, and it is tried once in a run", async () => {
  const variable = "KPROXY_TEST_UML_BOOT";
  try {
    await withScript("ptrace: Operation not permitted", 99, (script, runs) => {
      const first = bootNeed({ script, variable, needs: [] });
      const found = "status 99; ptrace: Operation not permitted";
      // The second one is another test file.
      const second = bootNeed({ script, variable, needs: [] });
      assertEquals([first.probe(), second.probe(), runs()], [found, found, 1]);
    });
    Deno.env.delete(variable);
    await withScript("fine", 0, (script, runs) => {
      const boot = bootNeed({ script, variable, needs: [] });
      assertEquals([boot.probe(), boot.probe(), runs()], [undefined, undefined, 1]);
    });
  } finally {
    Deno.env.delete(variable);
  }
});

Deno.test("nothing is booted where something else is missing", async () => {
  const missing = need("a user-mode Linux", "a processor", () => "an abacus");
  await withScript("no", 99, (script, runs) => {
    const boot = bootNeed({ script, variable: "KPROXY_TEST_UML_UNUSED", needs: [missing] });
    assertEquals([boot.probe(), runs(), unmet(missing)?.found], [undefined, 0, "an abacus"]);
  });
});

Deno.test("a failure inside begins with what failed and why, however much was printed before", () => {
  const passed = "fine ... ok (1s)\n".repeat(1_000);
  const error = `slow => ./tests/lab/a_in_uml.ts:1:6\nerror: Error: late\n${
    "log\n".repeat(10_000)
  }at the end`;
  const failures =
    "\n FAILURES \n\nslow => ./tests/lab/a_in_uml.ts:1:6\n\nFAILED | 1000 passed | 1 failed (1m)\n";
  const message = umlFailure(1, `${passed}\n ERRORS \n\n${error}\n${failures}`, "1001 passed | 0 failed");
  const [first, name, end, blank, heading, why] = message.split("\n");
  assertEquals([first, name, end, blank, heading, why], [
    "failed in the user-mode Linux:",
    "slow => ./tests/lab/a_in_uml.ts:1:6",
    "it ended with 1, FAILED | 1000 passed | 1 failed (1m); wanted: ok | 1001 passed | 0 failed",
    "",
    "slow => ./tests/lab/a_in_uml.ts:1:6",
    "error: Error: late",
  ]);
  assertEquals([message.endsWith("at the end"), message.length < 8_000], [true, true]);
});

Deno.test("a kernel that ends early is told by its last words, and a wrong number of tests by both", () => {
  const hung = umlFailure(124, `${"fine ... ok (1s)\n".repeat(1_000)}hangs ...`, "2 passed | 0 failed");
  assertStringIncludes(
    hung,
    "it ended with 124, before all tests had run; wanted: ok | 2 passed | 0 failed\n",
  );
  assertEquals([hung.endsWith("hangs ..."), hung.length < 9_000], [true, true]);
  const few = umlFailure(0, "fine ... ok (1s)\n\nok | 1 passed | 0 failed (1s)\n", "2 passed | 0 failed");
  assertStringIncludes(
    few,
    "it ended with 0, ok | 1 passed | 0 failed (1s); wanted: ok | 2 passed | 0 failed\n",
  );
});
