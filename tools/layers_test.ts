import { assertEquals } from "@std/assert";
import { isPurePath, LAYERS } from "./layers.ts";
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

/** Expands `backend/{a,b}` of the documentation. */
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
    // A mode's README also describes its rules, and the cluster's the programs that it starts.
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
