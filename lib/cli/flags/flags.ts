/**
 * Every flag of kproxy, in one ordered list: by group in the order of {@linkcode GROUPS}, then by name.
 *
 * @module
 */
import { type Flag, type FlagValueTypes, GROUPS } from "./flag.ts";
import { CHECK_FLAGS } from "./flags_check.ts";
import { DEPRECATED_FLAGS } from "./flags_deprecated.ts";
import { STATUS_FLAGS } from "./flags_status.ts";
import { DOCTOR_FLAGS } from "./flags_doctor.ts";
import { NODE_FLAGS, OBJECT_FLAGS, PROGRAM_FLAGS, SERVER_FLAGS } from "./flags_program.ts";
import { CONNTRACK_FLAGS, IPVS_FLAGS, LOCAL_TRAFFIC_FLAGS, MODE_FLAGS } from "./flags_rules.ts";
import { LOGGING_FLAGS } from "./flags_logging.ts";
import { SELFTEST_FLAGS } from "./flags_selftest.ts";
import { TRACE_FLAGS } from "./flags_trace.ts";

/** Of the commands that look, which share a heading. */
const LOOKING_FLAGS = [...STATUS_FLAGS, ...TRACE_FLAGS, ...CHECK_FLAGS, ...DOCTOR_FLAGS, ...SELFTEST_FLAGS]
  .toSorted((one, other) => one.name < other.name ? -1 : 1);

const ALL_FLAGS = [
  ...PROGRAM_FLAGS,
  ...LOOKING_FLAGS,
  ...NODE_FLAGS,
  ...OBJECT_FLAGS,
  ...SERVER_FLAGS,
  ...MODE_FLAGS,
  ...LOCAL_TRAFFIC_FLAGS,
  ...IPVS_FLAGS,
  ...CONNTRACK_FLAGS,
  ...LOGGING_FLAGS,
  ...DEPRECATED_FLAGS,
] as const;

type KnownFlag = typeof ALL_FLAGS[number];

/** The names of all flags. */
export type FlagName = KnownFlag["name"];

/** What the text of this flag becomes. */
export type ValueOf<Name extends FlagName> = FlagValueTypes[Extract<KnownFlag, { name: Name }>["type"]];

/** Every flag, in the order of help, documentation and completion. */
export const FLAGS: readonly (Flag & { readonly name: FlagName })[] = inOrder(ALL_FLAGS);

/** Each file of flags is in order, and some groups come from several files. */
function inOrder<Known extends Flag>(flags: readonly Known[]): readonly Known[] {
  return flags.toSorted((left, right) =>
    GROUPS.indexOf(left.group) - GROUPS.indexOf(right.group) ||
    (left.name < right.name ? -1 : left.name > right.name ? 1 : 0)
  );
}

const BY_NAME: ReadonlyMap<string, Flag & { readonly name: FlagName }> = new Map(
  FLAGS.map((flag) => [flag.name, flag]),
);
const BY_SHORT: ReadonlyMap<string, Flag & { readonly name: FlagName }> = new Map(
  FLAGS.flatMap((flag) => flag.short === undefined ? [] : [[flag.short, flag] as const]),
);

/** The flag of this name; `_` is read as `-`. */
export function flagByName(name: string): (Flag & { readonly name: FlagName }) | undefined {
  return BY_NAME.get(name.replaceAll("_", "-"));
}

/** The flag of this letter. */
export function flagByLetter(letter: string): (Flag & { readonly name: FlagName }) | undefined {
  return BY_SHORT.get(letter);
}
