import { assert, assertEquals } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { toEnd } from "../../text/steps.ts";
import { decodeDocument, linesOfJson, type ManifestItem, splitJsonList } from "./manifest_items.ts";
import { TooManyValuesError } from "./json_list.ts";
import { readingOf, readManifest } from "./manifest_text.ts";

// The YAML package reads these two.
const NONE = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };

Deno.test("values are counted, not what texts look like", NONE, () => {
  const text = `{"a": "[[[,,,{{{\\",,,", \n"b": [1, {}, ""],\n"c": {"d": 1}}`;
  const at = (most?: number, of = text): string | null => {
    try {
      toEnd(splitJsonList(of, most));
      return null;
    } catch (error) {
      assert(error instanceof TooManyValuesError);
      return of.slice(error.at, error.at + 3);
    }
  };
  assertEquals([at(9), at(8), at(4), at(1)], [null, '{"d', ", {", '{"a']);
  assertEquals(at(undefined, `["${",".repeat(5_000_001)}"]`), null);
  const { problem } = readManifest(`[\n${"1,".repeat(5_000_001)}`, { json: true });
  assertEquals([problem?.line, problem?.message], [2, "more than 5000000 values"]);
});

/** The same text read by the runtime's parser; a line for refused items only. */
function whole(text: string): readonly ManifestItem[] {
  return toEnd(decodeDocument(JSON.parse(text), 0, linesOfJson(text, 0))).map(placed);
}

function placed(item: ManifestItem): ManifestItem {
  return item.refusal === undefined ? { ...item, line: 0, document: 0 } : { ...item, document: 0 };
}

/** Null if the text cannot be read item by item. */
function cut(text: string): readonly ManifestItem[] | null {
  if (!isCut(text)) return null;
  const { items } = readManifest(text, { json: true });
  return items.map((item) => placed({ ...item, line: item.line - 1 }));
}

function isCut(text: string): boolean {
  return toEnd(splitJsonList(text)) !== null;
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
  for (const text of BROKEN) {
    const { items, problem } = readManifest(text, { json: true });
    assertEquals([items, problem?.document], [[], 1], text);
  }
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
    assertEquals([good.length, good.at(-1)?.line], [8_000, text.split("\n").lastIndexOf("  {") + 1]);
    // A comma that is missing far behind.
    const { problem } = readManifest(`${text.slice(0, -4)},]}`, { json: true });
    assertEquals(problem?.line, text.split("\n").length - 1);
  },
);
