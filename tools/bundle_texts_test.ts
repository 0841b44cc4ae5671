import { assertEquals } from "@std/assert";
import { replaced } from "./bundle_texts.ts";

Deno.test("a place is found where it is after replacements of other lengths, and where it was", {
  permissions: "none",
}, () => {
  const before = "one two\nfirst a(1) middle a(22) last\na()";
  const { text, columnNow, columnBefore } = replaced(
    before,
    /a\((\d*)\)/g,
    (found, number) => number === "" ? found : number === "1" ? "longer(1)" : "",
  );
  assertEquals(text, "one two\nfirst longer(1) middle  last\na()");
  const [lines, now] = [before.split("\n"), text.split("\n")];
  for (const [line, word] of [[0, "two"], [1, "first"], [1, "middle"], [1, "last"], [2, "a()"]] as const) {
    const [was, is] = [lines[line]!.indexOf(word), now[line]!.indexOf(word)];
    assertEquals([columnNow(line, was), columnBefore(line, is)], [is, was], word);
  }
});
