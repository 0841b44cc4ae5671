import { assertEquals, assertThrows } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { formatDuration, formatDurationNs, parseDuration, parseDurationNs } from "./duration.ts";

const PURE = { permissions: "none" } as const;

// Texts and nanoseconds as Go's own time package reads and writes them.
Deno.test("parseDurationNs() reads what Go reads", PURE, () => {
  const cases: [string, bigint][] = [
    ["0", 0n],
    ["0s", 0n],
    ["+0", 0n],
    ["-0", 0n],
    ["5s", 5_000_000_000n],
    ["-5s", -5_000_000_000n],
    ["+5s", 5_000_000_000n],
    ["5.s", 5_000_000_000n],
    [".5s", 500_000_000n],
    ["1.004s", 1_004_000_000n],
    ["1.00400000000000000000000000001s", 1_004_000_000n],
    ["100.00100s", 100_001_000_000n],
    ["10ns", 10n],
    ["11us", 11_000n],
    ["12µs", 12_000n],
    ["12μs", 12_000n],
    ["13ms", 13_000_000n],
    ["15m", 900_000_000_000n],
    ["1.5h", 5_400_000_000_000n],
    ["3h30m", 12_600_000_000_000n],
    ["10.5s4m", 250_500_000_000n],
    ["1h2m3s4ms5us6ns", 3_723_004_005_006n],
    ["0.3333333333333333333h", 1_200_000_000_000n],
    ["0.100000000000000000000h", 360_000_000_000n],
    ["9223372036854775807ns", 9_223_372_036_854_775_807n],
    ["-9223372036854775808ns", -9_223_372_036_854_775_808n],
    ["9223372036854775.807us", 9_223_372_036_854_775_807n],
  ];
  for (const [text, expected] of cases) assertEquals(parseDurationNs(text), expected, text);
});

Deno.test("parseDurationNs() refuses what Go refuses, in its words", PURE, () => {
  const cases: [string, string][] = [
    ["", 'time: invalid duration ""'],
    ["-", 'time: invalid duration "-"'],
    ["s", 'time: invalid duration "s"'],
    [".", 'time: invalid duration "."'],
    [".s", 'time: invalid duration ".s"'],
    ["+.s", 'time: invalid duration "+.s"'],
    [" 1s", 'time: invalid duration " 1s"'],
    ["soon", 'time: invalid duration "soon"'],
    ["3", 'time: missing unit in duration "3"'],
    ["1h3", 'time: missing unit in duration "1h3"'],
    ["1.5", 'time: missing unit in duration "1.5"'],
    ["1d", 'time: unknown unit "d" in duration "1d"'],
    ["1s ", 'time: unknown unit "s " in duration "1s "'],
    ["1S", 'time: unknown unit "S" in duration "1S"'],
    ["1h-5m", 'time: unknown unit "h-" in duration "1h-5m"'],
    ["9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'],
    ["9223372036854775.808us", 'time: invalid duration "9223372036854775.808us"'],
    ["-9223372036854775809ns", 'time: invalid duration "-9223372036854775809ns"'],
    ["3000000h", 'time: invalid duration "3000000h"'],
  ];
  for (const [text, message] of cases) {
    const error = assertThrows(() => parseDurationNs(text), SyntaxError);
    assertEquals(error.message, message);
  }
});

Deno.test("formatDurationNs() writes what Go writes", PURE, () => {
  const cases: [bigint, string][] = [
    [0n, "0s"],
    [1n, "1ns"],
    [1_100n, "1.1µs"],
    [2_200_000n, "2.2ms"],
    [3_300_000_000n, "3.3s"],
    [60_000_000_000n, "1m0s"],
    [245_000_000_000n, "4m5s"],
    [245_001_000_000n, "4m5.001s"],
    [18_367_001_000_000n, "5h6m7.001s"],
    [480_000_000_001n, "8m0.000000001s"],
    [86_400_000_000_000n, "24h0m0s"],
    [-1_500_000_000n, "-1.5s"],
    [9_223_372_036_854_775_807n, "2562047h47m16.854775807s"],
    [-9_223_372_036_854_775_808n, "-2562047h47m16.854775808s"],
  ];
  for (const [nanoseconds, expected] of cases) assertEquals(formatDurationNs(nanoseconds), expected);
});

Deno.test("milliseconds keep fractions down to a nanosecond", PURE, () => {
  assertEquals(parseDuration("1h30m"), 5_400_000);
  assertEquals(parseDuration("1.5ms"), 1.5);
  assertEquals(parseDuration("1ns"), 0.000001);
  for (const text of ["15m0s", "1.5s", "250ms", "1ns", "-2m0s", "0s", "1h30m0s"]) {
    assertEquals(formatDuration(parseDuration(text)), text);
  }
});

Deno.test("reading what was written gives the same duration", PURE, () => {
  const anyNs = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
  fc.assert(fc.property(anyNs, (ns) => parseDurationNs(formatDurationNs(ns)) === ns));
});
