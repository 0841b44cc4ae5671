/**
 * A long JSON text with a list of objects, item by item: the runtime's parser lets no other work go on until it has read all that it
 * is given.
 *
 * @module
 */
import { countLines, LineStarts } from "../../text/lines.ts";
import type { RawList } from "./api_json.ts";
import { itemsOf } from "./decode.ts";
import { atIndex, decodeDocument, type ManifestItem, segmentsOf } from "./manifest_items.ts";

/** More values than two such objects for each of 44,000 Services have; each costs some 50 bytes. */
export const MAX_JSON_VALUES = 5_000_000;

/** Some milliseconds of work. */
const CHARACTERS_PER_STEP = 2 ** 20;

const QUOTE = 0x22;
const COMMA = 0x2c;
const LIST = 0x5b;
const LIST_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

/** What can be told of a JSON text without reading it. */
export interface JsonOutline {
  /** 0-based line on which the text has more values than may be; undefined if it has not. */
  readonly tooManyLine?: number;
  /**
   * Where the list in the outermost field `items` has its brackets, and the commas between its items. Null if there is no such list,
   * or several.
   */
  readonly cuts: readonly number[] | null;
}

/** Goes through a text once, in steps. What is no JSON has an outline of whatever kind. */
export function* outlineOf(text: string, most = MAX_JSON_VALUES): Generator<void, JsonOutline> {
  const cuts: number[] = [];
  let values = 1;
  let depth = 0;
  let name = 0;
  let lists = 0;
  let isInside = false;
  let stepEnd = CHARACTERS_PER_STEP;
  for (let at = 0; at < text.length; at++) {
    if (at >= stepEnd) {
      yield;
      stepEnd = at + CHARACTERS_PER_STEP;
    }
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      if (depth === 1) name = at;
      at = stringEnd(text, at) - 1;
    } else if (code === COMMA) {
      if (++values > most) return { tooManyLine: countLines(text, at), cuts: null };
      if (isInside && depth === 2) cuts.push(at);
    } else if (code === LIST || code === OBJECT) {
      if (++values > most) return { tooManyLine: countLines(text, at), cuts: null };
      if (depth++ !== 1 || code !== LIST || !text.startsWith('"items"', name)) continue;
      isInside = lists++ === 0;
      if (isInside) cuts.push(at);
    } else if (code === LIST_END || code === OBJECT_END) {
      if (--depth !== 1 || !isInside) continue;
      cuts.push(at);
      isInside = false;
    }
  }
  return { cuts: isInside || lists !== 1 ? null : cuts };
}

/**
 * The objects of a list that was cut, as {@linkcode decodeDocument} gives those of the whole, in steps. Null if it must be read as a
 * whole: it is no list of objects, or something of it is no JSON.
 */
export function* readJsonList(
  text: string,
  cuts: readonly number[],
): Generator<void, readonly ManifestItem[] | null> {
  const head = headOf(text, cuts);
  if (head === null) return null;
  const cut = { text, cuts, head };
  const items = yield* decodeItems(cut, CHARACTERS_PER_PART, () => () => -1);
  if (items === null || items.every(({ refusal }) => refusal === undefined)) return items;
  // Only a refusal needs lines, and finding them each item by itself.
  let [at, line] = [0, 0];
  return yield* decodeItems(cut, 0, (part, start) => {
    line += countLines(text.slice(at, start));
    at = start;
    const [first, places] = [line, new JsonPlaces(part)];
    return (path) => first + places.lineOf(segmentsOf(path).slice(2));
  });
}

/** Many small items are quicker read together. */
const CHARACTERS_PER_PART = 2 ** 15;

interface CutList {
  readonly text: string;
  readonly cuts: readonly number[];
  readonly head: RawList;
}

/** Reads parts of so many characters, or of one item. `linesOf` is asked for each part, in their order. */
function* decodeItems(
  { text, cuts, head }: CutList,
  characters: number,
  linesOf: (part: string, start: number) => (path: string) => number,
): Generator<void, readonly ManifestItem[] | null> {
  const decoded: ManifestItem[] = [];
  const last = cuts.length - 1;
  for (let index = 0, next = 0; index < last; index = next) {
    for (next = index + 1; next < last && cuts[next + 1]! - cuts[index]! <= characters;) next++;
    const start = cuts[index]! + 1;
    const part = text.slice(start, cuts[next]);
    const items = parsed(`[${part}]`) as readonly unknown[] | undefined;
    if (items === undefined || items.length !== next - index && (items.length > 0 || last > 1)) return null;
    const found = decodeDocument({ ...head, items }, 0, linesOf(part, start));
    for (const item of atIndex(found, index)) decoded.push(item);
    yield;
  }
  return decoded;
}

/** What stands around the items. Null if that is no list of objects, or may have another field `items`. */
function headOf(text: string, cuts: readonly number[]): RawList | null {
  const end = cuts.at(-1)!;
  // What the list ends with is for the parser to judge.
  const around = `${text.slice(0, cuts[0])}[${text.slice(end)}`;
  const list = around.includes("\\") ? undefined : parsed(around) as RawList | null | undefined;
  if (!Array.isArray(list?.items)) return null;
  // One that is no list would be an item itself.
  for (const _ of itemsOf(list)) return null;
  return { kind: list.kind, apiVersion: list.apiVersion };
}

/** Undefined if a text is no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
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
