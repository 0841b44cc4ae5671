/**
 * Reads the value of one field from a document.
 *
 * @module
 */
import { parseDuration } from "./duration.ts";
import { isQuantity } from "./quantity.ts";
import type { FieldKind, FieldSpec, FieldValue, VmoduleItem } from "./schema.ts";
import type { YamlReader } from "./yaml_reader.ts";

/** Reports what is wrong; `suffix` and `at` name the item of a list or map it is about. */
export type Report = (message: string, suffix?: string, at?: unknown) => void;
/** Tells where an item of a list or map stands. */
export type Place = (suffix: string, at: unknown) => void;

interface Reading {
  readonly spec: FieldSpec;
  readonly node: unknown;
  readonly reader: YamlReader;
  readonly report: Report;
  readonly place: Place;
}

const READERS: Readonly<Record<FieldKind, (reading: Reading) => FieldValue | undefined>> = {
  string: readString,
  boolean: readBoolean,
  int32: (reading) => readWhole(reading, -(2 ** 31), 2 ** 31 - 1),
  uint32: (reading) => readWhole(reading, 0, 2 ** 32 - 1),
  float32: readFloat,
  duration: readDuration,
  durationOrNanoseconds: readDurationOrNanoseconds,
  quantity: readQuantity,
  strings: readStrings,
  featureGates: readFeatureGates,
  vmodule: readVmodule,
};

/** The value of a field, null if it says nothing, or undefined if something was reported. */
export function decodeValue(
  spec: FieldSpec,
  node: unknown,
  reader: YamlReader,
  report: Report,
  place: Place,
): FieldValue | undefined {
  if (reader.scalar(node) === null) return null;
  return READERS[spec.kind]({ spec, node, reader, report, place });
}

/** True for null and `""`. */
export function isBlank(node: unknown, reader: YamlReader): boolean {
  const value = reader.scalar(node);
  return value === null || value === "";
}

function wanted({ node, reader, report }: Reading, what: string, hint = ""): undefined {
  report(`wanted ${what}, found ${reader.describe(node)}${hint}`);
}

function readString(reading: Reading): string | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "string") return value;
  const hint = value === undefined ? "" : `: write it in quotes, ${quoted(reading)}`;
  return wanted(reading, "a string", hint);
}

function readBoolean(reading: Reading): boolean | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "boolean") return value;
  const hint = typeof value === "string" && /^(true|false|yes|no|on|off)$/i.test(value)
    ? ": write it without quotes"
    : "";
  return wanted(reading, "true or false", hint);
}

function readWhole(reading: Reading, least: number, most: number): number | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most) return value;
  return wanted(reading, `a whole number from ${least} to ${most}`, numberHint(value));
}

function readFloat(reading: Reading): number | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "number" && Number.isFinite(Math.fround(value))) return value;
  return wanted(reading, "a number", numberHint(value));
}

function readDuration(reading: Reading): number | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value !== "string") {
    const hint = typeof value === "number" ? `: it needs a unit, as in "${value}s"` : "";
    return wanted(reading, 'a duration such as "30s" or "1h30m"', hint);
  }
  try {
    return parseDuration(value);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    reading.report(`Invalid value: ${JSON.stringify(value)}: ${error.message}`);
    return undefined;
  }
}

function readDurationOrNanoseconds(reading: Reading): number | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value === "number" && Number.isInteger(value)) return value / 1_000_000;
  return readDuration(reading);
}

function readQuantity(reading: Reading): string | undefined {
  const value = reading.reader.scalar(reading.node);
  if (typeof value !== "string" && typeof value !== "number") {
    return wanted(reading, 'a quantity such as "64Ki"');
  }
  const text = String(value);
  if (isQuantity(text)) return text;
  reading.report(`Invalid value: ${JSON.stringify(text)}: must be a quantity such as "0" or "64Ki"`);
  return undefined;
}

function readStrings(reading: Reading): string[] | undefined {
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

function readFeatureGates(reading: Reading): Record<string, boolean> | undefined {
  const { node, reader, report, place } = reading;
  const text = reader.scalar(node);
  if (typeof text === "string") return readGateText(text, report);
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

/** The form of kube-proxy before 1.11, `A=true,B=false`. */
function readGateText(text: string, report: Report): Record<string, boolean> | undefined {
  const gates = new Map<string, boolean>();
  for (const item of text.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
    const [, name, value] = /^([^=]+)=(true|false)$/i.exec(item) ?? [];
    if (name === undefined || value === undefined) {
      report(`wanted a map of gate names to true or false, found ${JSON.stringify(item)} in a string`);
      return undefined;
    }
    gates.set(name.trim(), value.toLowerCase() === "true");
  }
  return Object.fromEntries(gates);
}

function readVmodule(reading: Reading): VmoduleItem[] | undefined {
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
      if (name === "filePattern" && typeof value === "string") found.filePattern = value;
      else if (name === "verbosity" && typeof value === "number" && value >= 0 && Number.isInteger(value)) {
        found.verbosity = value;
      } else report(vmoduleProblem(name, reader.describe(at)), `${suffix}.${name}`, at);
    }
    return found;
  });
}

function vmoduleProblem(name: string, found: string): string {
  if (name === "filePattern") return `wanted a string, found ${found}`;
  if (name === "verbosity") return `wanted a whole number from 0, found ${found}`;
  return 'unknown field: wanted "filePattern" and "verbosity"';
}

function quoted({ reader, node }: Reading): string {
  return JSON.stringify(reader.source(node));
}

function numberHint(value: unknown): string {
  return typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value))
    ? ": write it without quotes"
    : "";
}
