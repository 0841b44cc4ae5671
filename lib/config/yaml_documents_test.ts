import { assert, assertEquals } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import fc from "../../tests/support/fast_check.ts";
import { stringify } from "@std/yaml";
import { type Document, parseAllDocuments } from "yaml";
import { parseYamlDocuments, shortened, YAML_LIMITS, type YamlLimits } from "./yaml_documents.ts";

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

const { characters, depth, tokens } = YAML_LIMITS;

/** First fault of a text: of its documents, or of the text itself. */
function faultOf(text: string, limits?: YamlLimits): string | undefined {
  const { documents, fault } = parseYamlDocuments(text, { merge: true }, limits);
  const message = documents.flatMap(({ faults }) => faults)[0]?.message ?? fault?.message;
  return message === undefined ? undefined : shortened(message);
}

/** A text as long as may be, of one thing again and again. */
function full(unit: string, before = "", after = ""): string {
  return before + unit.repeat(Math.floor((characters - before.length - after.length) / unit.length)) + after;
}

const ALIAS_BOMB = Array.from(
  { length: 30 },
  (_, level) => `a${level}: &a${level} [${level === 0 ? "x" : `*a${level - 1}, `.repeat(10)}]\n`,
).join("");

const HOSTILE: readonly [what: string, text: string, fault: string][] = [
  ["brackets", "[".repeat(100_000), `nested more than ${depth} levels deep`],
  ["brackets and texts", "a: " + "[a, ".repeat(100_000), `nested more than ${depth} levels deep`],
  ["braces", "{a: ".repeat(100_000), `nested more than ${depth} levels deep`],
  ["lists on one line", "- ".repeat(1_000_000), `nested more than ${depth} levels deep`],
  ["keys of keys", "? ".repeat(100_000), `nested more than ${depth} levels deep`],
  [
    "indentation",
    Array.from({ length: 1_000 }, (_, level) => `${" ".repeat(level)}a:\n`).join(""),
    `nested more than ${depth} levels deep`,
  ],
  [
    "a text that is too long",
    "a".repeat(100_000_000),
    `a YAML document may have ${characters} characters, found 100000000`,
  ],
  ["items", full("- a\n"), `more than ${tokens} tokens`],
  ["keys", full("k: v\n"), `more than ${tokens} tokens`],
  ["flat brackets", full("[[],[]],\n", "["), `more than ${tokens} tokens`],
  ["commas", full(",", "["), `more than ${tokens} tokens`],
  ["empty texts", full("- >\n"), `more than ${tokens} tokens`],
  ["comments", full("#\n"), `more than ${tokens} tokens`],
  ["empty lines", full("\n"), `more than ${tokens} lines`],
  ["lines of one text", full(" x\n", "a: |\n"), `more than ${tokens} lines`],
  ["lines with tabs", full("\t\n", "a:\n"), `more than ${tokens} tokens`],
  ["tags", full("! "), "more than 10000 tags"],
  ["exclamation marks", full("!"), `The ${"!".repeat(195)}…`],
  ["anchors", full("- &a x\n"), "more than 10000 anchors"],
  ["aliases", full("- *a\n", "- &a x\n"), "more than 1000 aliases"],
  ["merges", full("  <<: *a\n", "a: &a {x: 1}\nb:\n"), "more than 1000 aliases"],
  ["directives", full("%\n"), "more than 10000 directives"],
  ["document ends", full("...\n"), "more than 10000 document ends"],
  ["bad escapes", full("\\x", '"', '"'), "more than 100 invalid escape sequences"],
  ["closing brackets", full("]"), 'Unexpected flow-seq-end token in YAML document: "]"'],
  ["what is no YAML, again and again", full("a\nb: ]\n"), "Implicit keys need to be on a single line"],
  ["aliases of aliases", ALIAS_BOMB, "stands for more than 1000000 values"],
  ["an alias inside of its anchor", "a: &a\n  b: *a\n", "*a stands inside of what it stands for"],
];
for (const [what, text, fault] of HOSTILE) {
  Deno.test(`of ${what} no more is read than may be`, { permissions }, () => {
    const spentMs = startWork();
    assertEquals(faultOf(text), fault);
    // A second of work, on a machine that has much else to do.
    assert(spentMs() < 20_000);
  });
}

const OPEN = "[{ - ? : & * ! | > % @ ` \\";
const HARMLESS: readonly [what: string, text: string][] = [
  ["a comment", `# ${OPEN.repeat(2_000)}\na: 1\n`],
  ["single quotes", `a: '${"[{'' # ".repeat(5_000)}'\n`],
  ["double quotes", `a: "${'[{\\" \\\\ # \\x41 '.repeat(5_000)}"\n`],
  ["a folded text", `a: >-\n${`  ${OPEN.repeat(20)}\n`.repeat(500)}b: 1\n`],
  ["a literal text", `a: |\n${`  - - - - - - ${"[".repeat(300)}\n`.repeat(500)}`],
  ["a text of a script", `a: |2\n${`    if [[ $a == {{ "x" ]]; then &b *c; # !\n`.repeat(500)}`],
  ["a plain text", `a: x${"[{]}".repeat(5_000)}\n`],
  ["a text over lines", `a: x\n${`   [{ & * ! # y\n`.repeat(1)}`],
  ["a key", `"${"[".repeat(900)}": 1\n`],
  ["the deepest nesting", "[".repeat(depth) + "]".repeat(depth)],
  ["the deepest nesting around a text", "[".repeat(depth) + "a" + "]".repeat(depth)],
  ["the deepest list", "- ".repeat(depth) + "a"],
  ["brackets side by side", `[${"[[]],".repeat(20_000)}]`],
  ["the longest text", full("x", "a: ")],
];
for (const [what, text] of HARMLESS) {
  Deno.test(`what looks hostile is not: ${what}`, { permissions }, () => {
    assertEquals(faultOf(text), undefined);
  });
}

Deno.test("one level more than may be is too much, wherever", { permissions }, () => {
  const fault = `nested more than ${depth} levels deep`;
  assertEquals(faultOf("[".repeat(depth + 1) + "]".repeat(depth + 1)), fault);
  assertEquals(faultOf("- ".repeat(depth + 1) + "a"), fault);
  assertEquals(faultOf(`a: ${"[".repeat(depth)}${"]".repeat(depth)}`), fault);
});

Deno.test("a fault is reported with its place", { permissions }, () => {
  const text = `a: 1\nb: "[["\nc: ${"[".repeat(300)}`;
  const { fault, lines } = parseYamlDocuments(text);
  assertEquals(fault?.offset, text.indexOf("[", 12) + depth - 1);
  assertEquals(lines.lineAt(fault?.offset ?? 0), 2);
});

/** Values of documents, or the first error. */
function outcomeOf(message: string | undefined, values: () => unknown): unknown {
  if (message !== undefined) return shortened(message);
  try {
    return values();
  } catch (thrown) {
    return String(thrown);
  }
}

/** As {@linkcode parseYamlDocuments}, with the parser's own function. */
function unmeasured(text: string): unknown {
  const options = { prettyErrors: false, logLevel: "silent", uniqueKeys: false } as const;
  const documents = [...parseAllDocuments(text, options)] as Document.Parsed[];
  const [error] = documents.flatMap(({ errors }) => errors);
  return outcomeOf(error?.message, () => documents.map((document) => document.toJS()));
}

function measured(text: string): unknown {
  const { documents, fault } = parseYamlDocuments(text);
  const error = documents.flatMap(({ faults }) => faults)[0] ?? fault;
  return outcomeOf(error?.message, () => documents.map((document) => document.toJs()));
}

const INDICATORS = fc.string({ unit: fc.constantFrom(..."[]{}-?:,&*!|>'\"#%@`\\\n\t a"), maxLength: 60 });

Deno.test("whatever is written as YAML is read as the parser reads it, texts of indicators included", {
  permissions,
}, () => {
  const text = fc.oneof(fc.string(), INDICATORS);
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 6 },
      text,
      fc.integer(),
      fc.boolean(),
      fc.array(tie("value"), { maxLength: 5 }),
      fc.dictionary(text, tie("value"), { maxKeys: 5 }),
    ),
  }));
  fc.assert(
    fc.property(value, (written) => {
      const yaml = stringify(written);
      assertEquals(measured(yaml), unmeasured(yaml));
    }),
    { numRuns: 300 },
  );
});

Deno.test(
  "what is no YAML is refused with the parser's first error, and nothing else is",
  { permissions },
  () => {
    fc.assert(
      fc.property(INDICATORS, (text) => {
        const expected = unmeasured(text);
        if (JSON.stringify(expected).includes("nresolved alias")) return;
        assertEquals(measured(text), expected);
      }),
      { numRuns: 2_000 },
    );
  },
);
