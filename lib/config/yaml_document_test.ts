import { assert, assertEquals } from "@std/assert";
import { startWork } from "../../tests/support/spent.ts";
import fc from "../../tests/support/fast_check.ts";
import { parseDocument } from "yaml";
import { parseYamlDocuments } from "./yaml_documents.ts";

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

const OPTIONS = { merge: true, prettyErrors: false, logLevel: "silent", uniqueKeys: false } as const;

/** Values of a text, or the reason why it has none. */
function outcomeOf(values: () => unknown): unknown {
  try {
    return values();
  } catch (thrown) {
    return String(thrown);
  }
}

function ours(text: string): unknown {
  return outcomeOf(() => parseYamlDocuments(text, { merge: true }).documents[0]?.toJs());
}

function theirs(text: string): unknown {
  return outcomeOf(() => parseDocument(text, OPTIONS).toJS());
}

function many(count: number, one: (index: number) => string): string {
  return Array.from({ length: count }, (_, index) => one(index)).join("");
}

Deno.test("whatever anchors, aliases and merges are written, they stand for what the parser finds", {
  permissions,
}, () => {
  const name = fc.constantFrom("a", "b", "c");
  const { value } = fc.letrec<{ value: string }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom("1", "x", "[]", "{}"),
      name.map((anchor) => `*${anchor} `),
      fc.tuple(name, fc.oneof(tie("value"), fc.constant("1"))).map(([anchor, anchored]) =>
        /^[&*]/.test(anchored) ? anchored : `&${anchor} ${anchored}`
      ),
      fc.array(tie("value"), { maxLength: 4 }).map((items) => `[${items.join(", ")}]`),
      fc.array(fc.tuple(fc.constantFrom("k", "l", "<<"), tie("value")), { maxLength: 3 }).map((fields) =>
        `{${fields.map(([key, field]) => `${key}: ${field}`).join(", ")}}`
      ),
    ),
  }));
  fc.assert(
    fc.property(value, (written) => {
      const { fault, documents } = parseYamlDocuments(`r: ${written}\n`, { merge: true });
      if (fault !== null || documents[0]?.faults.length !== 0) return;
      assertEquals(ours(`r: ${written}\n`), theirs(`r: ${written}\n`));
    }),
    { numRuns: 2_000 },
  );
});

const COSTLY: readonly [what: string, text: string][] = [
  [
    "each of an anchor of its own",
    `${many(990, (n) => `- &a${n} x\n`)}${many(990, (n) => `- *a${n}\n`)}`,
  ],
  [
    "inside of what another stands for",
    `b:\n${many(900, (n) => `- &a${n} x\n`)}c: &c [${many(900, (n) => `*a${n},`)}]\nd: *c\n`,
  ],
  ["of one that is empty", `a: &a []\nb: [${"*a,".repeat(990)}]\n`],
  ["of what is merged", `${many(990, (n) => `- {<<: &a${n} {}}\n`)}${many(990, (n) => `- *a${n}\n`)}`],
];
for (const [what, text] of COSTLY) {
  Deno.test(`as many aliases as there may be take no seconds: ${what}`, { permissions }, () => {
    const { documents: [document], fault } = parseYamlDocuments(text, { merge: true });
    assertEquals(fault, null);
    const spentMs = startWork();
    assert(document?.toJs() !== undefined);
    assertEquals(document.danglingAliases(), []);
    // A tenth of a second of work, on a machine that has much else to do.
    const tookMs = spentMs();
    assert(tookMs < 2_000, `${tookMs} ms`);
  });
}
