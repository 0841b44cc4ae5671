import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { cut, escaped, escapedJson, own, quote, sentence } from "./quote.ts";

/** Controls of 7 and 8 bits, DEL, changes of direction, line ends, characters without width, tags, half a character. */
const OBEYED = [
  ..."\u0000\u0007\n\r\t\u001b\u007f\u0085\u009b\u00ad\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\u3164\ufeff\ufff9",
  "\ud800",
  "\udc00",
  "\u{e0041}",
];

Deno.test("what a terminal or a reader of lines would obey is shown as JSON escapes it", {
  permissions: "none",
}, () => {
  for (const one of OBEYED) {
    const name = one.codePointAt(0)?.toString(16);
    const shown = quote(`a${one}b`);
    assert(/^[\x20-\x7e]+$/.test(shown), `${name}: ${JSON.stringify(shown)}`);
    assertEquals(JSON.parse(shown), `a${one}b`, name);
    assert(/^[\x20-\x7e]+$/.test(escaped(one)), name);
    assertEquals(JSON.parse(escapedJson(JSON.stringify({ a: one }, null, "\t"))), { a: one }, name);
  }
  const ordinary = 'Käse "naïve" \u00a0 日本 😀 é';
  assertEquals([escaped(ordinary), JSON.parse(quote(ordinary))], [ordinary, ordinary]);
});

Deno.test(
  "a text is cut, with its length, also if all of it is escaped",
  { permissions: "none" },
  () => {
    assertEquals(quote("x".repeat(60)), `"${"x".repeat(60)}"`);
    assertEquals(quote("x".repeat(61)), `"${"x".repeat(60)}…" (61 characters)`);
    for (const one of [...OBEYED, "😀", '"']) {
      const shown = quote(one.repeat(100_000));
      assert(shown.length <= 60 + '"…" (200000 characters)'.length, shown);
      assert(shown.isWellFormed(), shown);
    }
    assertEquals([cut("abc", 3), cut("abcd", 3)], ["abc", "abc… (4 characters)"]);
  },
);

Deno.test(
  "in a sentence everything is quoted but numbers and words of our own",
  { permissions: "none" },
  () => {
    assertEquals<string>(
      sentence`ports[${3}] of ${own("shop/web")} has ${"a\u202eb"}`,
      'ports[3] of shop/web has "a\\u202eb"',
    );
    assertStringIncludes(sentence`${"y".repeat(1_000)}`, "(1000 characters)");
  },
);
