/**
 * The command line as typed: which command, which flags with which values, what is deprecated. Looks at nothing but
 * the arguments.
 *
 * @module
 */
import { ValueError } from "../../config/value_texts.ts";
import type { FlagValue } from "../../config/flags_overlay.ts";
import { isSwitch, type Kind, KINDS, showValue } from "../../config/kinds.ts";
import { type CommandName, COMMANDS } from "../../config/setting.ts";
import { CLEANUP_MODES, type CleanupMode } from "../../config/types.ts";
import { UsageError } from "../../errors.ts";
import { oneOf } from "../../text/words.ts";
import { didYouMean } from "../../config/suggest.ts";
import { COMMAND_ENTRIES } from "../commands.ts";
import { type Flag, valuesOf } from "./flag.ts";
import { flagByLetter, flagByName, type FlagName, FLAGS, type NamedFlag, type ValueOf } from "./flags.ts";

/** The flags that were given, by name. */
export class ParsedFlags {
  readonly command: CommandName;
  /** Positional arguments, where the command takes some. */
  readonly operands: readonly string[];
  /** One line for each deprecated or obsolete flag that was used. */
  readonly warnings: readonly string[];
  readonly #values: ReadonlyMap<FlagName, FlagValue>;

  constructor(
    command: CommandName,
    values: ReadonlyMap<FlagName, FlagValue>,
    operands: readonly string[] = [],
    warnings: readonly string[] = [],
  ) {
    this.command = command;
    this.operands = operands;
    this.warnings = warnings;
    this.#values = values;
  }

  /** The values of all flags that were given. */
  get values(): ReadonlyMap<FlagName, FlagValue> {
    return this.#values;
  }

  /** The flag's value, or undefined if it was not given. */
  get<Name extends FlagName>(name: Name): ValueOf<Name> | undefined {
    // The parser stores under a name only what that flag's type yields.
    return this.#values.get(name) as ValueOf<Name> | undefined;
  }

  /** Form of the command's output: `--output`, of which each command has its own values; `usual` without it. */
  outputForm<Usual extends "yaml" | "text">(usual: Usual): Usual | "json" {
    return this.get("output") === "json" ? "json" : usual;
  }

  /** Modes whose leftovers are removed: those of `--only`, else all, without ipvs for `--cleanup-ipvs=false`. */
  cleanupModes(): readonly CleanupMode[] {
    const only = this.get("only");
    const sparesIpvs = this.get("cleanup-ipvs") === false;
    return CLEANUP_MODES.filter((mode) =>
      (only === undefined || only.length === 0 || only.includes(mode)) && !(mode === "ipvs" && sparesIpvs)
    );
  }

  /** Every flag of the command, in alphabetical order, with the text of its value, given or default: `/flagz`, and the log at 1. */
  texts(): (readonly [name: string, text: string])[] {
    return FLAGS.filter((flag) => flag.commands.includes(this.command))
      .map(({ name, kind, default: usual }) => {
        const given = this.#values.get(name) ?? null;
        return [name, given === null && usual !== "" ? usual : showValue(kind, given as never)] as const;
      })
      .sort(([one], [other]) => one < other ? -1 : 1);
  }
}

/**
 * Reads a command line: `COMMAND [--flag…]`. Arguments that begin with a flag belong to `run`, so that the arguments
 * of kube-proxy can be passed on unchanged.
 *
 * @throws {UsageError} for an unknown command or flag, a bad value, or an argument too many
 */
export function parseArgs(argv: readonly string[]): ParsedFlags {
  const [first, ...rest] = argv;
  if (first === undefined) return new ParsedFlags("help", new Map());
  if (first.startsWith("-")) return parseFlags(leadingCommand(argv), argv);
  const command = COMMANDS.find((name) => name === first);
  if (command === undefined) {
    throw new UsageError(
      `Unknown command "${first}"${didYouMean(first, COMMANDS) || `: want ${COMMANDS.join(", ")}`}`,
    );
  }
  return parseFlags(command, rest);
}

/** `kproxy --help` and `kproxy --version` are about the program; other flags are those of `run`. */
function leadingCommand(argv: readonly string[]): CommandName {
  const only = argv.length === 1 ? argv[0] : undefined;
  return only === "--help" || only === "-h" ? "help" : "run";
}

/** One flag as typed, before its value is read. */
interface Typed {
  readonly flag: NamedFlag;
  /** The flag's name for messages, e.g. `--config` or `-v`. */
  readonly shown: string;
  readonly text: string;
}

function parseFlags(command: CommandName, args: readonly string[]): ParsedFlags {
  const values = new Map<FlagName, FlagValue>();
  const warnings = new Map<FlagName, string>();
  const operands: string[] = [];
  const rest = [...args];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === "--") {
      operands.push(...rest.splice(0));
    } else if (arg.startsWith("-") && arg !== "-") {
      const typed = arg.startsWith("--")
        ? [longFlag(arg, rest, command)]
        : [...shortFlags(arg, rest, command)];
      for (const one of typed) take(one, command, values, warnings);
    } else {
      operands.push(arg);
    }
  }
  checkOperands(command, operands);
  return new ParsedFlags(command, values, operands, [...warnings.values()]);
}

function take(
  { flag, shown, text }: Typed,
  command: CommandName,
  values: Map<FlagName, FlagValue>,
  warnings: Map<FlagName, string>,
): void {
  if (!flag.commands.includes(command)) {
    throw new UsageError(
      `Flag "${shown}" does not belong to "kproxy ${command}", but to: ${flag.commands.join(", ")}`,
    );
  }
  try {
    values.set(flag.name, parseFlagValue(flag, text, values.get(flag.name), command));
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    throw new UsageError(`Invalid value "${text}" for ${shown}: ${error.message}`);
  }
  if (flag.note !== undefined) {
    warnings.set(flag.name, `Flag --${flag.name} has been deprecated, ${flag.note.text}`);
  }
}

/**
 * The value of `text` for a flag of a command, that had the value `previous` before.
 *
 * @throws {ValueError} that says what is wanted, to follow "Invalid value …: "
 */
export function parseFlagValue(
  flag: Flag,
  text: string,
  previous: FlagValue | undefined,
  command?: CommandName,
): FlagValue {
  // A kind's parser takes and gives that kind's values; the compiler cannot follow the link through the table.
  const value = (KINDS[flag.kind] as Kind<FlagValue>).parse(text, previous);
  checkChoice(flag, valuesOf(flag, command), text, value);
  return value;
}

/** @param value value of the text, with what was given before */
function checkChoice(
  { name, kind, isOpen, withoutIt }: Flag,
  values: readonly string[] | undefined,
  text: string,
  value: FlagValue,
): void {
  if (values === undefined || isOpen || (kind !== "string" && kind !== "list")) return;
  if (text === "") {
    const isBlank = value === "" || (Array.isArray(value) && value.length === 0);
    if (isBlank && withoutIt !== undefined) {
      throw new ValueError(`want ${oneOf(values)}; without --${name} ${withoutIt}`);
    }
    return;
  }
  const words = kind === "list" ? KINDS.list.parse(text, undefined) : [text];
  const wrong = words.find((word) => !values.includes(word));
  if (wrong !== undefined) throw new ValueError(`want ${oneOf(values)}${didYouMean(wrong, values)}`);
}

function longFlag(arg: string, rest: string[], command: CommandName): Typed {
  const equals = arg.indexOf("=");
  const name = arg.slice(2, equals < 0 ? undefined : equals);
  const flag = flagByName(name);
  if (flag === undefined) throw unknownFlag(`--${name}`, name, command);
  const shown = `--${flag.name}`;
  if (equals >= 0) return { flag, shown, text: arg.slice(equals + 1) };
  return { flag, shown, text: isSwitch(flag.kind) ? "true" : valueAfter(shown, rest) };
}

/** `-v 2`, `-v=2`, `-v2`, `-hv2`. */
function* shortFlags(arg: string, rest: string[], command: CommandName): Generator<Typed> {
  for (let letters = arg.slice(1); letters !== "";) {
    const flag = flagByLetter(letters.charAt(0));
    if (flag === undefined) throw unknownFlag(arg, arg.slice(1).split("=", 1)[0] ?? "", command);
    const shown = `-${letters.charAt(0)}`;
    letters = letters.slice(1);
    const isAlone = isSwitch(flag.kind) && !letters.startsWith("=");
    const value = isAlone ? "true" : letters === "" ? valueAfter(shown, rest) : letters.replace(/^=/, "");
    yield { flag, shown, text: value };
    if (!isAlone) return;
  }
}

function valueAfter(shown: string, rest: string[]): string {
  const text = rest.shift();
  if (text === undefined) throw new UsageError(`Flag "${shown}" needs a value: write ${shown}=VALUE`);
  return text;
}

function unknownFlag(typed: string, name: string, command: CommandName): UsageError {
  const flags = FLAGS.filter((flag) => flag.commands.includes(command));
  const dressed = (word: string): string => `--${word}`;
  const [current, old] = [flags.filter((flag) => flag.note === undefined), flags]
    .map((some) => didYouMean(name, some.map((flag) => flag.name), dressed));
  return new UsageError(`Unknown flag "${typed}"${current || old}`);
}

function checkOperands(command: CommandName, operands: readonly string[]): void {
  const { most = 0, operands: name = "" } = COMMAND_ENTRIES[command];
  if (operands.length <= most) return;
  const got = `got [${operands.map((operand) => `"${operand}"`).join(" ")}]`;
  if (most > 1) throw new UsageError(`"kproxy ${command}" takes ${name}, ${got}`);
  if (most > 0) throw new UsageError(`"kproxy ${command}" takes one ${name} at most, ${got}`);
  const only = operands.length === 1 && /^(true|false)$/i.test(operands[0] ?? "");
  const hint = only ? `: write a switch's value with "=", as --flag=${operands[0]}` : "";
  throw new UsageError(`"kproxy ${command}" does not take any arguments, ${got}${hint}`);
}
