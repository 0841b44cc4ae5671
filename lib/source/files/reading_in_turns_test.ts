import { assert, assertEquals, assertRejects } from "@std/assert";
import { RecordedLog } from "../../../tests/support/file_source.ts";
import { readInTurns } from "./file_source.ts";

const NONE = { permissions: "none" } as const;
const never = new AbortController().signal;

/** Steps of a millisecond of work each. */
function* steps(count: number, gone: string[] = [], name = ""): Generator<void, string> {
  for (let step = 0; step < count; step++) {
    for (const startMs = performance.now(); performance.now() - startMs < 1;);
    gone.push(name);
    yield;
  }
  return `${name} read`;
}

Deno.test("of a short text the log says nothing", NONE, async () => {
  const log = new RecordedLog();
  assertEquals([await readInTurns("a.yaml", steps(3), log, never), log.lines], [" read", []]);
});

Deno.test("the log names a long text, and how long it takes", NONE, async () => {
  const log = new RecordedLog();
  assertEquals(await readInTurns("huge.yaml", steps(300), log, never, 120), " read");
  const seconds = log.lines.map((line) => {
    const [, took] =
      /^W A manifest file (?:takes|took) long to read.*"file":"huge.yaml","seconds":([\d.]+)\}$/
        .exec(line) ?? [];
    return Number(took);
  });
  assertEquals(seconds.length, 2, log.lines.join());
  assert(seconds[0]! >= 0.1 && seconds[1]! >= 0.3, log.lines.join());
});

Deno.test("several long texts take turns, and everything else goes on", NONE, async () => {
  const gone: string[] = [];
  let ticks = 0;
  const beat = setInterval(() => ticks++, 1);
  try {
    const all = await Promise.all(
      ["a", "b"].map((name) => readInTurns(name, steps(100, gone, name), new RecordedLog(), never)),
    );
    assertEquals(all, ["a read", "b read"]);
  } finally {
    clearInterval(beat);
  }
  assert(ticks >= 10, `${ticks} ticks`);
  const firstEnd = Math.min(gone.lastIndexOf("a"), gone.lastIndexOf("b"));
  assert(firstEnd > 120, `one was read before the other: ${gone.join("")}`);
});

Deno.test("a reading ends when it is aborted, and what is wrong with a text is thrown", NONE, async () => {
  const log = new RecordedLog();
  const end = new AbortController();
  const reading = readInTurns("a.yaml", steps(10_000), log, end.signal);
  end.abort(new Error("gone"));
  await assertRejects(() => reading, Error, "gone");
  const failing = function* (): Generator<void, string> {
    yield* steps(20);
    throw new Error("too deep");
  };
  await assertRejects(() => readInTurns("b.yaml", failing(), log, never), Error, "too deep");
});
