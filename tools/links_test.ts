import { assert, assertEquals } from "@std/assert";
import { brokenLinks, linksOf } from "./links.ts";
import { projectFiles, ROOT } from "./project_files.ts";

Deno.test("every link of the project's documentation leads somewhere", async () => {
  const files = await projectFiles();
  const pages = files.filter((path) => path.endsWith(".md"));
  const texts = new Map(
    await Promise.all(
      pages.map(async (
        path,
      ): Promise<[string, string]> => [path, await Deno.readTextFile(`${ROOT}/${path}`)]),
    ),
  );
  assert([...texts.values()].flatMap(linksOf).length > 50);
  assertEquals(brokenLinks(texts, files), []);
  assertEquals(brokenLinks(new Map([["a.md", "# A\n[x](#b)"]]), ["a.md"]).length, 1);
});

Deno.test("every attack of docs/security.md has its tests, and they exist", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/security.md`);
  const rows = page.split("\n").filter((line) => line.startsWith("| ")).map((line) =>
    line.split("|").slice(1, -1)
  );
  const attacks = rows.filter((cells) => cells.length === 6 && !/^ (asset|-+) /.test(cells[0] ?? ""));
  assert(attacks.length > 20, `${attacks.length}`);
  const problems = await Promise.all(attacks.map(async (cells) => {
    const named = [...(cells[4] ?? "").matchAll(/`([^`]+_test\.ts)` "([^"]+)"/g)];
    if (named.length === 0) return [`${cells[0]}: no test`];
    const known = await Promise.all(named.map(async ([, file = "", name = ""]) => {
      const text = await Deno.readTextFile(`${ROOT}/${file}`).catch(() => "");
      // The quoted name; for a name with an inserted value, the part before it.
      const isThere = [`"${name}"`, `\`${name}\``, `\`${name}\${`].some((title) => text.includes(title));
      return isThere ? [] : [`${file}: ${name}`];
    }));
    return known.flat();
  }));
  assertEquals(problems.flat(), []);
});

Deno.test("every page that the code names is there, and docs/index.md leads to every page", async () => {
  const files = await projectFiles();
  const code = files.filter((path) => path.endsWith(".ts") && path !== "tools/links_test.ts");
  const missing = await Promise.all(["deno.json", ".ci/run", ...code].map(async (file) => {
    const text = await Deno.readTextFile(`${ROOT}/${file}`);
    const named = [...text.matchAll(/(?<![\w./])docs\/[\w-]+\.(?:md|svg)/g)].map(([page]) => page);
    return named.filter((page) => !files.includes(page)).map((page) => `${file}: ${page}`);
  }));
  assertEquals(missing.flat(), []);
  const targets = linksOf(await Deno.readTextFile(`${ROOT}/docs/index.md`)).map((target) =>
    `docs/${target.split("#")[0]}`
  );
  const pages = files.filter((path) => /^docs\/.*\.md$/.test(path) && path !== "docs/index.md");
  assertEquals(pages.filter((page) => !targets.includes(page)), []);
});
