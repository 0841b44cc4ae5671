/**
 * Flags: of a setting of the configuration (`lib/config/schema.ts`), or of the command line alone (`program_flags.ts`).
 *
 * @module
 */
import type { Field } from "../../config/fields.ts";
import { type KindName, showValue } from "../../config/kinds.ts";
import type { CommandName, FlagGroup } from "../../config/setting.ts";

/** Stage of a flag: current, deprecated, removed. Using one that is not current warns once. */
export interface FlagNote {
  /** `deprecated` still works; `obsolete` is read, checked and has no effect. */
  readonly state: "deprecated" | "obsolete";
  /** Completes "Flag --x has been deprecated, …". */
  readonly text: string;
}

/** One flag. */
export interface Flag {
  /** Without dashes; words joined by `-`. */
  readonly name: string;
  /** The letter after a single dash. */
  readonly short?: string | undefined;
  readonly kind: KindName;
  /** The default as shown; `""` shows none. */
  readonly default: string;
  readonly group: FlagGroup;
  readonly commands: readonly CommandName[];
  /** One line, no period. */
  readonly doc: string;
  /** The values it takes, if they are few; a blank one is taken as "not set", unless `withoutIt` says what follows from that. */
  readonly values?: readonly string[] | undefined;
  /** Commands that take other values than `values`. */
  readonly valuesIn?: Readonly<Partial<Record<CommandName, readonly string[]>>> | undefined;
  /** Makes a blank value wrong, as of a variable that is not set: it would do more than was asked for. Completes "without --x …". */
  readonly withoutIt?: string;
  /** Other values are left to the rules of the configuration, which may allow them. */
  readonly isOpen?: true | undefined;
  /** Completion: names ending in one of these, and folders. Empty: any file. */
  readonly files?: readonly string[] | undefined;
  /** Field of `KubeProxyConfiguration` it sets. */
  readonly field?: string;
  readonly note?: FlagNote | undefined;
}

/** Commands that work out a configuration. */
export const CONFIGURED = [
  "run",
  "write-config",
  "render",
  "trace",
  "explain",
  "service",
  "check",
  "diff",
  "doctor",
] as const;

/** The flag of a field; null if it has none. */
export function flagOf(field: Field): Flag | null {
  const { flag: name, group, path, kind, flagDefault, obsolete, only, also = [] } = field;
  if (name === undefined || group === undefined) return null;
  const { short, values, valuesIn, isOpen, files } = field;
  return {
    name,
    kind,
    default: flagDefault ?? showValue(kind, field.default as never),
    group,
    commands: only ?? [...CONFIGURED, ...also],
    doc: (field.flagDoc ?? field.doc).replaceAll("`", ""),
    field: path,
    short,
    values,
    valuesIn,
    isOpen,
    files,
    note: obsolete === undefined ? undefined : obsoleteNote(obsolete),
  };
}

export function obsoleteNote(reason: string): FlagNote {
  return { state: "obsolete", text: `it has no effect: ${reason}` };
}

/** The few values that it takes in a command, in most for undefined; undefined if it takes more than a few. */
export function valuesOf(flag: Flag, command: CommandName | undefined): readonly string[] | undefined {
  return (command === undefined ? undefined : flag.valuesIn?.[command]) ?? flag.values;
}
