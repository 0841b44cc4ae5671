import { assertEquals, assertRejects } from "@std/assert";
import { SyncError } from "../errors.ts";
import { Runner } from "../kernel/runner.ts";
import type { Exec } from "../kernel/exec.ts";
import type { Logger } from "../observe/log.ts";
import { endTogether, setOomScore, untilEnded, withinGrace } from "./run_proxy_server.ts";

Deno.test("the OOM score is set; a refusal is reported, one that comes of the end is not", {
  permissions: "none",
}, async () => {
  const { log, lines } = recordingLog();
  const started: string[] = [];
  const set = (code: number, signal: AbortSignal) =>
    setOomScore(-999, {
      exec: {
        run: (argv) => {
          started.push(argv.join(" "));
          return Promise.resolve({ code, stdout: "", stderr: "Permission denied" });
        },
      },
      log,
    }, signal);
  await set(0, new AbortController().signal);
  await set(1, AbortSignal.abort());
  assertEquals([started[0], lines], [`choom -n -999 -p ${Deno.pid}`, []]);
  await set(1, new AbortController().signal);
  assertEquals([lines.length, lines[0]?.startsWith("I OOM score stays as it is")], [1, true]);
});

const NO_PROGRAMS: Exec = { run: () => Promise.reject(new Error("none is started here")) };

function recordingLog(): { readonly log: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const write = (kind: string) => (message: string, ...values: unknown[]) =>
    void lines.push(`${kind} ${message} ${JSON.stringify(values.at(-1))}`);
  const log: Logger = { enabled: () => true, info: write("I"), warn: write("W"), error: write("E") };
  return { log, lines };
}

Deno.test("all parts are waited for, and nothing is said", { permissions: "none" }, async () => {
  const { log, lines } = recordingLog();
  const done: string[] = [];
  const part = (name: string, ms: number) =>
    new Promise<void>((resolve) => setTimeout(resolve, ms)).then(() => void done.push(name));
  await endTogether({ slow: part("slow", 20), quick: part("quick", 1) }, log);
  assertEquals(done, ["quick", "slow"]);
  assertEquals(lines, []);
});

Deno.test("a part that does not end is left, and named", { permissions: "none" }, async () => {
  const { log, lines } = recordingLog();
  await endTogether({ syncs: new Promise(() => {}), servers: Promise.resolve() }, log, 30);
  assertEquals(lines, ['W Ending without waiting any longer {"unfinished":["syncs"],"limitMs":30}']);
});

Deno.test("a failure is reported after the others have ended", { permissions: "none" }, async () => {
  const { log } = recordingLog();
  let isServing = true;
  const servers = new Promise<void>((resolve) => setTimeout(resolve, 20)).then(() => {
    isServing = false;
  });
  const source = Promise.reject(new Error("the source gave up"));
  await assertRejects(() => endTogether({ source, servers }, log), Error, "the source gave up");
  assertEquals(isServing, false);
});

Deno.test("programs end when the time for a sync is over, and not before", {
  permissions: "none",
}, async () => {
  const patient = new Runner(NO_PROGRAMS);
  await withinGrace(patient, Promise.resolve(), 20);
  await new Promise((resolve) => setTimeout(resolve, 40));
  assertEquals(patient.signal.aborted, false);
  const programs = new Runner(NO_PROGRAMS);
  const sync = new Promise<void>((resolve) => programs.signal.addEventListener("abort", () => resolve()));
  await withinGrace(programs, sync, 20);
});

Deno.test("a sync that fails because of the end is no failure to observers", { permissions: "none" }, () => {
  const { log, lines } = recordingLog();
  const programs = new Runner(NO_PROGRAMS);
  const failures: string[] = [];
  const inner = {
    synced: () => {},
    failed: ({ error }: { error: Error }) => void failures.push(error.message),
  };
  const observer = untilEnded(inner, programs, log);
  const failure = (message: string) =>
    ({
      family: "IPv4",
      full: true,
      error: new SyncError("iptables", "apply", message),
      durationMs: 7,
    }) as const;
  observer.failed(failure("first"));
  programs.end();
  observer.failed(failure("second"));
  assertEquals(failures, ["iptables apply: first"]);
  assertEquals(lines, [
    'I Left a sync unfinished, the next start writes everything {"family":"IPv4","took":"7ms"}',
  ]);
});
