/**
 * A `List` of objects as `kubectl get -o yaml` prints it, item by item: the whole of a large one would need a gigabyte at once, and
 * all of it for each edit.
 *
 * @module
 */
import { countLines } from "../../text/lines.ts";
import type { RawList } from "./api_json.ts";
import { isAbsent } from "./decode_values.ts";
import { decodeDocument, type ManifestItem, type ManifestPart, segmentsOf } from "./manifest_items.ts";
import { linePieces } from "../../text/line_pieces.ts";
import { readingYamlValues } from "./manifest_yaml.ts";

/** A YAML document that is a list, cut at its items. */
export interface SplitList {
  /** What its items are read with: `kind` and `apiVersion`. */
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
 * nothing is wrong with it then, but it must be read as a whole. So it must be where an item cannot be read by itself.
 */
export function* splitList(text: string): Generator<void, SplitList | null> {
  const bodyStart = yield* onlyBodyOf(text);
  if (bodyStart === null) return null;
  const { items, end } = yield* cutItems(text, bodyStart);
  if (items.length === 0) return null;
  const { values, problem } = yield* readingYamlValues(text.slice(0, bodyStart) + text.slice(end));
  const [value] = values;
  if (problem !== undefined || value === undefined || values.length > 1) return null;
  const { kind, apiVersion, items: none } = Object(value.raw) as RawList;
  if (typeof kind !== "string" || !kind.endsWith("List") || !isAbsent(none)) return null;
  return { head: { kind, apiVersion }, items };
}

/** Where the one `items:` of the text has its first line; null if it has none, or several. */
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
 * Reads one item, as the first of its list, in steps; lines are counted from its own. A problem tells no more than that it cannot be read by
 * itself: it may refer to an anchor of another item.
 */
export function* readListItem({ text }: ListItemText, head: RawList): Generator<void, ManifestPart> {
  const { values, problem } = yield* readingYamlValues(text);
  const [value] = values;
  if (problem !== undefined) return { items: [], documents: 0, problem: { ...problem, document: 0 } };
  if (value === undefined || values.length > 1 || !Array.isArray(value.raw) || value.raw.length !== 1) {
    return {
      items: [],
      documents: 0,
      problem: { line: 0, document: 0, message: "is not one item of a list" },
    };
  }
  const items = decodeDocument({ ...head, items: value.raw }, 0, (path) => {
    // The item's own text has the list alone, not the field that it is in.
    return value.document.lineOfPath(segmentsOf(path).slice(1));
  });
  return { items, documents: 0 };
}

/** The objects of items before which the list has so many others. */
export function atIndex(items: readonly ManifestItem[], before: number): readonly ManifestItem[] {
  return items.map((item) => {
    if (item.refusal === undefined) return item;
    const place = (_: string, index: string): string => `items[${before + Number(index)}]`;
    return { ...item, refusal: item.refusal.replace(/^items\[(\d+)\]/, place) };
  });
}
