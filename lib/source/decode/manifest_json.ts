/**
 * A long JSON text with a list of objects, item by item: the runtime's parser lets no other work go on until it has read all that it
 * is given.
 *
 * @module
 */
import { countLines, LineStarts } from "../../text/lines.ts";
import type { RawList } from "./api_json.ts";
import { itemsOf } from "./decode.ts";
import { DecodeError } from "./decode_values.ts";
import { JsonListReader, type ListItems, parseItems } from "./json_list_reader.ts";
import {
  atIndex,
  decodeDocument,
  type ManifestItem,
  type ManifestPart,
  segmentsOf,
} from "./manifest_items.ts";

/** More values than two such objects for each of 44,000 Services have; each costs some 50 bytes. */
const MAX_JSON_VALUES = 5_000_000;

/** A fraction of a millisecond of work. */
const CHARACTERS_PER_STEP = 2 ** 15;

const QUOTE = 0x22;
const COMMA = 0x2c;

/** Reads a list in steps. Null if it must be read as a whole: it is no list of objects, or something of it is no JSON. */
export function* readLongJson(
  text: string,
  maxValues: number = MAX_JSON_VALUES,
): Generator<void, ManifestPart | null> {
  const list = new JsonListReader({ maxLength: Infinity, wholeLength: 0, maxValues });
  let at = 0;
  try {
    const groups: Group[] = [];
    for (; at < text.length; at += CHARACTERS_PER_STEP) {
      for (const { text: { length }, ...group } of list.push(text.slice(at, at + CHARACTERS_PER_STEP))) {
        const start = groups.at(-1)?.end ?? list.headLength;
        groups.push({ ...group, start: start + 1, end: start + length - 1 });
      }
      yield;
    }
    const head = list.end() as RawList | null;
    // What stands around the items must have no other `items`, however it is written.
    const around = text.slice(0, list.headLength) + text.slice(groups.at(-1)?.end);
    if (!Array.isArray(head?.items) || around.includes("\\")) return null;
    // One that is no list would be an item itself.
    for (const _ of itemsOf(head)) return null;
    const items = yield* decodeGroups(text, head, groups, false);
    if (items.every(({ refusal }) => refusal === undefined)) return { items, documents: 1 };
    // Only a refusal needs lines.
    return { items: yield* decodeGroups(text, head, groups, true), documents: 1 };
  } catch (error) {
    if (!(error instanceof DecodeError || error instanceof SyntaxError)) throw error;
    if (list.tooManyAt < 0) return null;
    const line = countLines(text, at + list.tooManyAt);
    return { items: [], documents: 1, problem: { line, document: 0, message: error.message } };
  }
}

/** Items that stand together, from `start` to `end` of the text. */
type Group = Omit<ListItems, "text"> & { readonly start: number; readonly end: number };

function* decodeGroups(
  text: string,
  { kind, apiVersion }: RawList,
  groups: readonly Group[],
  hasLines: boolean,
): Generator<void, readonly ManifestItem[]> {
  const decoded: ManifestItem[] = [];
  let [at, line] = [0, 0];
  for (const { start, end, ...group } of groups) {
    const part = `[${text.slice(start, end)}]`;
    const items = parseItems({ ...group, text: part });
    let lineOf = (_: string): number => -1;
    if (hasLines) {
      line += countLines(text.slice(at, start));
      at = start;
      const [first, places] = [line, new JsonPlaces(part)];
      lineOf = (path) => first + places.lineOf(segmentsOf(path).slice(1));
    }
    const found = yield* decodeDocument({ kind, apiVersion, items }, 0, lineOf);
    for (const item of atIndex(found, group.first)) decoded.push(item);
    yield;
  }
  return decoded;
}

const BACKSLASH = 0x5c;
const COLON = 0x3a;
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/** Finds values by their paths. The text must be JSON that has been parsed. */
export class JsonPlaces {
  readonly #text: string;
  readonly #lines: LineStarts;
  /** By the offset of a list, those of its elements. */
  readonly #elements = new Map<number, readonly number[]>();

  constructor(text: string) {
    this.#text = text;
    this.#lines = LineStarts.of(text);
  }

  /** 0-based line of the deepest part of a path that the text has: of a field's name, or of where an element begins. */
  lineOf(path: readonly string[]): number {
    let at = blankEnd(this.#text, 0);
    let found = at;
    for (const step of path) {
      const opening = this.#text.charAt(at);
      const place = opening === "["
        ? this.#element(at, Number(step))
        : opening === "{"
        ? this.#member(at, step)
        : undefined;
      if (place === undefined) break;
      found = place.begin;
      at = place.value;
    }
    return this.#lines.lineAt(found);
  }

  #element(list: number, index: number): { readonly begin: number; readonly value: number } | undefined {
    let elements = this.#elements.get(list);
    if (elements === undefined) {
      elements = [...partsOf(this.#text, list)];
      this.#elements.set(list, elements);
    }
    const begin = elements[index];
    return begin === undefined ? undefined : { begin, value: begin };
  }

  /** Of a name that is there twice the last one counts, as in parsing. */
  #member(object: number, name: string): { readonly begin: number; readonly value: number } | undefined {
    let found: { readonly begin: number; readonly value: number } | undefined;
    for (const begin of partsOf(this.#text, object)) {
      const end = stringEnd(this.#text, begin);
      if (JSON.parse(this.#text.slice(begin, end)) !== name) continue;
      found = { begin, value: blankEnd(this.#text, blankEnd(this.#text, end) + 1) };
    }
    return found;
  }
}

/** Where the elements of the list, or the names of the object, at `at` begin. */
function* partsOf(text: string, at: number): Generator<number> {
  let part = blankEnd(text, at + 1);
  while (part < text.length && !CLOSING.has(text.charCodeAt(part))) {
    yield part;
    let end = blankEnd(text, valueEnd(text, part));
    if (text.charCodeAt(end) === COLON) end = blankEnd(text, valueEnd(text, blankEnd(text, end + 1)));
    part = text.charCodeAt(end) === COMMA ? blankEnd(text, end + 1) : end;
  }
}

function valueEnd(text: string, at: number): number {
  let depth = 0;
  let next = at;
  do {
    const code = text.charCodeAt(next);
    if (code === QUOTE) {
      next = stringEnd(text, next);
      continue;
    }
    if (OPENING.has(code)) depth++;
    else if (CLOSING.has(code)) depth--;
    else if (depth === 0) return plainEnd(text, next);
    next++;
  } while (depth > 0 && next < text.length);
  return next;
}

/** Of a number or a word. */
function plainEnd(text: string, at: number): number {
  PLAIN.lastIndex = at;
  return PLAIN.test(text) ? PLAIN.lastIndex : at + 1;
}

const PLAIN = /[^\s,:[\]{}"]+/y;

/** After the closing quote of the string that begins at `at`. */
function stringEnd(text: string, at: number): number {
  let end = text.indexOf('"', at + 1);
  while (end >= 0) {
    let slashes = 0;
    while (text.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return end + 1;
    end = text.indexOf('"', end + 1);
  }
  return text.length;
}

function blankEnd(text: string, at: number): number {
  let end = at;
  while (end < text.length && text.charCodeAt(end) <= 0x20) end++;
  return end;
}
