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

/** More values than two objects for each of 44,000 Services have; each costs some 50 bytes. */
const MAX_JSON_VALUES = 5_000_000;

/** A fraction of a millisecond of work. */
const CHARACTERS_PER_STEP = 2 ** 15;

const BLANK = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;

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
    // The text around the items must have no other `items`, however it is written.
    const around = text.slice(0, list.headLength) + text.slice(groups.at(-1)?.end);
    if (!Array.isArray(head?.items) || around.includes("\\")) return null;
    // A document that is no list would be an item itself.
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

/** Consecutive items, from `start` to `end` of the text. */
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
const OPENING: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const CLOSING: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/** Offset of a member of a list or object (of its name, if it has one), and of its value. */
interface Place {
  readonly begin: number;
  readonly value: number;
}

/** Finds values by their paths. The text must be JSON that has been parsed. */
export class JsonPlaces {
  readonly #text: string;
  readonly #lines: LineStarts;
  /** Offset of a list or object → its members. */
  readonly #members = new Map<number, ReadonlyMap<string, Place>>();

  constructor(text: string) {
    this.#text = text;
    this.#lines = LineStarts.of(text);
  }

  /** 0-based line of the deepest part of a path that the text has: of a field's name, or of where an element begins. */
  lineOf(path: readonly string[]): number {
    const [[start] = [0]] = tokensOf(this.#text, 0);
    let place: Place = { begin: start, value: start };
    for (const step of path) {
      const next = this.#membersOf(place.value).get(step);
      if (next === undefined) break;
      place = next;
    }
    return this.#lines.lineAt(place.begin);
  }

  /** Members of a list or object; of a repeated name the last one counts, as in parsing. */
  #membersOf(at: number): ReadonlyMap<string, Place> {
    const known = this.#members.get(at);
    if (known !== undefined) return known;
    const members = new Map<string, Place>();
    this.#members.set(at, members);
    const isList = this.#text.charAt(at) === "[";
    let depth = 0;
    let name: readonly [start: number, end: number] | null = null;
    for (const [start, end] of tokensOf(this.#text, at)) {
      const code = this.#text.charCodeAt(start);
      if (CLOSING.has(code)) depth--;
      else if (depth === 1 && isList) members.set(String(members.size), { begin: start, value: start });
      else if (depth === 1 && name === null) name = [start, end];
      else if (depth === 1 && name !== null) {
        members.set(JSON.parse(this.#text.slice(...name)), { begin: name[0], value: start });
        name = null;
      }
      if (OPENING.has(code)) depth++;
      if (depth === 0) break;
    }
    return members;
  }
}

/** Tokens from `start` on: brackets, names and plain values. */
function* tokensOf(text: string, start: number): Generator<readonly [start: number, end: number]> {
  for (let at = start; at < text.length;) {
    const code = text.charCodeAt(at);
    if (code <= BLANK || code === COMMA || code === COLON) {
      at++;
      continue;
    }
    const end = code === QUOTE
      ? stringEnd(text, at)
      : OPENING.has(code) || CLOSING.has(code)
      ? at + 1
      : plainEnd(text, at);
    yield [at, end];
    at = end;
  }
}

/** End of the number or word at `at`. */
function plainEnd(text: string, at: number): number {
  PLAIN.lastIndex = at;
  return PLAIN.test(text) ? PLAIN.lastIndex : at + 1;
}

const PLAIN = /[^\s,:[\]{}"]+/y;

/** Offset after the closing quote of the string that begins at `at`. */
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
