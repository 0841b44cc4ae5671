import { assert, assertEquals } from "@std/assert";
import { COMMANDS } from "../lib/config/setting.ts";
import { FLAGS } from "../lib/cli/flags/flags.ts";
import { parseArgs } from "../lib/cli/flags/parse_args.ts";
import { UsageError } from "../lib/errors.ts";
import {
  type KnownCommands,
  pathsOfDenoCommands,
  shownCommands,
  unknownCommands,
  unknownTasks,
} from "./doc_commands.ts";
import { projectFiles, ROOT } from "./project_files.ts";

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

Deno.test("kproxy takes every command line that the documentation shows", async () => {
  const pages = (await projectFiles()).filter((path) => path.endsWith(".md"));
  const refused: string[] = [];
  let shown = 0;
  for (const page of pages) {
    for (const argv of shownCommands(await Deno.readTextFile(`${ROOT}/${page}`))) {
      shown++;
      try {
        parseArgs(argv.map((word) => word.replace(/=MODE$/, "=nftables")));
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        refused.push(`${page}: kproxy ${argv.join(" ")}: ${error.message}`);
      }
    }
  }
  assert(shown > 100, `${shown}`);
  assertEquals(refused, []);
});

Deno.test("files that commands of Deno name in the documentation are there", async () => {
  const files = await projectFiles();
  const pages = files.filter((path) => path.endsWith(".md"));
  const named = await Promise.all(
    pages.map(async (page) =>
      pathsOfDenoCommands(await Deno.readTextFile(`${ROOT}/${page}`)).map((path) => ({ page, path }))
    ),
  );
  assert(named.flat().length > 10);
  const isThere = (path: string): boolean =>
    files.some((file) => file === path || file.startsWith(`${path}/`));
  assertEquals(named.flat().filter(({ path }) => !isThere(path)), []);
});

Deno.test("commands of the documentation that need nothing but the project's examples do their work", async () => {
  const pages = (await projectFiles()).filter((path) => path.endsWith(".md"));
  const commands = new Set<string>();
  for (const page of pages) {
    for (const argv of shownCommands(await Deno.readTextFile(`${ROOT}/${page}`))) {
      const isOffline = argv[0] === "render" || argv.includes("--no-live");
      if (isOffline && argv.includes("examples/demo")) commands.add(argv.join(" "));
    }
  }
  assert(commands.size >= 2);
  for (const command of commands) {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", "main.ts", ...command.split(" ")],
      cwd: ROOT,
      stdin: "null",
    }).output();
    assertEquals(code, 0, `kproxy ${command}: ${new TextDecoder().decode(stderr)}`);
    assert(stdout.length > 100, command);
  }
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
