import { assert, assertEquals } from "@std/assert";
import { COMMANDS } from "../lib/config/setting.ts";
import { FLAGS } from "../lib/cli/flags/flags.ts";
import { parseArgs } from "../lib/cli/flags/parse_args.ts";
import { UsageError } from "../lib/errors.ts";
import { kproxyCommands, pathsOfDenoCommands, tasksIn } from "./doc_commands.ts";
import project from "../deno.json" with { type: "json" };
import { projectFiles, ROOT } from "./project_files.ts";

/**
 * Why kproxy would refuse a command; undefined if it would not. For synopses, which have brackets, dots or nothing after a `=`, only
 * the flags' names are checked.
 */
function refusal([first = "", ...rest]: readonly string[]): string | undefined {
  // A running kproxy is named so: `kproxy on 127.0.0.1:10249`. `kproxy COMMAND` is a placeholder.
  if (first === "on" || !/^(?:-.*|[a-z-]+)$/.test(first)) return undefined;
  const isSynopsis = rest.length === 0 || rest.some((word) => /[…[\]<]|\.\.\.|=$/.test(word));
  if (!isSynopsis) {
    try {
      parseArgs([first, ...rest].map((word) => word.replace(/=MODE$/, "=nftables")));
      return undefined;
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      return error.message;
    }
  }
  const isFlag = first.startsWith("-");
  const command = isFlag ? undefined : COMMANDS.find((name) => name === first);
  if (!isFlag && command === undefined) return "no such command";
  const names = [first, ...rest].flatMap((word) => /^--([a-z][\w-]*)/.exec(word)?.[1] ?? []);
  return names.find((name) =>
    !FLAGS.some((flag) => flag.name === name && (command === undefined || flag.commands.includes(command)))
  );
}

Deno.test("kproxy takes every command line that the documentation shows", async () => {
  // Forms in .github contain commands, too, in code spans as in Markdown.
  const pages = (await projectFiles()).filter((path) => /\.md$|^\.github\/.*\.yml$/.test(path));
  const texts = await Promise.all(pages.map((page) => Deno.readTextFile(`${ROOT}/${page}`)));
  const shown = texts.flatMap((text, at) => kproxyCommands(text).map((argv) => ({ page: pages[at], argv })));
  assert(shown.length > 100, `${shown.length}`);
  const refused = shown.flatMap(({ page, argv }) => {
    const why = refusal(argv);
    return why === undefined ? [] : [`${page}: kproxy ${argv.join(" ")}: ${why}`];
  });
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
    for (const argv of kproxyCommands(await Deno.readTextFile(`${ROOT}/${page}`))) {
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
    const found = tasksIn(await Deno.readTextFile(`${ROOT}/${file}`));
    return found.filter((task) => !(task in project.tasks)).map((task) => `${file}: ${task}`);
  }));
  assertEquals(problems.flat(), []);
});
