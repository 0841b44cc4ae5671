import { assert, assertEquals } from "@std/assert";
import { ROOT } from "../tools/project_files.ts";
import { tempFolder } from "./support/temp_files.ts";

const PAGE = "docs/library.md";
/** What is another at each run: the folder of an example's files. */
const FOLDER = /\/tmp\/[0-9a-f]+\//g;

/** The lines that a page says its programs print: of each block behind `It prints:`. */
function promisedLines(markdown: string): string[] {
  return [...markdown.matchAll(/It prints:\n\n```text\n([^]*?)```/g)]
    .flatMap(([, block = ""]) => block.trim().split("\n"));
}

Deno.test("every program of the library's documentation runs, and prints what the page says", async () => {
  // The examples leave their files to the reader.
  const temporary = await Deno.makeTempDir({ prefix: "kproxy-examples-" });
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    // What makes the examples up needs to read and write files; a right to more would hide that one needs it.
    args: [
      "test",
      "--doc",
      "--no-check",
      "--allow-read",
      "--allow-write",
      "--ignore-env",
      "--no-prompt",
      "mod.ts",
      PAGE,
    ],
    cwd: ROOT,
    env: { NO_COLOR: "1", TMPDIR: temporary },
    stdin: "null",
  }).output().finally(() => Deno.remove(temporary, { recursive: true }));
  const said = new TextDecoder().decode(stdout).replaceAll(temporary, "/tmp");
  assert(code === 0, said + new TextDecoder().decode(stderr));
  const page = await Deno.readTextFile(`${ROOT}/${PAGE}`);
  const promised = promisedLines(page);
  const printed = new Set(said.replaceAll(FOLDER, "/").split("\n"));
  assertEquals(promised.filter((line) => !printed.has(line.replaceAll(FOLDER, "/"))), []);
  assert(promised.length >= 8);
  const programs = [page, await Deno.readTextFile(`${ROOT}/mod.ts`)].join("\n").match(/```ts\n/g)?.length;
  assertEquals(/^ok \| (\d+) passed/m.exec(said)?.[1], `${programs}`);
});

Deno.test("a program in a folder of its own gets the library as the page says", async () => {
  const page = await Deno.readTextFile(`${ROOT}/${PAGE}`);
  const [, configuration = ""] = /```json\n([^]*?)```/.exec(page) ?? [];
  const program = [...page.matchAll(/```ts\n([^]*?)```/g)].map(([, text = ""]) => text)
    .find((text) => text.includes("rulesFor"));
  assert(program !== undefined);
  await using temporary = await tempFolder();
  const folder = temporary.path;
  await Deno.symlink(ROOT, `${folder}/kproxy`);
  await Deno.mkdir(`${folder}/mine`);
  await Deno.copyFile(`${ROOT}/deno.lock`, `${folder}/mine/deno.lock`);
  await Deno.writeTextFile(`${folder}/mine/deno.json`, configuration);
  await Deno.writeTextFile(`${folder}/mine/preview.ts`, program);
  for (const own of [[], ["--config=../kproxy/deno.json"]]) {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--cached-only", "--ignore-env", "--no-prompt", ...own, "preview.ts"],
      cwd: `${folder}/mine`,
      env: { NO_COLOR: "1" },
      stdin: "null",
    }).output();
    const said = new TextDecoder().decode(stdout);
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    assert(page.includes(said), said);
  }
});
