import { assertEquals } from "@std/assert";
import { checkLayers } from "./check_layers.ts";
import { isPurePath, LAYERS, layerViolations } from "./layers.ts";
import { projectFiles, ROOT } from "./project_files.ts";

Deno.test("rows 1 to 3 are pure, their tests are free", { permissions: "none" }, () => {
  assertEquals(
    ["lib/model/ip.ts", "lib/model/ip_test.ts", "lib/kernel/exec.ts", "lib/config/file/load.ts"].map(
      isPurePath,
    ),
    [
      true,
      false,
      false,
      false,
    ],
  );
});

Deno.test("an import against the direction is caught with its line", { permissions: "none" }, () => {
  const cases: readonly (readonly [string, string, readonly string[]])[] = [
    ["lib/model/ip.ts", 'import { a } from "./names.ts";\n', []],
    ["lib/model/ip.ts", '\nimport { a } from "../config/types.ts";\n', [
      "2: of row 1 imports lib/config/types.ts of row 2",
    ]],
    ["lib/model/ip.ts", 'import type {\n  A,\n  B,\n} from "../sync/bounded_frequency_runner.ts";\n', [
      "1: of row 1 imports lib/sync/bounded_frequency_runner.ts of row 6",
    ]],
    ["lib/backend/iptables/plan/plan.ts", 'const x = 1;\nconst y = await import("../apply/proxier.ts");\n', [
      "2: of row 3 imports lib/backend/iptables/apply/proxier.ts of row 5",
    ]],
    ["lib/backend/userspace/apply/proxier.ts", 'import { x } from "../../iptables/store/store.ts";\n', []],
    ["lib/backend/iptables/apply/proxier.ts", 'import { x } from "../../userspace/apply/portals.ts";\n', [
      "1: of backend iptables imports lib/backend/userspace/apply/portals.ts of backend userspace",
    ]],
    ["lib/backend/ipvs/apply/proxier.ts", 'import { x } from "../../iptables/apply/proxier.ts";\n', []],
    ["lib/backend/nftables/apply/proxier.ts", 'import { x } from "../../iptables/apply/proxier.ts";\n', [
      "1: of backend nftables imports lib/backend/iptables/apply/proxier.ts of backend iptables",
    ]],
    ["lib/sync/x.ts", 'import "../../tests/support/skip.ts";\n', [
      "1: imports tests/support/skip.ts, which belongs to no row",
    ]],
    ["lib/model/x.ts", 'import { x } from "./ip_test.ts";\n', ["1: imports the test lib/model/ip_test.ts"]],
    ["lib/model/x.ts", '// import { x } from "../cli/flags.ts";\n/* import "../cli/flags.ts" */\n', []],
    ["lib/model/x.ts", 'export const a = 1;\nexport { b } from "./ip.ts";\n', []],
    ["lib/model/x.ts", 'export { b } from "./ip.ts";\n', [
      "1: is a barrel file: import from the files themselves",
    ]],
    ["lib/model/x.ts", 'export const a = 1;\nexport * from "./ip.ts";\n', [
      "1: is a barrel file: import from the files themselves",
    ]],
    ["lib/other/x.ts", "", ["1: belongs to no row of the table in tools/layers.ts"]],
    ["lib/model/x_test.ts", 'import { a } from "../cli/flags.ts";\n', []],
    ["mod.ts", 'export { a } from "./lib/model/ip.ts";\n', []],
  ];
  for (const [path, source, expected] of cases) {
    const found = layerViolations(path, source).map(({ line, message }) => `${line}: ${message}`);
    assertEquals(found, [...expected], source);
  }
});

Deno.test("the project's own imports follow the direction", async () => {
  assertEquals(await checkLayers(), []);
});

Deno.test("docs/architecture.md shows the rows of the table", async () => {
  const text = await Deno.readTextFile(`${ROOT}/docs/architecture.md`);
  const shown = [...text.matchAll(/^\| (\d)\s+\| (`[^|]+)\|/gm)].map(([, row, files]) => [
    Number(row),
    [...(files ?? "").matchAll(/`([^`]+)`/g)].flatMap(([, words]) => eachOf(words ?? "")).toSorted(),
  ]);
  const wanted = Map.groupBy(LAYERS, ({ row }) => row);
  assertEquals(
    shown,
    [...wanted].map(([row, layers]) => [row, layers.flatMap(({ paths }) => paths).map(shortened).toSorted()]),
  );
});

/** `backend/{a,b}` of the documentation, one by one. */
function eachOf(words: string): string[] {
  const [, before = words, inner, after = ""] = /^([^{]*)\{([^}]*)\}(.*)$/.exec(words) ?? [];
  return inner === undefined ? [words] : inner.split(",").map((one) => before + one + after);
}

function shortened(path: string): string {
  return path.replace(/^lib\//, "").replace(/\/$/, "");
}

Deno.test("every folder of the table is there", async () => {
  const files = await projectFiles();
  const empty = LAYERS.flatMap(({ paths }) => paths).filter((path) =>
    !files.some((file) => file.startsWith(path))
  );
  assertEquals(empty, []);
});

const MOST_FILES_WITHOUT_WORDS = 10;

Deno.test("a folder of many files has a README that names only files that are there", async () => {
  const files = await projectFiles();
  const folderOf = (path: string): string => path.split("/").slice(0, -1).join("/");
  const byFolder = Map.groupBy(files.filter((path) => /^(lib|tests|tools)\/.*\.ts$/.test(path)), folderOf);
  const problems: string[] = [];
  for (const [folder, members] of byFolder) {
    if (members.length <= MOST_FILES_WITHOUT_WORDS) continue;
    // A mode's folders are described in the mode's README.
    if (/^lib\/backend\/[^/]+\/[^/]+$/.test(folder)) continue;
    const readme = `${folder}/README.md`;
    if (!files.includes(readme)) {
      problems.push(`${folder} has ${members.length} files and no README.md`);
      continue;
    }
    const names = members.map((path) => path.slice(folder.length + 1).replace(/\.ts$/, ""));
    const text = await Deno.readTextFile(`${ROOT}/${readme}`);
    // A mode's own README tells of its rules as well, and the cluster's of the programs that it starts.
    if (/^lib\/backend\/[^/]+$/.test(folder) || folder === "tests/cluster") continue;
    for (const [, word = ""] of text.matchAll(/`([a-z_]+\*?)`/g)) {
      const pattern = new RegExp(`^${word.replace("*", ".*")}$`);
      if (!names.some((name) => pattern.test(name))) problems.push(`${readme} names ${word}`);
    }
  }
  assertEquals(problems, []);
});

Deno.test("files for browsers are checked with the links and options that all others are", async () => {
  const read = async (path: string) => JSON.parse(await Deno.readTextFile(`${ROOT}/${path}`));
  const [all, browser] = [await read("deno.json"), await read("tools/browser.json")];
  assertEquals(browser.links, all.links.map((path: string) => `.${path}`));
  const { lib: _lib, checkJs: _checkJs, ...options } = browser.compilerOptions;
  assertEquals(
    options,
    Object.fromEntries(Object.keys(options).map((name) => [name, all.compilerOptions[name]])),
  );
});
