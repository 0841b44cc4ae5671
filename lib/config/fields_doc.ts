/**
 * The generated parts of `docs/configuration.md`.
 *
 * @module
 */
import { formatDuration } from "./duration.ts";
import { ALWAYS_ON, GATE_DEFAULTS, LOCKED_ON } from "./feature_gates.ts";
import { FIELDS } from "./fields.ts";
import { type FieldKind, type FieldSpec, OBSOLETE_FIELDS } from "./schema.ts";

const FILE = "docs/configuration.md";

/** A part of a file that the code writes, between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`. */
export interface GeneratedSection {
  readonly file: string;
  readonly name: string;
  readonly render: () => string;
}

/** Every generated part of the page. */
export const CONFIGURATION_SECTIONS: readonly GeneratedSection[] = [
  { file: FILE, name: "fields", render: fieldsMarkdown },
  { file: FILE, name: "own-fields", render: ownFieldsMarkdown },
  { file: FILE, name: "obsolete-fields", render: obsoleteFieldsMarkdown },
  { file: FILE, name: "gates", render: gatesMarkdown },
];

const KIND_NAMES: Readonly<Record<FieldKind, string>> = {
  string: "string",
  boolean: "boolean",
  int32: "whole number",
  uint32: "whole number",
  float32: "number",
  duration: "duration",
  durationOrNanoseconds: "duration, or nanoseconds",
  quantity: "quantity",
  strings: "list of strings",
  featureGates: "map of booleans",
  vmodule: "list of `{filePattern, verbosity}`",
};

/** The fields that kube-proxy has too. */
function fieldsMarkdown(): string {
  return fieldTable(FIELDS.filter((spec) => !isOwn(spec)));
}

/** The fields under `kproxy`. */
function ownFieldsMarkdown(): string {
  return fieldTable(FIELDS.filter(isOwn));
}

/** The fields of earlier versions. */
function obsoleteFieldsMarkdown(): string {
  const rows = OBSOLETE_FIELDS.map(({ path, note, renamedTo }) =>
    `| \`${path}\` | ${renamedTo === undefined ? note : `read as \`${renamedTo}\``} |`
  );
  return ["| Field | What becomes of it |", "| --- | --- |", ...rows].join("\n");
}

/** The feature gates that are treated in a special way. */
function gatesMarkdown(): string {
  const rows = [
    ...Object.entries(GATE_DEFAULTS).map((
      [gate, { default: on }],
    ) => [gate, `${on ? "on" : "off"} unless set`]),
    ...LOCKED_ON.map((gate) => [gate, "always on; false is an error"]),
    ...ALWAYS_ON.map((gate) => [gate, "always on; false is a warning"]),
  ];
  return ["| Gate | State |", "| --- | --- |", ...rows.map(([gate, state]) => `| \`${gate}\` | ${state} |`)]
    .join("\n");
}

function isOwn({ path }: FieldSpec): boolean {
  return path.startsWith("kproxy.");
}

function fieldTable(fields: readonly FieldSpec[]): string {
  const rows = fields.map((spec) => {
    const marks = `${spec.zeroIsUnset ? "†" : ""}${spec.omitDefault ? "‡" : ""}`;
    const flag = spec.flag === undefined ? "–" : `\`--${spec.flag}\``;
    const meaning = spec.unused ? `${spec.meaning} (no effect)` : spec.meaning;
    return `| \`${spec.path}\`${marks} | ${kindText(spec)} | ${defaultText(spec)} | ${flag} | ${meaning} |`;
  });
  return ["| Field | Type | Default | Flag | Meaning |", "| --- | --- | --- | --- | --- |", ...rows].join(
    "\n",
  );
}

function kindText({ kind, allowed }: FieldSpec): string {
  return allowed === undefined ? KIND_NAMES[kind] : allowed.map((value) => `\`${value}\``).join(", ");
}

function defaultText({ kind, default: value }: FieldSpec): string {
  if (value === null) return "unset";
  if (typeof value === "number" && kind.startsWith("duration")) return `\`${formatDuration(value)}\``;
  return `\`${typeof value === "string" && value !== "" ? value : JSON.stringify(value)}\``;
}
