import { assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { defaultConfig } from "./defaults.ts";
import { withFields } from "./fields.ts";
import type { FieldValue } from "./setting.ts";
import { writeConfigYaml } from "./write_yaml.ts";

/** Environment variables that npm's `yaml` reads. */
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
  "<<",
];

/** Texts that mean something else without quotes, by that meaning. */
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
  "a sign of YAML's own": ["*a", "%a", "`a`", "=", '"x"'],
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
  ["\x1b[1m\\", '"\\e[1m\\\\"'],
];

/** How the text is written as a value; it reads back as itself, and as a name, too. */
function written(text: string): string | undefined {
  const gates = text === "<<" ? {} : { [text]: true };
  const config = withFields(
    defaultConfig(),
    new Map<string, FieldValue>([["hostnameOverride", text], ["featureGates", gates]]),
  );
  const yaml = writeConfigYaml(config);
  const { hostnameOverride, featureGates = {} } = parse(yaml) as Record<string, unknown>;
  assertEquals([hostnameOverride, featureGates], [text, gates]);
  return /^hostnameOverride: (.*)$/m.exec(yaml)?.[1];
}

Deno.test("a text is quoted only where it must be, and reads back as itself", { permissions }, () => {
  const cases = [
    ...PLAIN.map((text) => [text, text] as const),
    ...Object.values(SINGLE).flat().map((text) => [text, `'${text}'`] as const),
    ...OTHERS,
  ];
  for (const [text, expected] of cases) assertEquals(written(text), expected, text);
});
