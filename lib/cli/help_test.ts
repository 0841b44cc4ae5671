import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { COMMANDS } from "../config/setting.ts";
import { FLAGS } from "./flags/flags.ts";
import { commandsMarkdown, flagsMarkdown } from "../../tools/settings_doc.ts";
import { COMMAND_DOCS, commandHelp, programHelp } from "./help.ts";

Deno.test("help on the program and on each command", async (t) => {
  await t.assertSnapshot(programHelp());
  for (const command of COMMANDS) await t.assertSnapshot(commandHelp(command));
});

Deno.test(
  "help names every flag of the command, no other, and fits a terminal",
  { permissions: "none" },
  () => {
    for (const command of COMMANDS) {
      const text = commandHelp(command);
      const words = new Set(text.match(/(?<![\w-])--[a-z][a-z0-9-]*/g));
      for (const flag of FLAGS.filter((flag) => flag.commands.includes(command))) {
        assert(words.has(`--${flag.name}`), `${command} --${flag.name}`);
      }
      for (const line of text.split("\n")) assert(line.length <= 110, line);
    }
    assert(!commandHelp("version").includes("--config"));
    for (const name of COMMANDS) assertStringIncludes(programHelp(), `  ${name} `);
  },
);

Deno.test(
  "the tables of README.md and docs/flags.md have a row for every command and every flag",
  { permissions: "none" },
  () => {
    const commands = commandsMarkdown();
    for (const name of COMMANDS) {
      assertStringIncludes(
        commands,
        COMMAND_DOCS[name].usage.replaceAll("|", "\\|"),
      );
    }
    const rows = flagsMarkdown().split("\n").filter((line) => /^\| `-/.test(line));
    assertEquals(rows.length, FLAGS.length);
    for (const [index, flag] of FLAGS.entries()) {
      const row = rows[index] ?? "";
      assertStringIncludes(row, `--${flag.name}`);
      assertStringIncludes(row, flag.doc.replaceAll("|", "\\|"));
      // A bar that is not escaped would start another column.
      assertEquals(row.replaceAll("\\|", "").split("|").length, 7, row);
    }
  },
);
