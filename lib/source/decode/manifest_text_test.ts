import { assert, assertEquals, assertStrictEquals, assertStringIncludes } from "@std/assert";
import { startWork } from "../../../tests/support/spent.ts";
import { type Manifest, readingOf, readManifest } from "./manifest_text.ts";

// The YAML package reads these two.
const YAML_ENV = { env: ["LOG_TOKENS", "LOG_STREAM"] };

function test(name: string, fn: () => void): void {
  Deno.test(name, { permissions: YAML_ENV }, fn);
}

function service(name: string, port = "80"): string {
  return `apiVersion: v1\nkind: Service\nmetadata:\n  name: ${name}\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n    - port: ${port}\n`;
}

/** `document:line key`, and `!` if refused. */
function places({ items }: Manifest): string[] {
  return items.map(({ key, line, document, refusal }) => `${document}:${line} ${key}${refusal ? "!" : ""}`);
}

test("documents and lines are counted through separators, comments and empty documents", () => {
  const text = `# header\n---\n---\n${service("a")}--- # the second\n${
    service("b")
  }---\n\n# only words\n---\n${service("c", "0")}`;
  assertEquals(places(readManifest(text)), [
    "1:4 Service default/a",
    "2:13 Service default/b",
    "3:32 Service default/c!",
  ]);
});

test("Windows line ends, a byte order mark and a missing last line end do not matter", () => {
  const text = "\uFEFF" + `${service("a")}---\n${service("b")}`.replaceAll("\n", "\r\n").trimEnd();
  assertEquals(places(readManifest(text)), ["1:1 Service default/a", "2:10 Service default/b"]);
});

test("a separator inside a text is one only at the start of a line", () => {
  const text = service("a").replace(
    "metadata:",
    "metadata:\n  annotations:\n    note: |\n      ---\n      x --- y\n",
  );
  assertEquals(places(readManifest(text)), ["1:1 Service default/a"]);
});

test("directives and document ends are understood", () => {
  const text = `%YAML 1.2\n---\n${service("a")}...\n%YAML 1.2\n---\n${service("b")}`;
  assertEquals(places(readManifest(text)).map((place) => place.split(" ").at(-1)), [
    "default/a",
    "default/b",
  ]);
});

test("anchors, aliases and merge keys are resolved, and a fault behind one is placed", () => {
  const text = "apiVersion: v1\nkind: List\nitems:\n  - &first\n    apiVersion: v1\n    kind: Service\n" +
    "    metadata: {name: a}\n    spec: &spec {clusterIP: 10.0.0.1, ports: [{port: 80}]}\n" +
    "  - <<: *first\n    metadata: {name: b}\n" +
    "  - apiVersion: v1\n    kind: Service\n    metadata: {name: c}\n    spec:\n      <<: *spec\n      type: Nodeport\n";
  const manifest = readManifest(text);
  assertEquals(places(manifest), [
    "1:5 Service default/a",
    "1:9 Service default/b",
    "1:16 Service default/c!",
  ]);
});

test("JSON is read as JSON, and lines are looked up only for what is refused", () => {
  const good = { apiVersion: "v1", kind: "Service", metadata: { name: "a" }, spec: { clusterIP: "None" } };
  const bad = { ...good, metadata: { name: "b" }, spec: { clusterIP: "x" } };
  assertEquals(places(readManifest(JSON.stringify(good), { json: true })), ["1:0 Service default/a"]);
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items: [good, bad] }, null, 1);
  const lines = list.split("\n");
  const wanted = lines.findIndex((line) => line.includes('"clusterIP": "x"')) + 1;
  for (const json of [true, false]) {
    assertEquals(places(readManifest(list, { json })).at(-1), `1:${wanted} Service default/b!`);
  }
});

test("YAML in braces is still YAML, unless the file must be JSON", () => {
  const text = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}\n";
  assertEquals(places(readManifest(text)), ["1:1 Service default/a"]);
  assertEquals(readManifest(text, { json: true }).problem?.line, 1);
});

test("an unchanged document is not read again, wherever it moved", () => {
  const before = readManifest(`${service("a")}---\n${service("b")}`);
  const after = readManifest(`# one line more\n---\n${service("new")}---\n${service("b")}`, {
    previous: before,
  });
  const objectsOf = (manifest: Manifest, key: string): unknown =>
    manifest.items.find((item) => item.key === key)?.objects;
  assertStrictEquals(objectsOf(after, "Service default/b"), objectsOf(before, "Service default/b"));
  assertEquals(places(after), ["1:3 Service default/new", "2:12 Service default/b"]);
});

test("nesting without end is a problem of the file, not a crash", () => {
  const { problem } = readManifest("a: ".concat("[".repeat(100_000)));
  assert(problem !== undefined);
  assertEquals(problem.line, 1);
  const deep = `{"apiVersion": "v1", "kind": ${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
  const { items } = readManifest(deep, { json: true });
  assertStringIncludes(items[0]?.refusal ?? "", "kind: must be");
});

test("keys that meet object prototypes are only keys", () => {
  const { items } = readManifest("__proto__: {kind: Service}\nconstructor: 5\napiVersion: v1\n");
  assertStringIncludes(items[0]?.refusal ?? "", "kind: is required");
  assertStringIncludes(
    readManifest("kind: toString\napiVersion: v1\n").items[0]?.refusal ?? "",
    "kind: must be",
  );
});

test("a ServiceCIDR has a name and no namespace", () => {
  const { items } = readManifest(
    "kind: ServiceCIDR\napiVersion: networking.k8s.io/v1\nmetadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16]}\n",
  );
  assertEquals(items.map(({ key, object, objects, exclusion }) => [key, object, objects, exclusion]), [[
    "ServiceCIDR kubernetes",
    "ServiceCIDR kubernetes",
    [{ kind: "ServiceCIDR", name: "kubernetes", cidrs: ["10.96.0.0/16"] }],
    undefined,
  ]]);
});

const REPEATED: readonly [what: string, text: string, line: number][] = [
  ["in a block", `${service("a")}---\n${service("b")}  type: ClusterIP\n  type: NodePort\n`, 19],
  ["in a flow", `{a: 1,\n b: 2, 'a': 3}\n`, 2],
  ["that is no text", "a:\n  ? 1\n  : x\n  ? 1\n  : y\n", 4],
  ["deep inside a list", "a:\n  - b:\n    - {c: 1, c: 2}\n", 3],
];
for (const [what, text, line] of REPEATED) {
  test(`a key that a map has twice is told with its line: ${what}`, () => {
    const { items, problem } = readManifest(text);
    assertEquals([items, problem?.line, problem?.message], [[], line, "Map keys must be unique"]);
  });
}

test("a map of 25,000 keys takes no minutes", () => {
  const data = Array.from({ length: 25_000 }, (_, index) => `  key-${index}: x\n`).join("");
  const spentMs = startWork();
  const { items, problem } = readManifest(`${service("a")}---\nkind: ConfigMap\ndata:\n${data}`);
  assertEquals([items.length, problem], [2, undefined]);
  assert(spentMs() < 20_000, "each key was compared with all others");
});

test("aliases without an end are refused before they are followed", () => {
  const { problem } = readManifest(`a: &a x\nb: [${"*a ,".repeat(20_000)}]\n`);
  assertEquals([problem?.line, problem?.message], [2, "more than 1000 aliases"]);
});

test("aliases that are too many for what they stand for are refused without following each", () => {
  for (const anchor of ["1", `[${"1,".repeat(100)}1]`]) {
    const spentMs = startWork();
    const { problem } = readManifest(`a: &a ${anchor}\nb: [${"*a,".repeat(900)}1]\n`);
    assertStringIncludes(problem?.message ?? "", "Excessive alias count");
    // The parser counts what each stands for.
    assert(spentMs() < 2_000);
  }
});

test("a file has so many documents at most, and an error says where it has more", () => {
  const { items, problem } = readManifest(`${service("a")}${"---\n".repeat(250_000)}`);
  const lines = service("a").split("\n").length;
  assertEquals([items, problem?.line, problem?.message], [[], lines + 249_999, "more than 250000 documents"]);
});

test("one document is read in many steps, none of which is most of the work", () => {
  const endpoints = Array.from(
    { length: 1_000 },
    (_, index) =>
      `- addresses: [10.0.${index >> 8}.${
        index & 255
      }]\n  conditions: {ready: true, serving: true, terminating: false}\n` +
      `  nodeName: node-${index}\n  zone: eu-1a\n  targetRef: {kind: Pod, name: web-${index}, namespace: default}\n`,
  );
  const slice = "kind: EndpointSlice\napiVersion: discovery.k8s.io/v1\naddressType: IPv4\n" +
    `metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\nports: [{port: 80}]\nendpoints:\n`;
  const reading = readingOf(slice + endpoints.join(""));
  let steps = 0;
  for (;;) {
    const step = reading.next();
    if (step.done === true) {
      assertEquals([step.value.problem, step.value.items.length], [undefined, 1]);
      break;
    }
    steps++;
  }
  assert(steps > 30, `${steps} steps`);
});
