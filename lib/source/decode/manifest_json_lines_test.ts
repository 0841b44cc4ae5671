import { assertEquals } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { parseYamlDocuments } from "../../config/yaml_documents.ts";
import { JsonPlaces } from "./manifest_json.ts";

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

Deno.test("values of any JSON are found where the YAML reader finds them", { permissions }, () => {
  const text = fc.string({ unit: fc.constantFrom(...'[]{},:"\\ \nab') });
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      text,
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie("value"), { maxLength: 4 }),
      fc.dictionary(text.filter((key) => key !== "<<"), tie("value"), { maxKeys: 4 }),
    ),
  }));
  const spacing = fc.constantFrom(0, 1, "\t", "\n");
  fc.assert(
    fc.property(value, spacing, fc.infiniteStream(fc.nat()), (written, space, choices) => {
      const json = `\n ${JSON.stringify(written, null, space)}\n`;
      if (space === "\n") return;
      const path = pathInto(written, choices);
      const { documents: [document] } = parseYamlDocuments(json);
      if (document === undefined || document.faults.length > 0) return;
      assertEquals(new JsonPlaces(json).lineOf(path), document.lineOfPath(path));
    }),
    { numRuns: 500 },
  );
});

/** Leads somewhere, at last perhaps to what is not there. */
function pathInto(value: unknown, choices: Iterator<number>): string[] {
  const keys = typeof value === "object" && value !== null ? Object.keys(value) : [];
  const choice: number = choices.next().value;
  const key = keys[choice % (keys.length + 1)];
  if (key === undefined) return choice % 3 === 0 ? ["absent"] : [];
  return [key, ...pathInto((value as Record<string, unknown>)[key], choices)];
}

Deno.test(
  "a field that is there twice is the last one, however its name is written",
  { permissions: "none" },
  () => {
    const text = '{\n"a": 1,\n"b": {"a": 2},\n"\\u0061": [\n3,\n4]\n}';
    const places = new JsonPlaces(text);
    assertEquals([places.lineOf(["a"]), places.lineOf(["a", "1"]), places.lineOf(["a", "9"])], [3, 5, 3]);
    assertEquals([places.lineOf([]), places.lineOf(["none"]), places.lineOf(["b", "a", "x"])], [0, 0, 2]);
  },
);
