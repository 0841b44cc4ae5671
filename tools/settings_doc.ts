/**
 * The generated tables of commands, flags and fields: in `README.md`, `docs/flags.md` and `docs/configuration.md`.
 *
 * @module
 */
import type { Flag } from "../lib/cli/flags/flag.ts";
import { FLAGS, flagsBesideFile } from "../lib/cli/flags/flags.ts";
import { COMMAND_DOCS, flagUsage, valuesText } from "../lib/cli/help.ts";
import { ALWAYS_ON, GATE_DEFAULTS, LOCKED_ON } from "../lib/config/feature_gates.ts";
import { type Field, FIELDS } from "../lib/config/fields.ts";
import { KINDS, showValue } from "../lib/config/kinds.ts";
import { OBSOLETE_FIELDS } from "../lib/config/schema.ts";
import { type CommandName, COMMANDS, GROUPS } from "../lib/config/setting.ts";
import { markdownTable } from "./markdown_table.ts";

/** A part of a file that the code writes, between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`. */
export interface SettingsSection {
  readonly file: string;
  readonly name: string;
  readonly render: () => string;
}

const CONFIGURATION = "docs/configuration.md";

/** Every generated part of the page about the configuration. */
export const CONFIGURATION_SECTIONS: readonly SettingsSection[] = [
  { file: CONFIGURATION, name: "flags-beside-file", render: flagsBesideFileMarkdown },
  { file: CONFIGURATION, name: "fields", render: () => fieldTable(FIELDS.filter((field) => !isOwn(field))) },
  { file: CONFIGURATION, name: "own-fields", render: () => fieldTable(FIELDS.filter(isOwn)) },
  { file: CONFIGURATION, name: "obsolete-fields", render: obsoleteFieldsMarkdown },
  { file: CONFIGURATION, name: "gates", render: gatesMarkdown },
];

/** The commands as a Markdown table. */
export function commandsMarkdown(): string {
  return markdownTable(
    ["Command", "What it does"],
    COMMANDS.map((name) => [code(`kproxy ${COMMAND_DOCS[name].usage}`), COMMAND_DOCS[name].summary]),
  );
}

/** All flags as Markdown, one table for each group, in the order of the list. */
export function flagsMarkdown(): string {
  const columns = ["Flag", "Default", "Commands", "Field", "What it does"];
  return GROUPS.map((group) => {
    const flags = FLAGS.filter((flag) => flag.group === group);
    return `## ${group}\n\n${markdownTable(columns, flags.map(flagRow))}\n`;
  }).join("\n");
}

/** The settings that flags give also beside `--config`, as one line of Markdown for each group. */
export function flagsBesideFileMarkdown(): string {
  const groups = Map.groupBy(flagsBesideFile(), ({ group }) => group);
  return [...groups].map(([group, flags]) =>
    `- ${group}: ${flags.map(({ name }) => code(`--${name}`)).join(", ")}`
  ).join("\n");
}

function flagRow(flag: Flag): readonly string[] {
  const { note } = flag;
  const state = note === undefined
    ? ""
    : `. **${note.state[0]?.toUpperCase()}${note.state.slice(1)}**: ${note.text}`;
  return [
    code(flagUsage(flag)),
    flag.default === "" ? "" : code(flag.default),
    commandList(flag.commands),
    flag.field === undefined ? "" : code(flag.field),
    `${flag.doc}${valuesText(flag, undefined, code)}${state}`,
  ];
}

function commandList(commands: readonly CommandName[]): string {
  return commands.length === COMMANDS.length ? "all" : commands.join(", ");
}

function isOwn({ path }: Field): boolean {
  return path.startsWith("kproxy.");
}

function fieldTable(fields: readonly Field[]): string {
  return markdownTable(
    ["Field", "Type", "Default", "Flag", "Meaning"],
    fields.map((field) => [
      `${code(field.path)}${field.zeroIsUnset ? "†" : ""}${field.omitDefault ? "‡" : ""}`,
      field.values?.map(code).join(", ") ?? KINDS[field.kind].name,
      defaultText(field),
      field.flag === undefined ? "–" : code(`--${field.flag}`),
      field.unused ? `${field.doc} (no effect)` : field.doc,
    ]),
  );
}

function defaultText({ kind, default: value }: Field): string {
  if (value === null) return "unset";
  const isText = typeof value !== "object" && value !== "";
  return code(isText ? showValue(kind, value as never) : JSON.stringify(value));
}

function obsoleteFieldsMarkdown(): string {
  return markdownTable(
    ["Field", "What becomes of it"],
    OBSOLETE_FIELDS.map(({ path, note, renamedTo }) => [
      code(path),
      renamedTo === undefined ? note : `read as ${code(renamedTo)}`,
    ]),
  );
}

/** The feature gates that are treated in a special way. */
function gatesMarkdown(): string {
  return markdownTable(["Gate", "State"], [
    ...Object.entries(GATE_DEFAULTS).map((
      [gate, { default: on }],
    ) => [code(gate), `${on ? "on" : "off"} unless set`]),
    ...LOCKED_ON.map((gate) => [code(gate), "always on; false is an error"]),
    ...ALWAYS_ON.map((gate) => [code(gate), "always on; false is a warning"]),
  ]);
}

function code(text: string): string {
  return `\`${text}\``;
}
