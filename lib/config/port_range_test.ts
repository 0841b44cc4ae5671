import { assertEquals, assertThrows } from "@std/assert";
import { parsePortRange } from "./value_texts.ts";

Deno.test("a range is one port, two ends, or a beginning and how many more", () => {
  const ranges = ["", " ", "0", "0-0", "300", "30000-32767", "30000+1000", "65000+1000", "0-10"].map(
    parsePortRange,
  );
  assertEquals(ranges, [
    null,
    null,
    null,
    null,
    { first: 300, last: 300 },
    { first: 30_000, last: 32_767 },
    { first: 30_000, last: 31_000 },
    { first: 65_000, last: 65_535 },
    { first: 1, last: 10 },
  ]);
});

Deno.test("what is no range is refused", () => {
  for (const text of ["a", "1-", "-1", "2-1", "65536", "1-70000", "1--2", "1 - 2", "1,2"]) {
    assertThrows(() => parsePortRange(text), SyntaxError, `"${text}" is no range of ports`);
  }
});
