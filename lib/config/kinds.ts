/**
 * The kinds of settings: for each, how a value is read from a file and from a flag's text, how it is written, and what help, documents
 * and the chart's schema call it.
 *
 * @module
 */
import { parseIp } from "../model/ip.ts";
import { hostPort } from "./checks.ts";
import {
  boolOf,
  fail,
  formatDuration,
  INT32_MAX,
  INT32_MIN,
  parseDuration,
  parseGates,
  parseInt32,
  parseVmodule,
  splitCsv,
  ValueError,
} from "./value_texts.ts";
import type { YamlReader } from "./yaml_reader.ts";

export interface VmoduleItem {
  filePattern: string;
  verbosity: number;
}

/** Types of the values of each kind in configurations and flags. */
export interface KindValues {
  string: string;
  bool: boolean;
  int: number;
  /** A verbosity: decimal, and never negative. */
  level: number;
  float: number;
  /** Milliseconds; Go's text in files and flags. */
  duration: number;
  /** Milliseconds; a file may have a whole number of nanoseconds. */
  nanoseconds: number;
  /** Kubernetes quantity, e.g. `0` or `64Mi`. */
  quantity: string;
  /** Comma separated with CSV quoting; repeating the flag appends. */
  list: string[];
  /** One item for each time the flag is given; commas have no meaning. */
  paths: string[];
  /** An IP address; a blank flag keeps what was set before. */
  ip: string;
  /** `IP` or `IP:port`; a blank flag keeps what was set before. */
  address: string;
  /** Map of gate name to boolean, `A=true,B=false`; repeating the flag merges. */
  gates: Record<string, boolean>;
  /** `pattern=N,…`; repeating the flag appends. */
  vmodule: VmoduleItem[];
  /** `true`, `raw` or a version to report. */
  version: string;
}

export type KindName = keyof KindValues;

/** A value in a document that is being decoded. */
export interface Reading {
  readonly node: unknown;
  readonly reader: YamlReader;
  /** Reports a problem; `suffix` and `at` name the item of a list or map it is about. */
  readonly report: (message: string, suffix?: string, at?: unknown) => void;
  /** Records the line of an item of a list or map. */
  readonly place: (suffix: string, at: unknown) => void;
}

/** A kind of settings. */
export interface Kind<Value> {
  /** Name in documents. */
  readonly name: string;
  /** Stands for the value of a flag in help. */
  readonly word: string;
  /** Text of a flag without a default. */
  readonly blank: string;
  /** JSON schema of the field; null stands for a field that is not given. */
  readonly schema: { readonly type: readonly string[]; readonly [key: string]: unknown };
  /** The value in a document; undefined if something was reported. */
  decode(reading: Reading): Value | undefined;
  /** The value of a flag. @throws {ValueError} */
  parse(text: string, previous: Value | undefined): Value;
  /** Text of a value in a flag; `String` without this. */
  show?(value: Value): string;
}

const string: Kind<string> = {
  name: "string",
  word: "TEXT",
  blank: "",
  schema: { type: ["string", "null"] },
  decode: (reading) => {
    const { reader, node } = reading;
    const value = reader.scalar(node);
    if (typeof value === "string") return value;
    const hint = value === undefined ? "" : `: write it in quotes, ${JSON.stringify(reader.source(node))}`;
    return wanted(reading, "a string", hint);
  },
  parse: (text) => text,
};

const int: Kind<number> = {
  name: "whole number",
  word: "N",
  blank: "0",
  schema: { type: ["integer", "null"] },
  decode: (reading) => decodeWhole(reading, INT32_MIN, INT32_MAX),
  parse: parseInt32,
};

const duration: Kind<number> = {
  name: "duration",
  word: "DURATION",
  blank: "0s",
  schema: { type: ["string", "null"] },
  decode: (reading) => {
    const value = reading.reader.scalar(reading.node);
    const durationMs = typeof value === "string" ? parseDuration(value) : null;
    if (durationMs !== null) return durationMs;
    const isNumber = /^[-+]?\d+(\.\d+)?$/.test(String(value));
    return wanted(
      reading,
      'a duration such as "30s" or "1h30m"',
      isNumber ? `: it needs a unit, as in "${value}s"` : "",
    );
  },
  parse: (text) => parseDuration(text) ?? fail("want a duration like 30s or 1h30m"),
  show: formatDuration,
};

const list: Kind<string[]> = {
  name: "list of strings",
  word: "ITEM,…",
  blank: "[]",
  schema: { type: ["array", "null"], items: { type: "string" } },
  decode: decodeStrings,
  parse: (text, previous = []) => [...previous, ...splitCsv(text)],
  show: (items) => `[${items.join(",")}]`,
};

/** All kinds by name. */
export const KINDS: { readonly [Name in KindName]: Kind<KindValues[Name]> } = {
  string,
  bool: {
    name: "boolean",
    word: "",
    blank: "false",
    schema: { type: ["boolean", "null"] },
    decode: (reading) => {
      const value = reading.reader.scalar(reading.node);
      if (typeof value === "boolean") return value;
      const isQuoted = typeof value === "string" && /^(true|false|yes|no|on|off)$/i.test(value);
      return wanted(reading, "true or false", isQuoted ? ": write it without quotes" : "");
    },
    parse: (text) => boolOf(text) ?? fail("want true or false"),
  },
  int,
  level: {
    ...int,
    schema: { type: ["integer", "null"], minimum: 0 },
    decode: (reading) => decodeWhole(reading, 0, 2 ** 32 - 1),
    // Decimal whatever it begins with, as kube-proxy reads a verbosity.
    parse: (text) =>
      /^\d+$/.test(text) && Number(text) <= INT32_MAX
        ? Number(text)
        : fail(`want an integer from 0 to ${INT32_MAX}`),
  },
  float: {
    name: "number",
    word: "NUMBER",
    blank: "0",
    schema: { type: ["number", "null"] },
    decode: (reading) => {
      const value = reading.reader.scalar(reading.node);
      if (typeof value === "number" && Number.isFinite(Math.fround(value))) return value;
      return wanted(reading, "a number", numberHint(value));
    },
    parse: (text) =>
      /^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/.test(text) ? Number(text) : fail("want a number"),
  },
  duration,
  nanoseconds: {
    ...duration,
    name: "duration, or nanoseconds",
    schema: { type: ["string", "integer", "null"] },
    decode: (reading) => {
      const value = reading.reader.scalar(reading.node);
      return Number.isInteger(value) ? Number(value) / 1_000_000 : duration.decode(reading);
    },
  },
  quantity: {
    name: "quantity",
    word: "SIZE",
    blank: "",
    schema: { type: ["string", "number", "null"] },
    decode: (reading) => {
      const value = reading.reader.scalar(reading.node);
      const isText = typeof value === "string" || typeof value === "number";
      return isText && QUANTITY.test(String(value))
        ? String(value)
        : wanted(reading, 'a quantity such as "0" or "64Ki"');
    },
    parse: (text) => QUANTITY.test(text) ? text : fail("want a quantity like 0, 512Ki or 64Mi"),
  },
  list,
  paths: {
    ...list,
    word: "PATH",
    parse: (text, previous = []) => text === "" ? fail("want a path or -") : [...previous, text],
  },
  ip: {
    ...string,
    word: "IP",
    parse: (text) => {
      const trimmed = text.trim();
      return trimmed === "" || parseIp(trimmed) !== null ? trimmed : fail("want an IP address");
    },
  },
  address: {
    ...string,
    word: "IP[:PORT]",
    parse: (text) => {
      const trimmed = text.trim();
      if (hostPort(trimmed).length === 0 || parseIp(trimmed) !== null) return trimmed;
      return fail("want an IP address or IP:port, with IPv6 as [IP]:port");
    },
  },
  gates: {
    name: "map of booleans",
    word: "NAME=BOOL,…",
    blank: "",
    schema: { type: ["object", "null"], additionalProperties: { type: "boolean" } },
    decode: decodeGates,
    parse: (text, previous) => ({ ...previous, ...parseGates(text) }),
    show: (gates) => Object.entries(gates).map(([name, on]) => `${name}=${on}`).join(","),
  },
  vmodule: {
    name: "list of `{filePattern, verbosity}`",
    word: "PATTERN=N,…",
    blank: "",
    schema: { type: ["array", "null"], items: { type: "object" } },
    decode: decodeVmodule,
    parse: (text, previous = []) => [...previous, ...parseVmodule(text)],
    show: (items) => items.map(({ filePattern, verbosity }) => `${filePattern}=${verbosity}`).join(","),
  },
  version: {
    ...string,
    word: "",
    blank: "false",
    parse: (text) => {
      if (text === "raw" || /^v\d+\.\d+\.\d+/.test(text)) return text;
      return String(boolOf(text) ?? fail("want true, false, raw or vX.Y.Z"));
    },
  },
};

/** The text of a value as flags have it; null is that of a flag that was not given. */
export function showValue<Name extends KindName>(kind: Name, value: KindValues[Name] | null): string {
  // The table links each name to its own type; the compiler cannot follow the link.
  const { blank, show = String } = KINDS[kind] as Kind<KindValues[Name]>;
  return value === null ? blank : show(value);
}

/** True for a flag that may stand without a value, which means true. */
export function isSwitch(kind: KindName): boolean {
  return kind === "bool" || kind === "version";
}

const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** True for a quantity of nothing, whatever its unit. */
export function isZeroQuantity(text: string): boolean {
  return Number(QUANTITY.exec(text)?.[1] ?? NaN) === 0;
}

function wanted({ node, reader, report }: Reading, what: string, hint = ""): undefined {
  report(`wanted ${what}, found ${reader.describe(node)}${hint}`);
}

function numberHint(value: unknown): string {
  const isQuoted = typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value));
  return isQuoted ? ": write it without quotes" : "";
}

function decodeWhole(reading: Reading, least: number, most: number): number | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most) return value;
  return wanted(reading, `a whole number from ${least} to ${most}`, numberHint(value));
}

function decodeStrings(reading: Reading): string[] | undefined {
  const { node, reader, report, place } = reading;
  const items = reader.items(node);
  if (items === undefined) {
    const text = reader.scalar(node);
    return wanted(reading, "a list of strings", typeof text === "string" ? `: write ["${text}"]` : "");
  }
  return items.map((item, index) => {
    place(`[${index}]`, item);
    const value = reader.scalar(item);
    if (typeof value === "string") return value;
    report(`wanted a string, found ${reader.describe(item)}`, `[${index}]`, item);
    return "";
  });
}

function decodeGates(reading: Reading): Record<string, boolean> | undefined {
  const { node, reader, report, place } = reading;
  const text = reader.scalar(node);
  // The form of kube-proxy before 1.11, `A=true,B=false`.
  if (typeof text === "string") return gatesOfText(text, report);
  const entries = reader.entries(node);
  if (entries === undefined) return wanted(reading, "a map of gate names to true or false");
  const gates = new Map<string, boolean>();
  for (const { name, value: at } of entries) {
    place(`.${name}`, at);
    const enabled = reader.scalar(at);
    if (typeof enabled !== "boolean") {
      report(`wanted true or false, found ${reader.describe(at)}`, `.${name}`, at);
    } else if (gates.has(name)) report("the gate is given twice", `.${name}`, at);
    else gates.set(name, enabled);
  }
  return Object.fromEntries(gates);
}

function gatesOfText(text: string, report: Reading["report"]): Record<string, boolean> | undefined {
  try {
    return parseGates(text);
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    report(`wanted a map of gate names to true or false; in a string: ${error.message}`);
    return undefined;
  }
}

function decodeVmodule(reading: Reading): VmoduleItem[] | undefined {
  const { node, reader, report, place } = reading;
  const items = reader.items(node);
  if (items === undefined) return wanted(reading, "a list of {filePattern, verbosity}");
  return items.map((item, index) => {
    const suffix = `[${index}]`;
    place(suffix, item);
    const found: VmoduleItem = { filePattern: "", verbosity: 0 };
    const entries = reader.entries(item);
    if (entries === undefined) report(`wanted a map, found ${reader.describe(item)}`, suffix, item);
    for (const { name, value: at } of entries ?? []) {
      const value = reader.scalar(at);
      if (value === null) continue;
      place(`${suffix}.${name}`, at);
      const wrong = (what: string) =>
        report(`wanted ${what}, found ${reader.describe(at)}`, `${suffix}.${name}`, at);
      if (name === "filePattern") {
        if (typeof value === "string") found.filePattern = value;
        else wrong("a string");
      } else if (name === "verbosity") {
        if (typeof value === "number" && value >= 0 && Number.isInteger(value)) found.verbosity = value;
        else wrong("a whole number from 0");
      } else report('unknown field: wanted "filePattern" and "verbosity"', `${suffix}.${name}`, at);
    }
    return found;
  });
}
