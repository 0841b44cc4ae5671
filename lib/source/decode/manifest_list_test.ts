import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { stringify } from "@std/yaml";
import { toEnd } from "../../text/steps.ts";
import fc from "../../../tests/support/fast_check.ts";
import { YAML_LIMITS } from "../../config/yaml_documents.ts";
import { type ManifestItem, readYaml, splitList } from "./manifest_items.ts";
import { type Manifest, readManifest } from "./manifest_text.ts";

// The YAML package reads these two.
const permissions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

function service(name: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  const spec = { clusterIP: "10.96.0.1", ports: [{ port: 80, protocol: "TCP" }] };
  return { apiVersion: "v1", kind: "Service", metadata: { name, ...more }, spec };
}

/** A list as `kubectl get -o yaml` prints it, fields by their names. */
function listOf(items: readonly unknown[], arrayIndent = false): string {
  return stringify({ apiVersion: "v1", items, kind: "List", metadata: { resourceVersion: "" } }, {
    arrayIndent,
  });
}

/** Items of the text when it is read as a whole, with lines and documents counted as in a file. */
function whole(text: string): ManifestItem[] {
  return toEnd(readYaml(text)).items.map((item) => ({
    ...item,
    line: item.line < 0 ? 0 : item.line + 1,
    document: 1,
  }));
}

Deno.test("a list is cut at its items, wherever its other fields are", { permissions }, () => {
  for (const arrayIndent of [false, true]) {
    const text = listOf([service("a"), service("b")], arrayIndent);
    const list = toEnd(splitList(text));
    assertEquals(list?.head, { kind: "List", apiVersion: "v1" });
    assertEquals(list?.items.map(({ line }) => line), [2, 11]);
    assertEquals(
      list?.items.map(({ text }) => text).join(""),
      text.slice(text.indexOf("items:\n") + 7, text.indexOf("kind: List")),
    );
  }
});

const READ_ALIKE: readonly [what: string, text: string, isSplit: boolean][] = [
  [
    "comments and empty lines",
    `# all\napiVersion: v1\nkind: List\nitems: # these\n\n# one\n- {kind: Service}\n# two\n\n- {kind: Pod}\n`,
    true,
  ],
  ["line ends of Windows", listOf([service("a"), service("b")]).replaceAll("\n", "\r\n"), true],
  [
    "texts that look like items",
    listOf([service("a", { annotations: { note: "- x\n- y\n\nitems:\n  - z\n" } }), service("b")]),
    true,
  ],
  [
    "a text without indentation",
    `kind: List\nitems:\n- kind: Service\n  note: "a\n- b"\n- kind: Pod\n`,
    false,
  ],
  [
    "a ServiceList",
    `apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: a}\n  spec: {clusterIP: x}\n`,
    true,
  ],
  ["an anchor for another item", `kind: List\nitems:\n- &a {kind: Service}\n- *a\n`, false],
  [
    "an item that is a list",
    `kind: List\nitems:\n- - a\n  - b\n- kind: List\n  items:\n  - kind: Service\n`,
    true,
  ],
  ["an empty item", `kind: List\nitems:\n-\n- kind: Service\n`, true],
  ["items in brackets", `kind: List\nitems: [{kind: Service}]\n`, false],
  ["items twice", `kind: List\nitems:\n- a\nitems:\n- b\n`, false],
  ["items in quotes besides", `kind: List\n"items": []\nitems:\n- kind: Service\n`, false],
  ["no kind of a list", `kind: Deployment\nitems:\n- kind: Service\n`, false],
  ["uneven indentation", `kind: List\nitems:\n  - kind: Service\n - kind: Service\n`, false],
  ["an item that is broken", `kind: List\nitems:\n- kind: Service\n- kind: [\n`, false],
  ["a key that an item has twice", `kind: List\nitems:\n- kind: Service\n- kind: a\n  kind: b\n`, false],
  ["an unknown field behind", `kind: List\nitems:\n- kind: Service\nmore: [\n`, false],
];
for (const [what, text, isSplit] of READ_ALIKE) {
  Deno.test(`a list with ${what} is read as it is as a whole`, { permissions }, () => {
    const { items, parts, problem } = readManifest(text);
    const expected = toEnd(readYaml(text));
    assertEquals(problem?.message, expected.problem?.message);
    assertEquals(problem?.line, expected.problem === undefined ? undefined : expected.problem.line + 1);
    if (problem === undefined) assertEquals(items, whole(text));
    const separate = [...parts.keys()].filter((key) => key.startsWith("- {")).length;
    assertEquals(separate === toEnd(splitList(text))?.items.length, isSplit);
  });
}

Deno.test("any list is read item by item as it is as a whole", { permissions }, () => {
  const text = fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(..."-#:&*|>'\"[{\n a") }));
  const item = fc.oneof(
    fc.record({
      name: fc.constantFrom("a", "b", "c", "D", ""),
      note: text,
      deep: fc.array(text, { maxLength: 3 }),
    })
      .map(({ name, note, deep }) => service(name, { annotations: { note }, deep })),
    fc.constantFrom<unknown>({ kind: "Pod" }, null, "x", [], { apiVersion: "v1", kind: "Service" }),
  );
  fc.assert(
    fc.property(fc.array(item, { maxLength: 5 }), fc.boolean(), (items, arrayIndent) => {
      const written = listOf(items, arrayIndent);
      assertEquals(readManifest(written).items, whole(written));
      assertEquals(toEnd(splitList(written))?.items.length ?? 0, items.length);
    }),
    { numRuns: 300 },
  );
});

Deno.test("an edit of a list costs the items it touches", { permissions }, () => {
  const before = readManifest(listOf([service("a"), service("b"), service("c")]));
  const after = readManifest(listOf([service("new"), service("a"), service("b")]), { previous: before });
  const objectOf = ({ items }: Manifest, name: string) =>
    items.find(({ key }) => key === `Service default/${name}`)?.objects[0];
  for (const name of ["a", "b"]) assertStrictEquals(objectOf(after, name), objectOf(before, name));
  assertEquals(after.items.map(({ line }) => line), [3, 12, 21]);
});

Deno.test(
  "a refused item is reported with its place in the list, and with its new one once that has changed",
  {
    permissions,
  },
  () => {
    const bad = { ...service("bad"), spec: { clusterIP: "x" } };
    const before = readManifest(listOf([bad]));
    assertEquals(before.items[0]?.refusal?.startsWith("items[0].spec.clusterIP"), true);
    const after = readManifest(listOf([service("a"), bad]), { previous: before });
    assertEquals(after.items[1]?.refusal, before.items[0]?.refusal?.replace("items[0]", "items[1]"));
    assertEquals(after.items[1]?.line, 17);
  },
);

Deno.test(
  "a list may be larger than an object; what is wrong in one is reported with its line",
  { permissions },
  () => {
    const note = "x".repeat(YAML_LIMITS.characters / 8);
    const items = Array.from({ length: 10 }, (_, index) => service(`s${index}`, { note }));
    const text = listOf(items);
    assert(text.length > YAML_LIMITS.characters);
    assertEquals(readManifest(text).items.length, 10);
    const { problem } = readManifest(text.replace("name: s7", "name: [s7"));
    assertEquals(problem?.line, text.slice(0, text.indexOf("name: s7")).split("\n").length + 1);
  },
);
