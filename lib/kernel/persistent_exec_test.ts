import { assertEquals, assertRejects } from "@std/assert";
import { recordingClock } from "../../tests/support/recording_clock.ts";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { ExecError } from "../errors.ts";
import type { Exec, ExecResult } from "./exec.ts";
import { PersistentExec } from "./persistent_exec.ts";

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
    const exec = new PersistentExec(programs, log, clock);
    const last = answers[tries - 1];
    const isNoAnswer = last instanceof ExecError || last === NO_MEMORY;
    if (isNoAnswer) await assertRejects(() => exec.run(ARGV), ExecError);
    else assertEquals(await exec.run(ARGV), last);
    assertEquals([left, lines.length, limits], [[], tries - 1, answers.map(() => 120_000)]);
    assertEquals(clock.waits, [200, 1_000, 3_000].slice(0, tries - 1));
  });
}

Deno.test(
  "once it rests, each run is one try without a limit of its own",
  { permissions: "none" },
  async () => {
    const limits: unknown[] = [];
    const programs: Exec = {
      run: (_argv, options) => {
        limits.push(options?.timeoutMs);
        return Promise.reject(KILLED);
      },
    };
    const exec = new PersistentExec(programs, recordingLog().log);
    exec.rest();
    await assertRejects(() => exec.run(ARGV), ExecError, "SIGKILL");
    assertEquals(limits, [undefined]);
  },
);
