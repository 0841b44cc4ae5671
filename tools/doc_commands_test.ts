import { assert, assertEquals } from "@std/assert";
import { COMMANDS } from "../lib/cli/flags/flag.ts";
import { FLAGS } from "../lib/cli/flags/flags.ts";
import { type KnownCommands, unknownCommands, unknownTasks } from "./doc_commands.ts";
import { projectFiles, ROOT } from "./project_files.ts";

const FEW: KnownCommands = {
  flags: new Map([["run", new Set(["config", "v", "help"])], ["cleanup", new Set(["only"])]]),
  tasks: new Set(["kproxy", "test"]),
};

Deno.test(
  "commands and flags that do not exist are found in code, prose is free",
  { permissions: "none" },
  () => {
    const cases: readonly (readonly [string, readonly string[]])[] = [
      ["kproxy doctor, and kproxy waits", []],
      ["`kproxy run --config FILE -v=2`, `kproxy`, table `kproxy`", []],
      ["run `kproxy doctor`", ["kproxy doctor"]],
      ["`kproxy run --only=x -h`", ["kproxy run --only"]],
      ["`kproxy --only=x --odd`, `kproxy COMMAND`", ["kproxy --odd"]],
      ["```console\n$ curl x\nGo on: kproxy is no program\n$ run_it  # as kproxy understands\n```", []],
      ["over a line: `kproxy\nmigrate --x`", ["kproxy migrate"]],
      [
        "```sh\n$ sudo kproxy cleanup --dry   # what --ever\ndeno task -q kproxy run \\\n  --config=x --confug y\n```",
        ["kproxy cleanup --dry", "kproxy run --confug"],
      ],
      ["```\n/usr/bin/kproxy run --x; kproxy cleanup --y | kproxy dig\n```", [
        "kproxy run --x",
        "kproxy cleanup --y",
        "kproxy dig",
      ]],
    ];
    for (const [text, expected] of cases) assertEquals(unknownCommands(text, FEW), [...expected], text);
  },
);

Deno.test("tasks that do not exist are found everywhere", { permissions: "none" }, () => {
  assertEquals(unknownTasks("deno task test, `deno task -q kproxy run`, deno task tests a", FEW), ["tests"]);
});

const { tasks } = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.json`)) as {
  readonly tasks: Readonly<Record<string, unknown>>;
};

const REAL: KnownCommands = {
  flags: new Map(COMMANDS.map((command): [string, ReadonlySet<string>] => [
    command,
    new Set(FLAGS.filter(({ commands }) => commands.includes(command)).map(({ name }) => name)),
  ])),
  tasks: new Set(Object.keys(tasks)),
};

Deno.test("every command and flag that the documentation names exists", async () => {
  // The forms of .github have commands, too, in code spans as Markdown has them.
  const pages = (await projectFiles()).filter((path) => /\.md$|^\.github\/.*\.yml$/.test(path));
  const problems = await Promise.all(pages.map(async (page) => {
    const found = unknownCommands(await Deno.readTextFile(`${ROOT}/${page}`), REAL);
    return found.map((command) => `${page}: ${command}`);
  }));
  assert(pages.length > 10);
  assertEquals(problems.flat(), []);
});

Deno.test("every task that documentation, code and CI name exists", async () => {
  const files = (await projectFiles()).filter((path) =>
    /\.(md|ts|sh)$/.test(path) && path !== "tools/doc_commands_test.ts"
  );
  const problems = await Promise.all([".ci/run", "deno.json", ...files].map(async (file) => {
    const found = unknownTasks(await Deno.readTextFile(`${ROOT}/${file}`), REAL);
    return found.map((task) => `${file}: ${task}`);
  }));
  assertEquals(problems.flat(), []);
});
