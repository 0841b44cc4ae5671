import { assert, assertEquals } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { toEnd } from "../../text/steps.ts";
import { JsonPlaces, readLongJson } from "./manifest_json.ts";
import { decodeDocument, type ManifestItem, segmentsOf } from "./manifest_items.ts";
import { readingOf, readManifest } from "./manifest_text.ts";
import { parseYamlDocuments } from "../../config/yaml_documents.ts";

const NONE = { permissions: "none" } as const;

Deno.test("values are counted, not what texts look like", NONE, () => {
  const text = `{"a": "[[[,,,{{{\\",,,", \n"b": [1, {}, ""],\n"c": {"d": 1}}`;
  const line = (most?: number, of = text): number | undefined => toEnd(readLongJson(of, most))?.problem?.line;
  assertEquals([line(9), line(8), line(4), line(2)], [undefined, 2, 1, 0]);
  assertEquals(line(undefined, `[${"1,".repeat(5_000_001)}`), 0);
  assertEquals(line(undefined, `["${",".repeat(5_000_001)}"]`), undefined);
});

/** Items of the text when the runtime's parser reads it. */
function whole(text: string): readonly ManifestItem[] {
  const items = toEnd(decodeDocument(JSON.parse(text), 0, () => -1));
  if (items.every(({ refusal }) => refusal === undefined)) return items;
  const places = new JsonPlaces(text);
  return toEnd(decodeDocument(JSON.parse(text), 0, (path) => places.lineOf(segmentsOf(path))));
}

/** Null if the text cannot be read item by item. */
function cut(text: string): readonly ManifestItem[] | null {
  return toEnd(readLongJson(text))?.items ?? null;
}

function service(name: string, port: unknown = 80): object {
  const spec = { clusterIP: "10.96.0.1", ports: [{ port }] };
  return { apiVersion: "v1", kind: "Service", metadata: { name }, spec };
}

const LIST = { kind: "List", apiVersion: "v1" };
const A = JSON.stringify(service("a"));

const TEXTS: readonly [what: string, text: string, isCut: boolean][] = [
  ["no items", `{"kind":"List","items":[ \n]}`, true],
  ["items first", `{"items":[${A},${A}],"kind":"List"}`, true],
  ["items of one kind", `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"x"}}]}`, true],
  ["lists in texts", `{"kind":"List","metadata":{"items":[1,2]},"items":["],[",${A}]}`, true],
  ["a list inside", JSON.stringify({ ...LIST, items: [{ ...LIST, items: [service("b", "x")] }, 1] }), true],
  ["items twice", `{"kind":"List","items":[${A}],"items":[]}`, false],
  ["items twice, in other letters", `{"kind":"List","items":[${A}],"\\u0069tems":[]}`, false],
  ["items that are taken back", `{"kind":"List","items":[${A}],"items":null}`, false],
  ["a kind without lists", `{"kind":"PodList","apiVersion":"v1","items":[{},{}]}`, false],
  ["items of an object", `{"kind":"Service","apiVersion":"v1","items":[${A}]}`, false],
  ["items in a list", `["items",[1]]`, false],
  ["items one level too deep", `{"a":{"kind":"List","items":[${A}]}}`, false],
];
for (const [what, text, isCut] of TEXTS) {
  Deno.test(`a text with ${what} is read as it is as a whole`, NONE, () => {
    const items = cut(text);
    assertEquals(items !== null, isCut);
    if (items !== null) assertEquals(items, whole(text));
  });
}

const BROKEN: readonly string[] = [
  `{"kind":"List","items":[${A},]}`,
  `{"kind":"List","items":[,${A}]}`,
  `{"kind":"List","items":[${A} ${A}]}`,
  `{"kind":"List","items":[${A}}}`,
  `{"kind":"List","items":[${A}`,
  `{"kind":"List","items" [${A}]}`,
  `{"kind":"List","items":[${A}]} x`,
  `{"kind":"List","items":[${A}]]`,
  `{"kind":"List","items":[{"a":"\n"}]}`,
  `{"kind":"List","items":["a]}`,
];
Deno.test("what is no JSON is left to the runtime's parser, which tells what is wrong", NONE, () => {
  for (const text of BROKEN) assertEquals(cut(text), null, text);
});

Deno.test("any list is read item by item as it is as a whole, lines of refusals included", NONE, () => {
  const item = fc.oneof(
    fc.string({ unit: fc.constantFrom(...'[]{},:"\\ \nab') }).map((name) => service(name)),
    fc.constantFrom(80, "x", null).map((port) => service("web", port)),
    fc.jsonValue(),
    fc.array(fc.constant(service("in")), { maxLength: 2 }).map((items) => ({ ...LIST, items })),
  );
  const more = fc.constantFrom({}, { metadata: { resourceVersion: "" } }, { a: { items: [[], [1]] } });
  const spacing = fc.constantFrom(0, 1, "\t");
  fc.assert(
    fc.property(fc.array(item, { maxLength: 5 }), more, spacing, (items, fields, space) => {
      const text = `\n ${JSON.stringify({ ...fields, ...LIST, items, ...fields }, null, space)}\n`;
      assertEquals(cut(text), whole(text));
    }),
    { numRuns: 1_000 },
  );
});

Deno.test(
  "a long list is read in steps, each of which is little of it, with the lines of its faults",
  NONE,
  () => {
    const items = Array.from(
      { length: 8_000 },
      (_, index) => service(`s${index}`, index === 7_000 ? "x" : 80),
    );
    const text = JSON.stringify({ ...LIST, items }, null, 1);
    assert(text.length > 2 ** 20);
    const reading = readingOf(text, { json: true });
    let steps = 0;
    for (;;) {
      const step = reading.next();
      steps++;
      if (step.done !== true) continue;
      const { items, problem } = step.value;
      const refused = items.filter(({ refusal }) => refusal !== undefined);
      assertEquals([items.length, problem, refused.length], [8_000, undefined, 1]);
      assertEquals(refused[0]?.refusal?.replace(/:.*/, ""), "items[7000].spec.ports[0].port");
      assertEquals(text.split("\n")[refused[0]!.line - 1]?.trim(), '"port": "x"');
      assertEquals(text.split("\n")[items[7_999]!.line - 1], "  {");
      break;
    }
    assert(steps > 8_000, `${steps} steps`);
    const { items: good } = readManifest(text.replace('"x"', "80"), { json: true });
    assertEquals([good.length, good.at(-1)?.line], [8_000, 0]);
    // A comma that is missing far behind.
    const { problem } = readManifest(`${text.slice(0, -4)},]}`, { json: true });
    assertEquals(problem?.line, text.split("\n").length - 1);
  },
);

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

/** A random path into the value, whose last step may not exist. */
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
