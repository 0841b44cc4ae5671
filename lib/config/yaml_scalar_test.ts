import { assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { yamlScalar } from "./yaml_scalar.ts";

/** npm's `yaml` asks for these. */
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

/** Texts that need no quotes. */
const PLAIN: readonly string[] = [
  "iptables",
  "two words",
  "0.0.0.0:10256",
  "fd00::1",
  "::/0",
  "10.0.0.0/8,fd00::/64",
  "0s",
  "1h0m0s",
  "64Ki",
  "1.35.0",
  "..",
  "x-",
  "2001-01-01-node",
  "yesterday",
  "~/x",
  "-x",
  "a#b",
  "it's",
  "größe",
  "日本",
  "🦕",
];

/** Texts that mean something else without quotes, by what. */
const SINGLE: Readonly<Record<string, readonly string[]>> = {
  nothing: ["", "~", "null", "Null"],
  "a truth": ["on", "No", "y", "true"],
  "a number": [
    "0",
    "-998",
    "1.35",
    "1e3",
    "E0",
    "-1_0.5e+3",
    "1_000",
    "0x1f",
    "0b11",
    "017",
    "0o17",
    "3:20",
    ".5",
    ".",
    ".inf",
    ".NaN",
  ],
  "a date": ["2001-01-01", "2001-01-01T00:00:00Z"],
  "a list, a key or a comment": ["[::]:10256", "{a}", "-", "- x", "? x", "a: b", "a:", "::", "a #b"],
  "a sign of YAML's own": ["*a", "%a", "`a`", "<<", "=", '"x"'],
  "less at its ends": [" a", "a "],
};

const OTHERS: readonly [text: string, written: string][] = [
  ["'it's'", `"'it's'"`],
  [`'"`, `'''"'`],
  ["a\nb", '"a\\nb"'],
  ["a\tb", '"a\\tb"'],
  ["\u0085", '"\\u0085"'],
  ["a\u00a0b", '"a\\u00a0b"'],
  ["\u2028", '"\\u2028"'],
  ["\ufeff", '"\\ufeff"'],
  ["\x1b[1m\\", '"\\u001b[1m\\\\"'],
];

Deno.test("a text is quoted only where it must be, and reads back as itself", { permissions }, () => {
  const cases = [
    ...PLAIN.map((text) => [text, text] as const),
    ...Object.values(SINGLE).flat().map((text) => [text, `'${text}'`] as const),
    ...OTHERS,
  ];
  for (const [text, written] of cases) {
    assertEquals(yamlScalar(text), written);
    assertEquals(parse(`${written}: ${written}\n`), { [text]: text });
    assertEquals(parse(`- ${written}\n`, { schema: "core" }), [text]);
  }
});
