import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { formatDuration, parseDuration } from "./value_texts.ts";

const PURE = { permissions: "none" } as const;

// Texts as Go's own time package reads and writes them.
Deno.test("what Go reads is read, in milliseconds", PURE, () => {
  const cases: [string, number][] = [
    ["0", 0],
    ["0s", 0],
    ["+0", 0],
    ["-0", 0],
    ["-0s", 0],
    ["5s", 5_000],
    ["-5s", -5_000],
    ["+5s", 5_000],
    ["5.s", 5_000],
    [".5s", 500],
    ["1.004s", 1_004],
    ["1.00400000000000000000000000001s", 1_004],
    ["100.00100s", 100_001],
    ["1ns", 0.000001],
    ["10ns", 0.00001],
    ["11us", 0.011],
    ["12µs", 0.012],
    ["12μs", 0.012],
    ["13ms", 13],
    ["1.5ms", 1.5],
    ["15m", 900_000],
    ["1.5h", 5_400_000],
    ["3h30m", 12_600_000],
    ["10.5s4m", 250_500],
    ["1h2m3s4ms5us6ns", 3_723_004.005006],
    ["0.3333333333333333333h", 1_200_000],
    ["2562047h47m16s", 9_223_372_036_000],
  ];
  for (const [text, expected] of cases) assertEquals(parseDuration(text), expected, text);
});

Deno.test("what Go refuses is no duration, however long it is", PURE, () => {
  const texts = [
    ...[
      "",
      "-",
      "s",
      ".",
      ".s",
      "+.s",
      " 1s",
      "soon",
      "3",
      "1h3",
      "1.5",
      "1d",
      "1s ",
      "1S",
      "1h-5m",
      "00",
      "1..s",
    ],
    // More than 64 bits of nanoseconds.
    ...["9223372036854775808ns", "9223372036854775.808us", "3000000h", "-3000000h"],
    ...["1".repeat(1_000_000), "1s".repeat(500_000) + "1"],
  ];
  for (const text of texts) assertEquals(parseDuration(text), null, text.slice(0, 30));
});

Deno.test("durations are written as Go writes them", PURE, () => {
  const cases: [number, string][] = [
    [0, "0s"],
    [0.000001, "1ns"],
    [0.0011, "1.1µs"],
    [2.2, "2.2ms"],
    [3_300, "3.3s"],
    [60_000, "1m0s"],
    [245_000, "4m5s"],
    [245_001, "4m5.001s"],
    [18_367_001, "5h6m7.001s"],
    [480_000.000001, "8m0.000000001s"],
    [86_400_000, "24h0m0s"],
    [-1_500, "-1.5s"],
    [9_223_372_036_000, "2562047h47m16s"],
  ];
  for (const [durationMs, expected] of cases) assertEquals(formatDuration(durationMs), expected);
});

Deno.test("reading what was written gives the same duration", PURE, () => {
  for (const text of ["15m0s", "1.5s", "250ms", "1ns", "-2m0s", "0s", "1h30m0s"]) {
    assertEquals(formatDuration(parseDuration(text) ?? NaN), text);
  }
  // Beyond some days, milliseconds have no place for single nanoseconds.
  const anyMs = fc.oneof(
    fc.integer({ min: -(10 ** 15), max: 10 ** 15 }).map((ns) => ns / 1e6),
    fc.integer({ min: -(10 ** 12), max: 10 ** 12 }),
  );
  fc.assert(fc.property(anyMs, (ms) => Math.abs((parseDuration(formatDuration(ms)) ?? NaN) - ms) < 1e-6));
});
