/**
 * A long list in JSON, cut at its items: parsed one by one they need not all be held at once, and other work can go on between them.
 *
 * The scanner knows brackets, commas and texts only; whether the parts are JSON is for the runtime's parser to say. They all are if, and
 * only if, the whole is: a list may stand wherever an empty one may.
 *
 * @module
 */
import { DecodeError } from "./decode_values.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const LIST = 0x5b;
const BACKSLASH = 0x5c;
const LIST_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

/** A fraction of a millisecond of work. */
const VALUES_PER_STEP = 2 ** 12;
/** The list after this name is cut. */
const ITEMS_NAME = /(^|[^\\])"items"\s*:\s*$/;
const NAME_LENGTH = 64;

/** A list without its items, and where each of them stands in the text. */
export interface JsonList {
  /** Its `items` are an empty list. */
  readonly head: Readonly<Record<string, unknown>>;
  readonly items: readonly JsonSpan[];
}

/** From the first character to the one after the last. */
export type JsonSpan = readonly [start: number, end: number];

/** A text has more values than it may have. */
export class TooManyValuesError extends DecodeError {
  /** Offset of the first one too many. */
  readonly at: number;

  constructor(maxValues: number, at: number) {
    super("", `more than ${maxValues} values`);
    this.at = at;
  }
}

/**
 * Cuts a text at the items of its list, in steps. Null if it has no such list, or is no JSON outside of its items: it must be read as
 * a whole then.
 *
 * @param maxValues of all of the text
 * @throws {TooManyValuesError}
 */
export function* cutList(text: string, maxValues: number = Infinity): Generator<void, JsonList | null> {
  const items: JsonSpan[] = [];
  let [depth, values] = [0, 1];
  // The offsets of the list's brackets; while it goes on, `start` is where the next item begins.
  let [opened, closed, start] = [-1, -1, 0];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    const isInside = opened >= 0 && closed < 0;
    if (code === QUOTE) at = stringEnd(text, at) - 1;
    else if (code === COMMA || code === OBJECT || code === LIST) {
      if (++values > maxValues) throw new TooManyValuesError(maxValues, at);
      if (values % VALUES_PER_STEP === 0) yield;
      if (code !== COMMA) {
        depth++;
        if (code === LIST && depth === 2 && ITEMS_NAME.test(text.slice(Math.max(0, at - NAME_LENGTH), at))) {
          if (opened >= 0) return null;
          [opened, start] = [at, at + 1];
        }
      } else if (isInside && depth === 2) {
        items.push([start, at]);
        start = at + 1;
      }
    } else if ((code === OBJECT_END || code === LIST_END) && --depth === 1 && isInside) {
      closed = at;
      if (items.length > 0 || text.slice(start, at).trim() !== "") items.push([start, at]);
    }
  }
  if (closed < 0) return null;
  const around = text.slice(0, opened + 1) + text.slice(closed);
  // There must be no other `items`, in whatever letters.
  const head = around.includes("\\") ? null : parsedOrNull(around);
  const isList = Array.isArray(head?.["items"]) && head["items"].length === 0;
  return head !== null && isList ? { head, items } : null;
}

/** The items, each parsed when it is taken. @throws {SyntaxError} for one that is no JSON */
export function parsedItems(text: string, { items }: JsonList): IteratorObject<unknown> {
  return items.values().map(([start, end]) => JSON.parse(text.slice(start, end)));
}

/** Null for what is no JSON. */
function parsedOrNull(text: string): Readonly<Record<string, unknown>> | null {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return null;
  }
}

/** The offset after the closing quote of the string that begins at `at`. */
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
