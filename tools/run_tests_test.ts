import { assertEquals } from "@std/assert";
import { ROOT } from "./project_files.ts";
import { afterTry, countRun, failedFiles, LISTED, parseSummary, skipReport, total } from "./run_tests.ts";

Deno.test(
  "every file that a list of lanes names is there, once",
  { permissions: { read: true } },
  async () => {
    assertEquals(LISTED.length, new Set(LISTED).size);
    for (const path of LISTED) await Deno.stat(`${ROOT}/${path}`);
  },
);

Deno.test("the counts come from deno's last line", { permissions: "none" }, () => {
  const cases: readonly (readonly [string, ReturnType<typeof parseSummary>])[] = [
    ["ok | 10 passed | 0 failed (111ms)\n", { passed: 10, failed: 0, skipped: 0 }],
    ["FAILED | 2 passed (1 step) | 2 failed | 2 ignored (1 step) (60ms)", {
      passed: 2,
      failed: 2,
      skipped: 2,
    }],
    ["ok | 1 passed | 0 failed\nprinted\nok | 3 passed | 0 failed | 4 ignored | 5 filtered out (1ms)\n", {
      passed: 3,
      failed: 0,
      skipped: 4,
    }],
    ["\x1b[0m\x1b[32mok\x1b[0m | 7 passed | 0 failed \x1b[90m(5ms)\x1b[0m\n", {
      passed: 7,
      failed: 0,
      skipped: 0,
    }],
    ["error: Type checking failed.", undefined],
  ];
  for (const [output, expected] of cases) assertEquals(parseSummary(output), expected, output);
});

Deno.test("a run that fails without counting still fails", { permissions: "none" }, () => {
  assertEquals(countRun("error: Type checking failed.", false), { passed: 0, failed: 1, skipped: 0 });
  assertEquals(countRun("ok | 3 passed | 0 failed (1ms)", false), { passed: 3, failed: 1, skipped: 0 });
  assertEquals(countRun("FAILED | 3 passed | 2 failed (1ms)", false), { passed: 3, failed: 2, skipped: 0 });
});

Deno.test("a test ignored without a reason is named, and fails CI", { permissions: "none" }, () => {
  const runs = [{ passed: 3, failed: 0, skipped: 2 }, { passed: 1, failed: 1, skipped: 1 }];
  assertEquals(total(runs, 3, true), { passed: 4, failed: 1, skipped: 3 });
  assertEquals(total(runs, 2, true), { passed: 4, failed: 2, skipped: 3 });
  assertEquals(total(runs, 2, false), { passed: 4, failed: 1, skipped: 3 });
  assertEquals(skipReport([{ test: "a", reason: "no root" }, { test: "b", reason: "no root" }], 3), [
    "Skipped, 2 tests: no root",
    "  a",
    "  b",
    "Ignored without a reason: 1 (use e2eTest of tests/support/skip.ts)",
  ]);
});

Deno.test("files that failed are found in what was printed, and their second try decides", {
  permissions: "none",
}, () => {
  const output = [
    "running 2 tests from ./tests/e2e/a_test.ts",
    "a step ... ok (1ms)",
    "one ...",
    "------- output -------",
    "words",
    "----- output end -----",
    "\x1b[31m FAILED\x1b[0m (2s)",
    "running 1 test from ./tests/e2e/b_test.ts",
    "two ... ok (1s)",
    "",
    " ERRORS ",
    "",
    "one => ./tests/support/skip.ts:1:1",
    "words FAILED (and more)",
  ].join("\n");
  assertEquals(failedFiles(output), ["tests/e2e/a_test.ts"]);
  const run = { counts: { passed: 2, failed: 1, skipped: 0 }, output };
  const again = (failed: number) => ({ counts: { passed: 1, failed, skipped: 0 }, output: "again" });
  assertEquals(afterTry(run, [again(0)]), { counts: { passed: 3, failed: 0, skipped: 0 }, output: "" });
  assertEquals(afterTry(run, [again(1)]).counts, { passed: 2, failed: 1, skipped: 0 });
});
