import { assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { recordingLog } from "../../../tests/support/recording_log.ts";
import { systemClock } from "../../kernel/clock.ts";
import { SnapshotSaver } from "./snapshot_file.ts";

interface Bench {
  readonly saver: SnapshotSaver;
  /** Seconds at which a write began. */
  readonly writes: number[];
  readonly lines: string[];
  failures: number;
  bytes: number;
  problem: string | undefined;
  /** Lets this many seconds pass. */
  pass(seconds: number): Promise<void>;
  end(): Promise<void>;
}

async function withSaver(test: (bench: Bench) => Promise<void>): Promise<void> {
  using time = new FakeTime(0);
  const stop = new AbortController();
  const { log, lines } = recordingLog();
  const saver = new SnapshotSaver({
    path: "/s",
    log,
    clock: { ...systemClock, nowMs: () => Date.now() },
    onFailure: () => bench.failures++,
    save: () => {
      bench.writes.push(Date.now() / 1000);
      return bench.problem === undefined
        ? Promise.resolve(bench.bytes)
        : Promise.reject(new Error(bench.problem));
    },
  });
  const running = saver.run(stop.signal);
  const bench: Bench = {
    saver,
    writes: [],
    lines,
    failures: 0,
    bytes: 1000,
    problem: undefined,
    pass: async (seconds) => {
      for (let i = 0; i < seconds; i++) await time.tickAsync(1000);
    },
    end: async () => {
      stop.abort();
      await running;
    },
  };
  await test(bench);
  await bench.end();
}

Deno.test("a change is written after ten seconds, with all that came meanwhile, and nothing is written without one", () =>
  withSaver(async ({ saver, writes, pass }) => {
    await pass(100);
    assertEquals(writes, []);
    saver.changed();
    await pass(5);
    saver.changed();
    await pass(300);
    assertEquals(writes, [110]);
    saver.changed();
    await pass(300);
    assertEquals(writes, [110, 415]);
  }));

Deno.test("under constant change it is written every ten seconds", () =>
  withSaver(async ({ saver, writes, pass }) => {
    for (let i = 0; i < 60; i++) {
      saver.changed();
      await pass(1);
    }
    assertEquals(writes, [10, 20, 30, 40, 50, 60]);
  }));

Deno.test("the larger the file the rarer it is written", () =>
  withSaver(async (bench) => {
    bench.bytes = 16 * 1024 * 1024;
    for (let i = 0; i < 180; i++) {
      bench.saver.changed();
      await bench.pass(1);
    }
    assertEquals(bench.writes, [10, 74, 138]);
  }));

Deno.test("at the end what is unwritten is written at once", () =>
  withSaver(async ({ saver, writes, pass, end }) => {
    saver.changed();
    await pass(3);
    await end();
    assertEquals(writes, [3]);
  }));

Deno.test("at the end nothing is written if nothing changed", () =>
  withSaver(async ({ saver, writes, pass, end }) => {
    saver.changed();
    await pass(20);
    await end();
    assertEquals(writes, [10]);
  }));

Deno.test("a write that fails is reported once, counted each time, and tried again until it works", () =>
  withSaver(async (bench) => {
    bench.problem = 'Cannot write "/s": No space left on device (os error 28)';
    bench.saver.changed();
    await bench.pass(35);
    assertEquals([bench.writes, bench.failures], [[10, 20, 30], 3]);
    bench.problem = undefined;
    await bench.pass(60);
    assertEquals([bench.writes, bench.failures], [[10, 20, 30, 40], 3]);
    assertEquals(bench.lines, [
      'W "Cannot write the snapshot, going on without" file="/s" reason="Cannot write \\"/s\\": No space left on device (os error 28)"',
      'I "Snapshot written" file="/s" bytes=1000 took="0.0ms"',
    ]);
  }));
