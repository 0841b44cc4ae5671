import { assertEquals } from "@std/assert";
import { ExecError } from "../errors.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Exec } from "../kernel/exec.ts";
import type { IpFamily } from "../model/objects.ts";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { setOomScoreLate } from "./oom_score.ts";

/** @param ms what the clock's sleeps take, at most: a signal ends them */
function setUp({ status = 0, ms = 60_000 } = {}) {
  const started: string[] = [];
  const slept: number[] = [];
  const lines: string[] = [];
  const exec: Exec = {
    run: (argv) => {
      started.push(argv.join(" "));
      return status === 0
        ? Promise.resolve({ code: 0, stdout: "", stderr: "" })
        : Promise.reject(new ExecError(argv, status, "Permission denied"));
    },
  };
  const clock: Clock = {
    nowMs: () => 0,
    sleep: (asked, signal) => {
      slept.push(asked);
      return new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        const end = () => {
          clearTimeout(timer);
          resolve();
        };
        if (signal?.aborted) end();
        signal?.addEventListener("abort", end);
      });
    },
  };
  const log = {
    enabled: () => true,
    info: (message: string) => void lines.push(message),
    warn: () => {},
    error: () => {},
  };
  const families: IpFamily[] = ["IPv4", "IPv6"];
  const end = new AbortController();
  const options = { adjustment: -999, pid: 7, families, exec, log, clock };
  return { score: setOomScoreLate(options, end.signal), end, started, slept, lines };
}

Deno.test(
  "the score is set after the first sync of every family, once",
  { permissions: "none" },
  async () => {
    const { score, started } = setUp();
    score.observer.synced(syncOutcome("IPv6"));
    score.observer.synced(syncOutcome("IPv6"));
    await new Promise((resolve) => setTimeout(resolve, 5));
    assertEquals(started, []);
    score.observer.synced(syncOutcome("IPv4"));
    score.observer.synced(syncOutcome("IPv4"));
    await score.settled;
    assertEquals(started, ["choom -n -999 -p 7"]);
  },
);

Deno.test("where nothing is ever synced, it is set all the same", { permissions: "none" }, async () => {
  const { score, started, slept } = setUp({ ms: 1 });
  await score.settled;
  assertEquals([started, slept], [["choom -n -999 -p 7"], [10_000]]);
});

Deno.test("a refusal is reported, and an end before is not", { permissions: "none" }, async () => {
  const refused = setUp({ status: 1, ms: 1 });
  await refused.score.settled;
  assertEquals(refused.lines, ["OOM score stays as it is"]);
  const ended = setUp();
  ended.end.abort();
  await ended.score.settled;
  assertEquals([ended.started, ended.lines], [[], []]);
});
