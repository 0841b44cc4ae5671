import { assert, assertEquals, assertRejects } from "@std/assert";
import { RecordedLog } from "../../../tests/support/file_source.ts";
import { TurnReader } from "./file_source.ts";

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

Deno.test("a short text is waited for, and nothing is told", NONE, async () => {
  const log = new RecordedLog();
  const reader = new TurnReader(log, { shortMs: 60_000, longMs: 60_000 });
  const { short, whole } = await reader.begin("a.yaml", steps(3), never);
  assertEquals([short, await whole, log.lines], [" read", " read", []]);
});

Deno.test("a long text is not waited for, and told with its name and how long it takes", NONE, async () => {
  const log = new RecordedLog();
  const { short, whole } = await new TurnReader(log, { shortMs: 10, longMs: 120 }).begin(
    "huge.yaml",
    steps(300),
    never,
  );
  assertEquals([short, log.lines], [undefined, []]);
  assertEquals(await whole, " read");
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
  const reader = new TurnReader(new RecordedLog(), { shortMs: 0, longMs: Infinity });
  const gone: string[] = [];
  let ticks = 0;
  const beat = setInterval(() => ticks++, 1);
  try {
    const all = await Promise.all(
      ["a", "b"].map((name) => reader.begin(name, steps(100, gone, name), never)),
    );
    assertEquals(await Promise.all(all.map(({ whole }) => whole)), ["a read", "b read"]);
  } finally {
    clearInterval(beat);
  }
  assert(ticks >= 10, `${ticks} ticks`);
  const firstEnd = Math.min(gone.lastIndexOf("a"), gone.lastIndexOf("b"));
  assert(firstEnd > 120, `one was read before the other: ${gone.join("")}`);
});

Deno.test("one that nobody wants any more ends, and what is wrong with a text is thrown", NONE, async () => {
  const reader = new TurnReader(new RecordedLog(), { shortMs: 0, longMs: Infinity });
  const end = new AbortController();
  const { whole } = await reader.begin("a.yaml", steps(10_000), end.signal);
  end.abort(new Error("gone"));
  await assertRejects(() => whole, Error, "gone");
  const failing = function* (): Generator<void, string> {
    yield* steps(20);
    throw new Error("too deep");
  };
  const { whole: failed } = await reader.begin("b.yaml", failing(), never);
  await assertRejects(() => failed, Error, "too deep");
});
