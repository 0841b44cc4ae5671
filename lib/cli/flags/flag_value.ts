/**
 * How the text of each type of flag becomes a value, with kube-proxy's spellings.
 *
 * @module
 */
import { parseDuration } from "../../config/duration.ts";
import { parseIp } from "../../model/ip.ts";
import { oneOf } from "../../text/words.ts";
import {
  type CommandName,
  type Flag,
  type FlagType,
  type FlagValue,
  type FlagValueTypes,
  valuesOf,
} from "./flag.ts";
import { didYouMean } from "../suggest.ts";

const INT32_MAX = 2 ** 31 - 1;
const INT32_MIN = -(2 ** 31);
const TRUE_WORDS: readonly string[] = ["1", "t", "T", "TRUE", "true", "True"];
const FALSE_WORDS: readonly string[] = ["0", "f", "F", "FALSE", "false", "False"];

/** Thrown for a text that is no value of the type; the message says what is wanted. */
class ValueError extends Error {}

type Parsers = {
  readonly [Type in FlagType]: (
    text: string,
    previous: FlagValueTypes[Type] | undefined,
  ) => FlagValueTypes[Type];
};

const PARSERS: Parsers = {
  string: (text) => text,
  bool: parseBool,
  int: parseInt32,
  level: parseLevel,
  float: parseFloatText,
  duration: (text) => {
    try {
      return parseDuration(text);
    } catch (error) {
      throw new ValueError("want a duration like 30s or 1h30m", { cause: error });
    }
  },
  list: (text, previous) => [...(previous ?? []), ...splitCsv(text)],
  paths: (text, previous) => {
    if (text === "") throw new ValueError("want a path or -");
    return [...(previous ?? []), text];
  },
  ip: (text) => {
    const trimmed = text.trim();
    if (trimmed !== "" && parseIp(trimmed) === null) throw new ValueError("want an IP address");
    return trimmed;
  },
  address: (text) => {
    const trimmed = text.trim();
    if (trimmed !== "" && !isAddress(trimmed)) {
      throw new ValueError("want an IP address or IP:port, with IPv6 as [IP]:port");
    }
    return trimmed;
  },
  gates: (text, previous) => ({ ...previous, ...parseGates(text) }),
  vmodule: (text, previous) => [...(previous ?? []), ...parseVmodule(text)],
  quantity: (text) => {
    if (!/^[+-]?(\d+(\.\d*)?|\.\d+)([numkKMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$/.test(text)) {
      throw new ValueError("want a quantity like 0, 512Ki or 64Mi");
    }
    return text;
  },
  version: (text) => {
    if (text === "raw" || /^v\d+\.\d+\.\d+/.test(text)) return text;
    try {
      return String(parseBool(text));
    } catch (error) {
      throw new ValueError("want true, false, raw or vX.Y.Z", { cause: error });
    }
  },
};

/**
 * The value of `text` for a flag of a command, that had the value `previous` before.
 *
 * @returns the value, or `problem`: what is wanted, to follow "Invalid value …: "
 */
export function parseFlagValue(
  flag: Flag,
  text: string,
  previous: FlagValue | undefined,
  command?: CommandName,
): { readonly value: FlagValue } | { readonly problem: string } {
  try {
    // A type's parser takes and gives that type's values; the compiler cannot follow the link through the table.
    const parse = PARSERS[flag.type] as (text: string, previous: FlagValue | undefined) => FlagValue;
    const value = parse(text, previous);
    checkChoice(flag, valuesOf(flag, command), text, value);
    return { value };
  } catch (error) {
    if (error instanceof ValueError) return { problem: error.message };
    throw error;
  }
}

/** @param value what the text led to, with what was given before */
function checkChoice(
  { name, type, isOpen, withoutIt }: Flag,
  values: readonly string[] | undefined,
  text: string,
  value: FlagValue,
): void {
  if (values === undefined || isOpen || (type !== "string" && type !== "list")) return;
  if (text === "") {
    const isBlank = value === "" || (Array.isArray(value) && value.length === 0);
    if (isBlank && withoutIt !== undefined) {
      throw new ValueError(`want ${oneOf(values)}; without --${name} ${withoutIt}`);
    }
    return;
  }
  const wrong = (type === "list" ? splitCsv(text) : [text]).find((word) => !values.includes(word));
  if (wrong !== undefined) throw new ValueError(`want ${oneOf(values)}${didYouMean(wrong, values)}`);
}

function parseBool(text: string): boolean {
  if (TRUE_WORDS.includes(text)) return true;
  if (FALSE_WORDS.includes(text)) return false;
  throw new ValueError("want true or false");
}

/** Decimal whatever it begins with, as kube-proxy reads a verbosity. */
function parseLevel(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > INT32_MAX) {
    throw new ValueError(`want an integer from 0 to ${INT32_MAX}`);
  }
  return value;
}

/** As pflag reads it: decimal, or with a Go prefix (0x, 0o, 0b, a leading 0 for octal); `_` may part digits. */
function parseInt32(text: string): number {
  const bare = text.replace(/(?<=[\da-fxob])_(?=[\da-f])/gi, "");
  const match = /^([+-]?)(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[1-9]\d*|0)$/.exec(bare);
  if (match === null) throw new ValueError("want an integer");
  const digits = match[2] ?? "0";
  const value = Number(/^0[0-7]/.test(digits) ? `0o${digits.slice(1)}` : digits) *
    (match[1] === "-" ? -1 : 1);
  if (value < INT32_MIN || value > INT32_MAX) {
    throw new ValueError(`want an integer from ${INT32_MIN} to ${INT32_MAX}`);
  }
  // Not -0, which `Object.is` and JSON tell apart from 0.
  return value === 0 ? 0 : value;
}

function parseFloatText(text: string): number {
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/.test(text)) throw new ValueError("want a number");
  return Number(text);
}

/** Fields of one CSV line, as kube-proxy splits the value of a list flag. */
function splitCsv(text: string): string[] {
  if (text === "") return [];
  const fields: string[] = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/y;
  for (;;) {
    const match = field.exec(text);
    if (match === null) throw new ValueError('want a comma separated list; a " must enclose a whole item');
    fields.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === "") return fields;
  }
}

function isAddress(text: string): boolean {
  if (parseIp(text) !== null) return true;
  const match = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(text);
  if (match === null) return false;
  const port = Number(match[3]);
  return parseIp(match[1] ?? match[2] ?? "") !== null && port >= 1 && port <= 65535;
}

function parseGates(text: string): Record<string, boolean> {
  const gates: Record<string, boolean> = {};
  for (const item of text.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
    const [name = "", value, ...more] = item.split("=").map((part) => part.trim());
    if (name === "" || value === undefined || more.length > 0) {
      throw new ValueError(`want NAME=true or NAME=false, found "${item}"`);
    }
    try {
      gates[name] = parseBool(value);
    } catch (error) {
      throw new ValueError(`want true or false for "${name}", found "${value}"`, { cause: error });
    }
  }
  return gates;
}

function parseVmodule(text: string): { filePattern: string; verbosity: number }[] {
  return text.split(",").filter((item) => item !== "").map((item) => {
    const match = /^([^=]+)=(\d+)$/.exec(item);
    const verbosity = Number(match?.[2]);
    if (match === null || verbosity > INT32_MAX) {
      throw new ValueError(`want pattern=N with commas between, found "${item}"`);
    }
    return { filePattern: match[1] ?? "", verbosity };
  });
}
