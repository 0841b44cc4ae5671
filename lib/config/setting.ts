/**
 * What a setting is: one entry of the schema (`schema.ts`), from which follow how it is read from a file and from a flag, its default,
 * what is wrong with a value, how it is written, and its lines in help and documents.
 *
 * @module
 */
import type { Check } from "./checks.ts";
import type { KindName, KindValues } from "./kinds.ts";

/** The commands of kproxy, in the order of the help text. */
export const COMMANDS = [
  "run",
  "write-config",
  "cleanup",
  "render",
  "status",
  "trace",
  "explain",
  "service",
  "check",
  "diff",
  "doctor",
  "selftest",
  "sysdump",
  "version",
  "help",
  "completion",
] as const;

export type CommandName = typeof COMMANDS[number];

/** The headings flags are listed under, in the order of the help text. */
export const GROUPS = [
  "Program",
  "Inspection",
  "API server and node",
  "Objects",
  "Servers",
  "Mode and rules",
  "Local traffic",
  "IPVS",
  "Connection tracking",
  "Logging",
  "Deprecated",
] as const;

/** Files that hold YAML or JSON. */
export const CONFIG_FILES = [".yaml", ".yml", ".json"] as const;

export type FlagGroup = typeof GROUPS[number];

/** The part of a configuration that decides which other settings count. */
export interface Conditions {
  readonly mode: string;
  readonly detectLocalMode: string;
  readonly kproxy: { readonly proxyModeFallback: boolean };
}

/** A value as configurations hold it; null: not given, where that is something else than the zero of its kind. */
export type FieldValue = KindValues[KindName] | null;

/** Options of an entry, besides kind, default and meaning. */
export interface SettingOptions<Kind extends KindName = KindName> {
  /** The few values that it takes; a blank one is the default. */
  readonly values?: readonly string[];
  /** Check of a value. */
  readonly check?: Check<KindValues[Kind]>;
  /** Configurations in which the value counts, and so is checked; without this, all. */
  readonly when?: (config: Conditions) => boolean;
  /** Paths of other fields with a part in the problem: their lines are shown if this field has none. */
  readonly related?: readonly string[];
  /** Zero and blank mean "not set" too (the API has no pointer there). */
  readonly zeroIsUnset?: true;
  /** Left out when written while it has its default. */
  readonly omitDefault?: true;
  /** Accepted and written back, but changes nothing on Linux or in kproxy. */
  readonly unused?: true;
  /** A change of it applies without a new start. */
  readonly live?: true;

  /** Flag of the same meaning, without dashes. */
  readonly flag?: string;
  readonly short?: string;
  readonly group?: FlagGroup;
  /** Meaning of the flag, where that differs from the field's. */
  readonly flagDoc?: string;
  /** Default of the flag as shown, where that differs from the field's. */
  readonly flagDefault?: string;
  /** Completion: names ending in one of these, and folders. Empty: any file. */
  readonly files?: readonly string[];
  /** The only commands that take the flag; without this, all that work out a configuration. */
  readonly only?: readonly CommandName[];
  /** Commands that take the flag, too. */
  readonly also?: readonly CommandName[];
  /** Commands whose flag takes other values than `values`. */
  readonly valuesIn?: Readonly<Partial<Record<CommandName, readonly string[]>>>;
  /** Other values of the flag are left to the rules of the configuration, which may allow them. */
  readonly isOpen?: true;
  /** Completes "Flag --x has been deprecated, it has no effect: …". */
  readonly obsolete?: string;
}

/** One entry of the schema. */
export interface Setting extends SettingOptions<never> {
  readonly kind: KindName;
  /** Value if the field is absent or null, in the form the configuration holds it. */
  readonly default: FieldValue;
  /** Meaning, as a line without a period; code stands in backticks. */
  readonly doc: string;
}

type Default<Kind extends KindName> =
  | KindValues[Kind]
  | null
  | (KindValues[Kind] extends string[] ? readonly [] : never);

/** Yields the function that makes entries of a kind, of default, meaning and options. */
function entryOf<const Kind extends KindName>(kind: Kind) {
  return <
    const Fallback extends Default<Kind>,
    const Options extends SettingOptions<Kind> = Record<never, never>,
  >(fallback: Fallback, doc: string, options?: Options): {
    readonly kind: Kind;
    readonly default: Fallback;
    readonly doc: string;
  } & Options => ({ kind, default: fallback, doc, ...options as Options });
}

export const address = entryOf("address");
export const bool = entryOf("bool");
export const duration = entryOf("duration");
export const float = entryOf("float");
export const gates = entryOf("gates");
export const int = entryOf("int");
export const ip = entryOf("ip");
export const level = entryOf("level");
export const list = entryOf("list");
export const nanoseconds = entryOf("nanoseconds");
export const paths = entryOf("paths");
export const quantity = entryOf("quantity");
export const text = entryOf("string");
export const vmodule = entryOf("vmodule");

/** Yields the function that makes the options of a flag under a heading. */
export function under<const Group extends FlagGroup>(group: Group) {
  return <const Flag extends string>(flag: Flag) => ({ group, flag }) as const;
}

export const UNSET = { zeroIsUnset: true } as const;
export const UNLESS_DEFAULT = { omitDefault: true } as const;

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Type of a configuration's values for a part of the schema. */
export type ValueOf<Part> = Part extends
  { readonly kind: infer Kind extends KindName; readonly default: infer Fallback } ?
    | (Part extends { readonly values: readonly (infer Value)[] } ? Value : KindValues[Kind])
    | (Fallback extends null ? null : never)
  : { -readonly [Name in keyof Part]: ValueOf<Part[Name]> };

/** All entries of a part of the schema. */
export type EntriesOf<Part> = Part extends { readonly kind: KindName } ? Part
  : { [Name in keyof Part]: EntriesOf<Part[Name]> }[keyof Part];
