import { assertEquals, assertThrows } from "@std/assert";
import { parse, parseAll, stringify } from "@std/yaml";

const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("stringify writes block style, single quotes only where needed, keys in their order", {
  permissions,
}, () => {
  const text = stringify({
    b: "",
    a: "0s",
    list: ["yes", "123", "it's", "0.0.0.0:80", "a,b", "two words"],
    none: null,
    empty: [],
    map: {},
  });
  const expected = [
    "b: ''",
    "a: 0s",
    "list:",
    "  - 'yes'",
    "  - '123'",
    "  - it's",
    "  - '0.0.0.0:80'",
    "  - 'a,b'",
    "  - two words",
    "none: null",
    "empty: []",
    "map: {}",
    "",
  ];
  assertEquals(text, expected.join("\n"));
});

Deno.test("stringify refuses what YAML cannot hold, or leaves it out", { permissions }, () => {
  assertThrows(() => stringify({ a: undefined }), TypeError, "Cannot stringify undefined");
  assertEquals(stringify({ a: undefined, b: 1 }, { skipInvalid: true }), "b: 1\n");
  assertEquals(stringify({ b: 1, a: 2 }, { sortKeys: true }), "a: 2\nb: 1\n");
});

Deno.test("stringify folds at lineWidth, and never with -1", { permissions }, () => {
  const long = "word ".repeat(40) + "end";
  assertEquals(stringify({ long }, { lineWidth: -1 }), `long: ${long}\n`);
  assertEquals(parse(stringify({ long })), { long });
});

Deno.test(
  "stringify writes an object that appears twice once, unless useAnchors is off",
  { permissions },
  () => {
    const shared = { a: 1 };
    assertEquals(parse(stringify([shared, shared])), [shared, shared]);
    assertEquals(stringify([shared, shared], { useAnchors: false }), "- a: 1\n- a: 1\n");
  },
);

Deno.test("parse takes one document and says what is wrong as SyntaxError", { permissions }, () => {
  assertEquals(parse("a: 1\nb: [x, 0x10]\n"), { a: 1, b: ["x", 16] });
  assertEquals(parse(""), null);
  assertEquals(parse("2026-01-01T00:00:00Z"), new Date("2026-01-01T00:00:00Z"));
  assertEquals(parse("2026-01-01T00:00:00Z", { schema: "core" }), "2026-01-01T00:00:00Z");
  assertThrows(() => parse("a: 1\n---\nb: 2\n"), SyntaxError, "more than 1 document");
  assertThrows(() => parse("a: [1"), SyntaxError);
  assertThrows(() => parse("a: 1\na: 2\n"), SyntaxError);
  assertEquals(parse("a: 1\na: 2\n", { allowDuplicateKeys: true }), { a: 2 });
});

Deno.test("parseAll takes every document", { permissions }, () => {
  assertEquals(parseAll("a: 1\n---\nb: 2\n"), [{ a: 1 }, { b: 2 }]);
  assertEquals(parseAll(""), []);
});
