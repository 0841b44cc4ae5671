/**
 * The table of commands of the README, those of flags of `docs/flags.md`, and the list of flags that count beside a file.
 *
 * @module
 */
import { type CommandName, COMMANDS, type Flag, GROUPS } from "./flag.ts";
import { FLAGS } from "./flags.ts";
import { flagsBesideFile } from "./flags_beside_file.ts";
import { COMMAND_DOCS, flagUsage, valuesText } from "../help.ts";

/** The commands as a Markdown table. */
export function commandsMarkdown(): string {
  const rows = COMMANDS.map((name) =>
    row([code(`kproxy ${COMMAND_DOCS[name].usage}`), COMMAND_DOCS[name].summary])
  );
  return [row(["Command", "What it does"]), row(["---", "---"]), ...rows].join("\n") + "\n";
}

/** All flags as Markdown, one table for each group, in the order of the list. */
export function flagsMarkdown(): string {
  return GROUPS.map((group) => {
    const flags = FLAGS.filter((flag) => flag.group === group);
    const columns = ["Flag", "Default", "Commands", "Field", "What it does"];
    return [`## ${group}`, "", row(columns), row(columns.map(() => "---")), ...flags.map(flagRow), ""].join(
      "\n",
    );
  }).join("\n");
}

/** The settings that flags give also beside `--config`, as one line of Markdown for each group. */
export function flagsBesideFileMarkdown(): string {
  const groups = Map.groupBy(flagsBesideFile(), ({ group }) => group);
  return [...groups].map(([group, flags]) =>
    `- ${group}: ${flags.map(({ name }) => code(`--${name}`)).join(", ")}`
  ).join("\n");
}

function flagRow(flag: Flag): string {
  const note = flag.note === undefined ? "" : `. **${capital(flag.note.state)}**: ${flag.note.text}`;
  return row([
    code(flagUsage(flag)),
    flag.default === "" ? "" : code(flag.default),
    commandList(flag.commands),
    flag.field === undefined ? "" : code(flag.field),
    `${flag.doc}${valuesText(flag, undefined, code)}${note}`,
  ]);
}

function commandList(commands: readonly CommandName[]): string {
  if (commands.length === COMMANDS.length) return "all";
  return commands.join(", ");
}

function row(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

function code(text: string): string {
  return `\`${text}\``;
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
