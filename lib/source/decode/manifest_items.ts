/**
 * A document of a manifest file → its objects, read or refused.
 *
 * @module
 */
import type { V1ObjectMeta } from "@kubernetes/client-node";
import type { ApiObject } from "../../model/objects.ts";
import type { Raw, RawKubernetesObject, RawList } from "./api_json.ts";
import {
  decodeItem,
  describeItem,
  exclusionOf,
  foreignKind,
  itemsOf,
  type RawItem,
  rawNameOf,
} from "./decode.ts";
import { DecodeError, isAbsent } from "./decode_values.ts";
import { countLines, linePieces } from "../../text/lines.ts";
import type { YamlDocument } from "../../config/yaml_document.ts";
import { parsingOf, shortened } from "../../config/yaml_documents.ts";

/** One object of a file: read, or refused with a reason. */
export interface ManifestItem {
  /** `Service shop/web`: identity among all files; null without a kind or a name. */
  readonly key: string | null;
  /** `Service shop/web`, as far as known. */
  readonly object: string;
  /** 1-based; 0 if not known. */
  readonly line: number;
  /** 1-based, counting documents that hold something. */
  readonly document: number;
  /** The decoded objects; empty if refused. */
  readonly objects: readonly ApiObject[];
  /** Reason why kube-proxy's selectors exclude the object; absent: they do not. */
  readonly exclusion?: string;
  /** Reason of the refusal. */
  readonly refusal?: string;
  /** Its kind, if that is one the proxy does not read. */
  readonly foreign?: string;
}

/** Syntax error that makes a text unreadable, with its place. */
export interface SyntaxProblem {
  readonly line: number;
  readonly document: number;
  readonly message: string;
}

/** One part of a text, with lines and documents counted from its own start (the first is 0). */
export interface ManifestPart {
  readonly items: readonly ManifestItem[];
  readonly documents: number;
  readonly problem?: SyntaxProblem;
}

/**
 * Decodes the objects of a document, in steps of one object each. `line` yields the 0-based line of a path such as
 * `items[0].spec.ports[1].port`, or -1 if that is not known.
 */
export function* decodeDocument(
  raw: unknown,
  document: number,
  line: (path: string) => number,
): Generator<void, ManifestItem[]> {
  const items: ManifestItem[] = [];
  for (const item of itemsOf(raw)) {
    yield;
    const foreign = foreignKind(item);
    if (foreign !== undefined) {
      const object = describeWritten(item);
      items.push({ key: null, object, document, line: -1, objects: [], foreign });
      continue;
    }
    const base = { key: keyOf(item), object: describeWritten(item), document };
    try {
      const objects = decodeItem(item, { manifest: true });
      const exclusion = exclusionOf(item.raw as RawKubernetesObject, String(item.kind));
      items.push({ ...base, line: line(item.path), objects, ...(exclusion === null ? {} : { exclusion }) });
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      items.push({
        ...base,
        line: line(error.path),
        objects: [],
        refusal: error.message,
      });
    }
  }
  return items;
}

/** The name as written, with `default` for a namespace that is not written. */
function writtenName({ raw, kind }: RawItem): Pick<Raw<V1ObjectMeta>, "name" | "namespace"> {
  const { name, namespace } = rawNameOf(raw);
  const isClusterScoped = kind === "Node" || kind === "ServiceCIDR";
  return { name, namespace: isClusterScoped ? undefined : namespace ?? "default" };
}

function keyOf(item: RawItem): string | null {
  const { kind } = item;
  const { name, namespace } = writtenName(item);
  if (typeof kind !== "string" || kind === "" || typeof name !== "string" || name === "") return null;
  if (namespace === undefined) return `${kind} ${name}`;
  return typeof namespace === "string" ? `${kind} ${namespace}/${name}` : null;
}

function describeWritten(item: RawItem): string {
  return describeItem({ kind: item.kind, raw: { metadata: writtenName(item) } });
}

/** Value of one document of a text. */
export interface YamlValue {
  readonly document: YamlDocument;
  readonly raw: unknown;
}

/** Documents of a text that are not empty; incomplete if there is a `problem`. Lines are counted from 0. */
export interface YamlValues {
  readonly values: readonly YamlValue[];
  readonly problem?: { readonly line: number; readonly message: string };
}

/** Reads all documents of a text, without decoding their objects; in steps. */
export function* readYamlValues(text: string): Generator<void, YamlValues> {
  const { documents, fault, lines } = yield* parsingOf(text, { merge: true });
  const values: YamlValue[] = [];
  const broken = (line: number, message: string): YamlValues => ({
    values,
    problem: { line, message: shortened(message) },
  });
  for (const document of documents) {
    const problem = document.faults[0] ?? document.repeatedKey();
    if (problem !== null) return broken(lines.lineAt(problem.offset), problem.message);
    yield;
    let raw: unknown;
    try {
      raw = document.toJs();
    } catch (thrown) {
      if (!(thrown instanceof Error)) throw thrown;
      const [alias] = document.danglingAliases();
      return broken(document.lineOf(alias) ?? document.line, thrown.message);
    }
    if (!isAbsent(raw)) values.push({ document, raw });
    yield;
  }
  return fault === null ? { values } : broken(lines.lineAt(fault.offset), fault.message);
}

/** Segments of a field's path. */
export function segmentsOf(path: string): string[] {
  return [...path.matchAll(/\["([^"]*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map((match) =>
    match[1] ?? match[2] ?? match[3] ?? ""
  );
}

/** A YAML document that is a list, cut at its items. */
export interface SplitList {
  /** The list's `kind` and `apiVersion`, with which its items are read. */
  readonly head: RawList;
  readonly items: readonly ListItemText[];
}

/** One item, from its `-` to the next. */
export interface ListItemText {
  readonly text: string;
  /** 0-based, in the document. */
  readonly line: number;
}

/**
 * Cuts the text of one document at its items, without reading them, in steps. Null if it is no list, or one that is written in another way:
 * that is no fault, but it must be read as a whole, as it must where an item cannot be read by itself.
 */
export function* splitList(text: string): Generator<void, SplitList | null> {
  const bodyStart = yield* onlyBodyOf(text);
  if (bodyStart === null) return null;
  const { items, end } = yield* cutItems(text, bodyStart);
  if (items.length === 0) return null;
  const { values, problem } = yield* readYamlValues(text.slice(0, bodyStart) + text.slice(end));
  const [value] = values;
  if (problem !== undefined || value === undefined || values.length > 1) return null;
  const { kind, apiVersion, items: none } = Object(value.raw) as RawList;
  if (typeof kind !== "string" || !kind.endsWith("List") || !isAbsent(none)) return null;
  return { head: { kind, apiVersion }, items };
}

/** Offset of the first line below the text's one `items:`; null if it has none, or several. */
function* onlyBodyOf(text: string): Generator<void, number | null> {
  let found: number | null = null;
  for (const [start, piece] of linePieces(text)) {
    for (const { index, 0: line } of piece.matchAll(/^items:[ \t]*(?:#.*)?\r?\n/gm)) {
      if (found !== null) return null;
      found = start + index + line.length;
    }
    yield;
  }
  return found;
}

/** Items begin at one indentation; a line with less of it, or the same without a `-`, ends them. */
function* cutItems(
  text: string,
  bodyStart: number,
): Generator<void, { readonly items: ListItemText[]; readonly end: number }> {
  const starts: { readonly offset: number; readonly line: number }[] = [];
  let indent = -1;
  let line = countLines(text, bodyStart);
  let offset = bodyStart;
  for (; offset < text.length; line++) {
    LINE.lastIndex = offset;
    const [whole = "", spaces = "", mark] = LINE.exec(text) ?? [];
    if (mark === "-" && (indent < 0 || spaces.length === indent)) {
      indent = spaces.length;
      starts.push({ offset, line });
    } else if (mark !== undefined && mark !== "#" && spaces.length <= indent) break;
    else if (mark !== undefined && mark !== "#" && indent < 0) break;
    offset += whole.length;
    if (line % LINES_PER_STEP === 0) yield;
  }
  const items = starts.map((start, index) => ({
    text: text.slice(start.offset, starts[index + 1]?.offset ?? offset),
    line: start.line,
  }));
  return { items, end: offset };
}

/** A line: its spaces, and the `-` of an item, the `#` of a comment or whatever else it begins with; nothing if it is blank. */
const LINE = /( *)(?:[ \t\r]*(?:\n|$)|(-(?=[ \t\r\n]|$)|[^])[^\n]*(?:\n|$))/y;

/** Some milliseconds of work. */
const LINES_PER_STEP = 10_000;

/**
 * Reads one item, as the first of its list, in steps; lines are counted from its own. A problem says no more than that it cannot be read by
 * itself: it may refer to an anchor of another item.
 */
export function* readListItem({ text }: ListItemText, head: RawList): Generator<void, ManifestPart> {
  const { values, problem } = yield* readYamlValues(text);
  const [value] = values;
  if (problem !== undefined) return { items: [], documents: 0, problem: { ...problem, document: 0 } };
  if (value === undefined || values.length > 1 || !Array.isArray(value.raw) || value.raw.length !== 1) {
    return {
      items: [],
      documents: 0,
      problem: { line: 0, document: 0, message: "is not one item of a list" },
    };
  }
  const items = yield* decodeDocument({ ...head, items: value.raw }, 0, (path) => {
    // The item's own text has the list alone, not the field that it is in.
    return value.document.lineOfPath(segmentsOf(path).slice(1));
  });
  return { items, documents: 0 };
}

/** The objects, with the index in each refusal raised by the number of items before them in the list. */
export function atIndex(items: readonly ManifestItem[], before: number): readonly ManifestItem[] {
  return items.map((item) => {
    if (item.refusal === undefined) return item;
    const place = (_: string, index: string): string => `items[${before + Number(index)}]`;
    return { ...item, refusal: item.refusal.replace(/^items\[(\d+)\]/, place) };
  });
}

/** Reads the objects of a part that may have several documents, in steps. */
export function* readYaml(text: string): Generator<void, ManifestPart> {
  const { values, problem } = yield* readYamlValues(text);
  const documents = values.length;
  if (problem !== undefined) return { items: [], documents, problem: { ...problem, document: documents } };
  const items: ManifestItem[] = [];
  for (const [index, { document, raw }] of values.entries()) {
    const decoded = yield* decodeDocument(raw, index, (path) => document.lineOfPath(segmentsOf(path)));
    for (const item of decoded) items.push(item);
  }
  return { items, documents };
}
