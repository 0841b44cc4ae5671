import { assertEquals } from "@std/assert";
import project from "../../deno.json" with { type: "json" };
import {
  builtFrom,
  embeddedBuild,
  rawVersion,
  UNKNOWN_COMMIT,
  VERSION,
  versionLine,
  versionLines,
} from "./version.ts";
import { tempFolder } from "../../tests/support/temp_files.ts";

const FACTS = { commit: "unknown", deno: "2.9.6", platform: "linux/x86_64" };

Deno.test("the version is the project's", { permissions: "none" }, () => {
  assertEquals(VERSION, project.version);
  assertEquals(versionLine(), `kproxy ${project.version} (kube-proxy rules 1.30, decisions 1.36)`);
  assertEquals(versionLines(FACTS), [versionLine(), "commit unknown", "Deno 2.9.6 on linux/x86_64"]);
});

Deno.test("the raw version names all parts, for programs", { permissions: "none" }, () => {
  assertEquals(JSON.parse(rawVersion(FACTS)), {
    version: project.version,
    commit: "unknown",
    rulesLevel: "1.30",
    decisionsLevel: "1.36",
    denoVersion: "2.9.6",
    platform: "linux/x86_64",
  });
});

const SHA = "0123456789abcdef0123456789abcdef01234567";
const OTHER = SHA.replaceAll("0", "f");

/** The commit that sources in a folder with these files name. */
async function saidBy(files: Readonly<Record<string, string>>, under = ""): Promise<string> {
  await using temporary = await tempFolder();
  const folder = temporary.path;
  for (const [path, text] of Object.entries(files)) {
    await Deno.mkdir(`${folder}/${path}`.replace(/\/[^/]*$/, ""), { recursive: true });
    await Deno.writeTextFile(`${folder}/${path}`, text.replaceAll("FOLDER", folder));
  }
  return await builtFrom(new URL(`file://${folder}/${under}`));
}

const CASES: readonly [
  name: string,
  files: Readonly<Record<string, string>>,
  commit: string,
  under?: string,
][] = [
  ["no repository and no file", { "main.ts": "" }, UNKNOWN_COMMIT],
  ["the file of an image", { "COMMIT": `${SHA}-dirty\n` }, `${SHA}-dirty`],
  ["a file that says nothing of use", { "COMMIT": "$Format:%H$\n" }, UNKNOWN_COMMIT],
  ["the file before the repository", { "COMMIT": SHA, ".git/HEAD": OTHER }, SHA],
  ["a commit that is checked out", { ".git/HEAD": `${SHA}\n` }, SHA],
  ["a branch", { ".git/HEAD": "ref: refs/heads/a/b\n", ".git/refs/heads/a/b": `${SHA}\n` }, SHA],
  [
    "a packed branch",
    {
      ".git/HEAD": "ref: refs/heads/b",
      ".git/packed-refs": `# pack-refs\n${OTHER} refs/heads/a/b\n${SHA} refs/heads/b\n`,
    },
    SHA,
  ],
  ["a branch without a commit", { ".git/HEAD": "ref: refs/heads/b" }, UNKNOWN_COMMIT],
  [
    "a linked worktree",
    {
      "tree/.git": "gitdir: FOLDER/main/.git/worktrees/tree\n",
      "main/.git/worktrees/tree/HEAD": "ref: refs/heads/b\n",
      "main/.git/worktrees/tree/commondir": "../..\n",
      "main/.git/refs/heads/b": `${SHA}\n`,
    },
    SHA,
    "tree/",
  ],
  [
    "a submodule",
    {
      "sub/.git": "gitdir: ../.git/modules/sub\n",
      ".git/modules/sub/HEAD": `${SHA}\n`,
    },
    SHA,
    "sub/",
  ],
];

for (const [name, files, commit, under] of CASES) {
  Deno.test(`sources know their commit: ${name}`, async () => {
    assertEquals(await saidBy(files, under), commit);
  });
}

Deno.test("a build says what it was given, whatever lies beside it", async () => {
  const program = `${embeddedBuild(SHA)}
    const { builtFrom } = await import(${JSON.stringify(new URL("./version.ts", import.meta.url).href)});
    console.log(await builtFrom());`;
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["eval", "-q", program] }).output();
  assertEquals(new TextDecoder().decode(stdout), `${SHA}\n`);
});
