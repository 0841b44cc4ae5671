/**
 * Every flag of kproxy, in one ordered list: by group in the order of {@linkcode GROUPS}, then by name.
 *
 * @module
 */
import { countsBesideFile } from "../../config/flags_overlay.ts";
import { FIELDS } from "../../config/fields.ts";
import type { KindValues } from "../../config/kinds.ts";
import type { SCHEMA } from "../../config/schema.ts";
import { type EntriesOf, type FlagGroup, GROUPS } from "../../config/setting.ts";
import { type Flag, flagOf } from "./flag.ts";
import { PROGRAM_FLAGS } from "./program_flags.ts";

type ProgramFlag = typeof PROGRAM_FLAGS[number];
type SettingFlag = Extract<EntriesOf<typeof SCHEMA>, { readonly flag: string }>;

/** The names of all flags. */
export type FlagName = ProgramFlag["name"] | SettingFlag["flag"];
export type NamedFlag = Flag & { readonly name: FlagName };

/** Type of this flag's value. */
export type ValueOf<Name extends FlagName> = KindValues[
  (Extract<ProgramFlag, { name: Name }> | Extract<SettingFlag, { flag: Name }>)["kind"]
];

/** Every flag, in the order of help, documentation and completion. */
export const FLAGS: readonly NamedFlag[] = [
  ...PROGRAM_FLAGS,
  // The names are those of the schema, as the type has them.
  ...FIELDS.flatMap((field) => flagOf(field) ?? []) as NamedFlag[],
].toSorted((left, right) =>
  GROUPS.indexOf(left.group) - GROUPS.indexOf(right.group) || (left.name < right.name ? -1 : 1)
);

const BY_NAME: ReadonlyMap<string, NamedFlag> = new Map(FLAGS.map((flag) => [flag.name, flag]));
const BY_SHORT: ReadonlyMap<string, NamedFlag> = new Map(
  FLAGS.flatMap((flag) => flag.short === undefined ? [] : [[flag.short, flag] as const]),
);

/** The flag of this name; `_` is read as `-`. */
export function flagByName(name: string): NamedFlag | undefined {
  return BY_NAME.get(name.replaceAll("_", "-"));
}

/** The flag of this letter. */
export function flagByLetter(letter: string): NamedFlag | undefined {
  return BY_SHORT.get(letter);
}

/** Flags about the run itself, which no file could hold, and those that are there for old command lines. */
const NO_SETTINGS: readonly FlagGroup[] = ["Program", "Deprecated"];

/**
 * The settings that a flag gives also beside `--config`, in the order of the list: those that kube-proxy honours there, logging,
 * and kproxy's own.
 */
export function flagsBesideFile(): readonly Flag[] {
  return FLAGS.filter(({ group, field }) =>
    !NO_SETTINGS.includes(group) && (field === undefined || countsBesideFile(field))
  );
}
