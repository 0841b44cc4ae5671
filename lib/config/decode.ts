/**
 * Decodes a document into the values of its fields, and the problems of those that cannot be read.
 *
 * @module
 */
import type { Problem } from "../errors.ts";
import { type Field, fieldOf, FIELDS, joinPath, OBSOLETE } from "./fields.ts";
import { KINDS } from "./kinds.ts";
import type { FieldValue } from "./setting.ts";
import { closestWord } from "./suggest.ts";
import type { YamlEntry, YamlReader } from "./yaml_reader.ts";

/** Values and problems of a document. */
export interface Decoded {
  /** Values by path; absent and null fields are not in it. */
  readonly values: ReadonlyMap<string, FieldValue>;
  /** Lines by path, of sections, fields and list items. */
  readonly lines: ReadonlyMap<string, number>;
  /** Paths of fields, sections and items that are given but could not be read. */
  readonly failed: ReadonlySet<string>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
}

const ENVELOPE: readonly string[] = ["apiVersion", "kind"];
/** Names of the fields and sections inside each section; `""` is the top level. */
const NAMES_IN = namesBySection();

/**
 * The fields of a document.
 *
 * @param lenient unknown fields, fields given twice and names in the wrong case are warnings, as in kube-proxy
 */
export function decodeDocument(reader: YamlReader, lenient: boolean): Decoded {
  const decoding = new Decoding(reader, lenient);
  decoding.section("", reader.root);
  decoding.finish();
  return decoding;
}

class Decoding implements Decoded {
  readonly values = new Map<string, FieldValue>();
  readonly lines = new Map<string, number>();
  readonly failed = new Set<string>();
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];

  /** Value of `conntrack.max`; 0 if it is not given. */
  #max = 0;

  constructor(readonly reader: YamlReader, readonly lenient: boolean) {}

  section(path: string, node: unknown): void {
    const entries = this.reader.entries(node);
    if (entries === undefined) {
      if (this.reader.scalar(node) === null) return;
      this.failed.add(path);
      this.problems.push({
        path,
        message: `wanted a map of fields, found ${this.reader.describe(node)}`,
        line: this.reader.lineOf(node),
      });
      return;
    }
    for (const entry of this.#withoutRepeats(path, entries)) this.#entry(path, entry);
  }

  /** Applies the obsolete fields that win over those that replaced them, wherever they stand. */
  finish(): void {
    // A fixed limit is the same as a least limit that so few connections per CPU never exceed.
    if (this.#max > 0) this.values.set("conntrack.maxPerCore", 1).set("conntrack.min", this.#max);
  }

  #entry(section: string, entry: YamlEntry): void {
    const path = joinPath(section, entry.name);
    if (section === "" && ENVELOPE.includes(entry.name)) return;
    this.lines.set(path, entry.line);
    const field = fieldOf(path);
    if (field !== undefined) this.#value(field, entry);
    else if (NAMES_IN.has(path)) this.section(path, entry.value);
    else if (OBSOLETE.has(path)) this.#obsolete(path, entry);
    else this.#strictness({ path, message: unknownField(section, entry.name), line: entry.line });
  }

  #value({ path, kind }: Field, entry: YamlEntry): void {
    const { reader } = this;
    if (reader.scalar(entry.value) === null) return;
    const value = KINDS[kind].decode({
      node: entry.value,
      reader,
      report: (message, suffix = "", at = entry.value) => {
        this.failed.add(path + suffix);
        this.problems.push({ path: path + suffix, message, line: this.#lineAt(at, entry) });
      },
      place: (suffix, at) => this.lines.set(path + suffix, reader.lineOf(at)),
    });
    if (value !== undefined && !this.failed.has(path)) this.values.set(path, value);
  }

  /** The last of several entries of the same name wins. */
  #withoutRepeats(section: string, entries: readonly YamlEntry[]): YamlEntry[] {
    const last = new Map<string, YamlEntry>();
    for (const entry of entries) {
      const earlier = last.get(entry.name);
      if (earlier !== undefined) {
        const message = `the field is given twice, first on line ${earlier.line}`;
        this.#strictness({ path: joinPath(section, entry.name), message, line: entry.line });
      }
      last.set(entry.name, entry);
    }
    return [...last.values()];
  }

  /** Reports something that kube-proxy would pass over in lenient decoding. */
  #strictness(problem: Problem): void {
    if (this.lenient) this.warnings.push({ ...problem, message: `${problem.message} (ignored)` });
    else this.problems.push(problem);
  }

  #obsolete(path: string, entry: YamlEntry): void {
    const value = this.reader.scalar(entry.value);
    if (value === null || value === "") return;
    const field = OBSOLETE.get(path);
    const target = field?.renamedTo;
    const warn = (message: string) => this.warnings.push({ path, message, line: entry.line });
    if (target !== undefined) {
      if (typeof value === "string" && !this.values.get(target)) this.values.set(target, value);
      warn(`obsolete name, use ${target}`);
    } else if (path === "conntrack.max") this.#conntrackMax(entry, warn);
    else warn(`obsolete field without effect: ${field?.note ?? ""}`);
  }

  #conntrackMax(entry: YamlEntry, warn: (message: string) => void): void {
    const max = this.reader.scalar(entry.value);
    if (typeof max !== "number" || !Number.isInteger(max) || max < 0 || max > 2 ** 31 - 1) {
      const message = `wanted a whole number from 0 to 2147483647, found ${
        this.reader.describe(entry.value)
      }`;
      this.problems.push({ path: "conntrack.max", message, line: this.#lineAt(entry.value, entry) });
      return;
    }
    this.#max = max;
    if (max > 0) warn(`obsolete field, read as conntrack.maxPerCore: 1 and conntrack.min: ${max}`);
  }

  #lineAt(node: unknown, entry: YamlEntry): number {
    return node === null || node === undefined ? entry.line : this.reader.lineOf(node);
  }
}

function unknownField(section: string, name: string): string {
  const siblings = [...NAMES_IN.get(section) ?? []];
  const otherCase = siblings.find((sibling) => sibling.toLowerCase() === name.toLowerCase());
  if (otherCase !== undefined) {
    return `unknown field: names are case-sensitive, did you mean ${JSON.stringify(otherCase)}?`;
  }
  const elsewhere = FIELDS.find(({ path }) => `.${path}`.toLowerCase().endsWith(`.${name.toLowerCase()}`));
  if (elsewhere !== undefined) return `unknown field, did you mean ${JSON.stringify(elsewhere.path)}?`;
  const nearest = closestWord(name, siblings);
  return nearest === undefined ? "unknown field" : `unknown field, did you mean ${JSON.stringify(nearest)}?`;
}

function namesBySection(): ReadonlyMap<string, ReadonlySet<string>> {
  const names = new Map<string, Set<string>>([["", new Set(ENVELOPE)]]);
  for (const { path } of FIELDS) {
    let section = "";
    for (const name of path.split(".")) {
      const known = names.get(section) ?? new Set();
      names.set(section, known.add(name));
      section = joinPath(section, name);
    }
  }
  return names;
}
