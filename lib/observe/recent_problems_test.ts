import { assertEquals } from "@std/assert";
import { createLogger, RecentProblems } from "./log.ts";

/** A logger whose warnings and errors are remembered; each line is a second later. */
function remembering() {
  let nowMs = 0;
  const problems = new RecentProblems(() => nowMs += 1_000);
  const log = createLogger({
    format: "text",
    verbosity: 10,
    write: () => {},
    nowMs: () => 0,
    pid: 1,
    onProblem: (problem) => problems.add(problem),
  });
  return { problems, log };
}

Deno.test("warnings and errors are remembered, information is not", { permissions: "none" }, () => {
  const { problems, log } = remembering();
  log.info("Synced rules", { family: "IPv4" });
  log.warn("Rules were changed", { family: "IPv4", damaged: ["nat KUBE-SERVICES"], nothing: undefined });
  log.error("Sync failed", new Error("no", { cause: new Error("why") }), { took: "1ms" });
  assertEquals(problems.problems, [
    {
      severity: "warning",
      message: "Rules were changed",
      values: 'family="IPv4" damaged=["nat KUBE-SERVICES"]',
      firstMs: 1_000,
      lastMs: 1_000,
      count: 1,
    },
    {
      severity: "error",
      message: "Sync failed",
      values: 'err="no: why" took="1ms"',
      firstMs: 2_000,
      lastMs: 2_000,
      count: 1,
    },
  ]);
});

Deno.test(
  "the same one in a row is one, and another one in between begins anew",
  { permissions: "none" },
  () => {
    const { problems, log } = remembering();
    for (let i = 0; i < 3; i++) log.warn("again", { n: 1 });
    log.warn("again", { n: 2 });
    log.warn("again", { n: 1 });
    assertEquals(
      problems.problems.map(({ values, count, firstMs, lastMs }) => [values, count, firstMs, lastMs]),
      [
        ["n=1", 3, 1_000, 3_000],
        ["n=2", 1, 4_000, 4_000],
        ["n=1", 1, 5_000, 5_000],
      ],
    );
    assertEquals(problems.total, 5);
  },
);

Deno.test("a few are kept, the newest, and of long ones the beginning", { permissions: "none" }, () => {
  const { problems, log } = remembering();
  for (let i = 0; i < 1_000; i++) log.warn("one of many", { i });
  assertEquals([problems.problems.length, problems.total], [50, 1_000]);
  assertEquals([problems.problems[0]?.values, problems.problems.at(-1)?.values], ["i=950", "i=999"]);
  log.error("long", "x".repeat(100_000));
  assertEquals(problems.problems.at(-1)?.values.length, "… (1011 characters)".length + 600);
});
