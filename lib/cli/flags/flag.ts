/**
 * What a flag is: the one description from which parsing, help, documentation and shell completion follow.
 *
 * @module
 */

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
  "Looking",
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

export type FlagGroup = typeof GROUPS[number];

/** How the text of a flag is read. Periods are Go durations, kept as milliseconds. */
export interface FlagValueTypes {
  readonly string: string;
  readonly bool: boolean;
  readonly int: number;
  /** A verbosity: decimal, and never negative. */
  readonly level: number;
  readonly float: number;
  readonly duration: number;
  /** Comma separated with CSV quoting; repeating appends. */
  readonly list: readonly string[];
  /** One item for each time the flag is given; commas have no meaning. */
  readonly paths: readonly string[];
  /** An IP address; blank keeps what was set before. */
  readonly ip: string;
  /** `IP` or `IP:port`; blank keeps what was set before. */
  readonly address: string;
  /** `A=true,B=false`; repeating merges. */
  readonly gates: Readonly<Record<string, boolean>>;
  /** `pattern=N,…`; repeating appends. */
  readonly vmodule: readonly { readonly filePattern: string; readonly verbosity: number }[];
  /** A Kubernetes quantity, e.g. `0` or `64Mi`. */
  readonly quantity: string;
  /** `true`, `raw` or a version to report. */
  readonly version: string;
}

export type FlagType = keyof FlagValueTypes;
export type FlagValue = FlagValueTypes[FlagType];

/** Where a flag stands in its life. Using one that is not `current` warns once. */
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
  readonly short?: string;
  readonly type: FlagType;
  /** The default as shown; `""` shows none. */
  readonly default: string;
  readonly group: FlagGroup;
  readonly commands: readonly CommandName[];
  /** One line, no period. */
  readonly doc: string;
  /** The values it takes, if they are few; a blank one is taken as "not set", unless `withoutIt` says what follows from that. */
  readonly values?: readonly string[];
  /** Commands that take others than `values`. */
  readonly valuesIn?: Readonly<Partial<Record<CommandName, readonly string[]>>>;
  /** Makes a blank value wrong, as of a variable that is not set: it would do more than was asked for. Completes "without --x …". */
  readonly withoutIt?: string;
  /** What else is given is left to the rules of the configuration, which may allow it. */
  readonly isOpen?: true;
  /** Completion: names ending in one of these, and folders. Empty: any file. */
  readonly files?: readonly string[];
  /** Field of `KubeProxyConfiguration` it sets. */
  readonly field?: string;
  readonly note?: FlagNote;
}

/** The few values that it takes in a command, in most for undefined; undefined if it takes more than a few. */
export function valuesOf(flag: Flag, command: CommandName | undefined): readonly string[] | undefined {
  return (command === undefined ? undefined : flag.valuesIn?.[command]) ?? flag.values;
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
