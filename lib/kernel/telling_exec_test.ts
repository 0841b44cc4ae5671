import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { ExecError } from "../errors.ts";
import type { Exec } from "./exec.ts";
import { TellingExec } from "./telling_exec.ts";

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
  const exec = new TellingExec(programs, log);
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
