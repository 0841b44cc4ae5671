import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { recordingClock } from "../../tests/support/recording_clock.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { ExecError } from "../errors.ts";
import { type Exec, type ExecResult, systemExec } from "./exec.ts";
import { Runner } from "./runner.ts";

const FOREVER = ["sleep", "60"];

async function isAborted(run: Promise<ExecResult>): Promise<void> {
  const error = await assertRejects(() => run, DOMException);
  assertEquals(error.name, "AbortError");
}

Deno.test("programs under way end with it, and none is started any more", async () => {
  const programs = new Runner(systemExec);
  const runs = [programs.run(FOREVER), programs.run(FOREVER, { timeoutMs: 60_000 })];
  const startMs = performance.now();
  setTimeout(() => programs.end(), 20);
  await Promise.all(runs.map(isAborted));
  await isAborted(programs.run(["true"]));
  assert(performance.now() - startMs < 30_000);
});

Deno.test("a program that is fed ends with it, too", async () => {
  const programs = new Runner(systemExec);
  const run = programs.run(FOREVER, { stdin: "more than a pipe holds\n".repeat(50_000) });
  setTimeout(() => programs.end(), 20);
  await isAborted(run);
});

Deno.test("what has ended well is reported as it is, what failed by itself before the end, too", async () => {
  using programs = new Runner(systemExec);
  assertEquals((await programs.run(["echo", "done"])).stdout, "done\n");
  assertEquals((await programs.run(["false"])).code, 1);
});

Deno.test("a time limit is still one, and the signal of a single run ends only that", async () => {
  using programs = new Runner(systemExec);
  await assertRejects(() => programs.run(FOREVER, { timeoutMs: 20 }), ExecError, "timed out after 0.02 s");
  const one = new AbortController();
  const ended = programs.run(FOREVER, { signal: one.signal });
  const other = programs.run(["sleep", "0.2"]);
  setTimeout(() => one.abort(), 20);
  await isAborted(ended);
  assertEquals((await other).code, 0);
});

Deno.test("one inside of another ends with the outer one, not the other way round", {
  permissions: "none",
}, async () => {
  const exec: Exec = { run: () => Promise.resolve({ code: 0, stdout: "", stderr: "" }) };
  const outer = new Runner(exec);
  const inner = new Runner(outer);
  inner.end();
  await isAborted(inner.run(["true"]));
  assertEquals((await outer.run(["true"])).code, 0);
  const second = new Runner(outer);
  outer.end();
  await isAborted(second.run(["true"]));
});

Deno.test("a program that takes long is named while it runs, a fast one never", {
  permissions: "none",
}, async () => {
  using time = new FakeTime();
  const { log, lines } = recordingLog();
  const programs: Exec = {
    run: (argv) =>
      new Promise((resolve, reject) => {
        const end = (): void =>
          argv.includes("fails")
            ? reject(new ExecError(argv, 1, ""))
            : resolve({ code: 0, stdout: "", stderr: "" });
        setTimeout(end, Number(argv[1]));
      }),
  };
  const exec = new Runner(programs, { slowLog: log });
  const fast = exec.run(["nft", "2900", "secret"]);
  const slow = exec.run(["sysctl", "60000", "secret"]);
  const failing = assertRejects(() => exec.run(["ip", "5000", "fails"]), ExecError);
  await time.tickAsync(2_900);
  await fast;
  await time.tickAsync(100);
  const waiting = (name: string): string => `I "Waiting for a program" program="${name}" seconds=3`;
  assertEquals(lines, [waiting("sysctl"), waiting("ip")]);
  await time.tickAsync(57_000);
  await slow;
  await failing;
  assertEquals(lines.slice(2).map((line) => line.replace(/ seconds=.*/, "")), [
    'I "The program has ended" program="ip"',
    'I "The program has ended" program="sysctl"',
  ]);
});

const ARGV = ["ip6tables", "-S"];
const DONE: ExecResult = { code: 0, stdout: "-P POSTROUTING ACCEPT\n", stderr: "" };
const ABSENT: ExecResult = { code: 3, stdout: "", stderr: "Table does not exist (do you need to insmod?)\n" };
const BUSY: ExecResult = {
  code: 4,
  stdout: "",
  stderr: "Another app is currently holding the xtables lock.",
};
const NO_MEMORY: ExecResult = { code: 1, stdout: "", stderr: "ip6tables: Cannot allocate memory\n" };
const KILLED = new ExecError(ARGV, 137, "");
const HUNG = new ExecError(ARGV, 137, "", { timedOutMs: 120_000 });
const NO_PROCESS = new ExecError(ARGV, -2, "Resource temporarily unavailable (os error 11)");
const MISSING = new ExecError(ARGV, -1, "No such file or directory");

type Answer = ExecResult | ExecError;

/** The answers of a program, one after the other, and what comes of them: the last one, after so many tries. */
const CASES: readonly [name: string, answers: readonly Answer[], tries: number][] = [
  ["one that answers", [DONE], 1],
  ["killed once", [KILLED, DONE], 2],
  ["killed, and then a definite no", [KILLED, ABSENT], 2],
  ["no memory, no process, killed", [NO_MEMORY, NO_PROCESS, KILLED, DONE], 4],
  ["killed for good", [KILLED, KILLED, KILLED, KILLED], 4],
  ["never any memory", [NO_MEMORY, NO_MEMORY, NO_MEMORY, NO_MEMORY], 4],
  ["hung once", [HUNG, DONE], 2],
  ["hangs for good", [HUNG, HUNG], 2],
  ["a definite no", [ABSENT], 1],
  ["a held lock", [BUSY], 1],
  ["missing", [MISSING], 1],
];

for (const [name, answers, tries] of CASES) {
  Deno.test(`asking again: ${name}`, { permissions: "none" }, async () => {
    const left = [...answers];
    const limits: unknown[] = [];
    const programs: Exec = {
      run: (_argv, options) => {
        limits.push(options?.timeoutMs);
        const answer = left.shift();
        if (answer === undefined) throw new TypeError("one try too many");
        return answer instanceof ExecError ? Promise.reject(answer) : Promise.resolve(answer);
      },
    };
    const clock = recordingClock();
    const { log, lines } = recordingLog();
    const exec = new Runner(programs, { retryLog: log, clock });
    const last = answers[tries - 1];
    const isNoAnswer = last instanceof ExecError || last === NO_MEMORY;
    if (isNoAnswer) await assertRejects(() => exec.run(ARGV), ExecError);
    else assertEquals(await exec.run(ARGV), last);
    assertEquals([left, lines.length, limits], [[], tries - 1, answers.map(() => 120_000)]);
    assertEquals(clock.waits, [200, 1_000, 3_000].slice(0, tries - 1));
  });
}

Deno.test(
  "once it has settled, each run is one try without a limit of its own",
  { permissions: "none" },
  async () => {
    const limits: unknown[] = [];
    const programs: Exec = {
      run: (_argv, options) => {
        limits.push(options?.timeoutMs);
        return Promise.reject(KILLED);
      },
    };
    const exec = new Runner(programs, { retryLog: recordingLog().log });
    exec.settle();
    await assertRejects(() => exec.run(ARGV), ExecError, "SIGKILL");
    assertEquals(limits, [undefined]);
  },
);
