/**
 * Where the values of a JSON text are. The runtime's parser is quick and says nothing of that; one for YAML takes a minute and
 * gigabytes for what that reads in a second.
 *
 * @module
 */
import { LineStarts } from "../../text/lines.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
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
export function stringEnd(text: string, at: number): number {
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
