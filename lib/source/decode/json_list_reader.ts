/**
 * A long list of objects in JSON, cut into groups of objects as it arrives, however the pieces are cut: neither its text nor all of its
 * objects need be held at once.
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

/** Deepest nesting, that of Kubernetes' own reader. */
const MAX_DEPTH = 10_000;
/** Name of the list that is cut. A list whose name is written in another way is read with the text around it. */
const ITEMS_NAME = /(^|[^\\])"items"\s*:\s*$/;
const NAME_LENGTH = 64;

/** Longest text that is parsed at once: finding its objects would cost more than the memory of all of them. */
const WHOLE_LENGTH = 3 * 1024 * 1024;
const PART_LENGTH = 64 * 1024;

/** Consecutive objects of a list. */
export interface ListItems {
  /** The objects as a list, in JSON. */
  readonly text: string;
  /** Index of the first one in the whole list, from 0. */
  readonly first: number;
  readonly count: number;
  /** True: the text may hold no object, as the whole list has no comma. */
  readonly mayBeNone: boolean;
}

/** Limits of a {@linkcode JsonListReader}, in UTF-16 code units. */
export interface JsonListLimits {
  /** Longest object, or text around all objects, as far as it is not in one piece. */
  readonly maxLength: number;
  /** Longest list that is parsed as a whole, at its end. @default {3 Mi} */
  readonly wholeLength?: number;
  /** Most values in the whole text. @default {Infinity} */
  readonly maxValues?: number;
}

/** Cuts a JSON list into groups of objects while its text arrives. */
export class JsonListReader {
  /** Length of the text before the bracket of the list. */
  headLength = 0;
  /** Offset in the last piece of the first value beyond `maxValues`; -1 if there is none. */
  tooManyAt = -1;
  readonly #limits: Required<JsonListLimits>;
  /** All text so far, while it is short enough to be parsed at once; null afterwards. */
  #whole: string | null = "";
  /** Text around the items. */
  #around = "";
  /** End of that text, as long as a name may be: reading the end of a growing text costs as much as all of it. */
  #aroundEnd = "";
  /** An opening bracket, and the text of the items that has not been yielded. */
  #items = "[";
  /** Position of the scanner relative to the list of items. */
  #place: "before" | "inside" | "after" = "before";
  #count = 0;
  #values = 1;
  #depth = 0;
  #isText = false;
  /** 1 if the next piece begins with the character after a backslash. */
  #skipped = 0;

  constructor({ maxLength, wholeLength = WHOLE_LENGTH, maxValues = Infinity }: JsonListLimits) {
    this.#limits = { maxLength, wholeLength, maxValues };
  }

  /**
   * Takes a piece of text; yields the objects that it completes, as far as they are not left to {@linkcode end}.
   *
   * @throws {DecodeError} if it is no list, or beyond a limit
   */
  push(piece: string): ListItems[] {
    if (this.#whole === null) return this.#scan(piece);
    const text = this.#whole += piece;
    if (text.length <= this.#limits.wholeLength) return [];
    this.#whole = null;
    const found: ListItems[] = [];
    for (let at = 0; at < text.length; at += PART_LENGTH) {
      found.push(...this.#scan(text.slice(at, at + PART_LENGTH)));
    }
    return found;
  }

  #scan(piece: string): ListItems[] {
    const found: ListItems[] = [];
    const { maxLength, maxValues } = this.#limits;
    const end = piece.length;
    // Text that is not stored yet begins at `from`; it has `commas` commas between items, the last one at `comma`.
    let [from, comma, commas] = [0, 0, 0];
    let [depth, isText, isInside] = [this.#depth, this.#isText, this.#place === "inside"];
    let values = this.#values;
    let at = this.#skipped;
    for (; at < end; at++) {
      const code = piece.charCodeAt(at);
      if (isText) {
        if (code === BACKSLASH) at++;
        else if (code === QUOTE) isText = false;
      } else if (code === QUOTE) {
        isText = true;
      } else if (code === COMMA) {
        if (++values > maxValues) this.#tooMany(at);
        if (depth !== 2 || !isInside) continue;
        comma = at;
        commas++;
      } else if (code === OBJECT || code === LIST) {
        if (++values > maxValues) this.#tooMany(at);
        if (++depth > MAX_DEPTH) throw new DecodeError("", `more than ${MAX_DEPTH} values in one another`);
        if (depth !== 2 || code === OBJECT || isInside) continue;
        this.#addAround(piece.slice(from, at));
        from = at;
        isInside = this.#beginItems();
        if (isInside) from++;
      } else if (code === OBJECT_END || code === LIST_END) {
        if (--depth !== 1 || !isInside) continue;
        this.#place = "after";
        found.push(this.#cut(piece.slice(from, at), commas + 1));
        [from, commas, isInside] = [at, 0, false];
      }
    }
    if (commas > 0) {
      found.push(this.#cut(piece.slice(from, comma), commas));
      from = comma + 1;
    }
    const rest = piece.slice(from);
    if (isInside) this.#items += rest;
    else this.#addAround(rest);
    const { length } = isInside ? this.#items : this.#around;
    if (length > maxLength) throw new DecodeError("", `more than ${maxLength} bytes without a whole object`);
    [this.#depth, this.#isText, this.#skipped, this.#values] = [depth, isText, at - end, values];
    return found;
  }

  #addAround(text: string): void {
    this.#around += text;
    this.#aroundEnd = (this.#aroundEnd + text).slice(-NAME_LENGTH);
  }

  #tooMany(at: number): never {
    this.tooManyAt = at;
    throw new DecodeError("", `more than ${this.#limits.maxValues} values`);
  }

  /**
   * The JSON value around the objects, after the last piece: an object only if the text was one. Its `items` are those that
   * {@linkcode push} has not yielded.
   *
   * @throws {DecodeError} if the text is cut off, or has two lists
   * @throws {SyntaxError} if it is no JSON
   */
  end(): unknown {
    if (this.#whole !== null) return parsed(this.#whole);
    if (this.#depth > 0 || this.#isText) throw new DecodeError("", "a list that is cut off");
    const around = parsed(this.#around);
    if (this.#place === "after") {
      const { items } = around as { readonly items: unknown };
      if (!Array.isArray(items) || items.length > 0) throw new DecodeError("items", "are there twice");
    }
    return around;
  }

  /** True if the list that begins after the text so far is that of the items. */
  #beginItems(): boolean {
    if (!ITEMS_NAME.test(this.#aroundEnd)) return false;
    if (this.#place !== "before") throw new DecodeError("items", "are there twice");
    this.#place = "inside";
    this.headLength = this.#around.length;
    this.#addAround("[");
    return true;
  }

  /** The next `count` items, whose text ends with `rest`. */
  #cut(rest: string, count: number): ListItems {
    const text = `${this.#items}${rest}]`;
    const first = this.#count;
    this.#items = "[";
    this.#count += count;
    return { text, first, count, mayBeNone: this.#place === "after" && this.#count === 1 };
  }
}

/** Parses JSON, which may begin with a byte order mark. */
function parsed(text: string): unknown {
  return JSON.parse(text.startsWith("\uFEFF") ? text.slice(1) : text);
}

/** The objects that were cut out of a list. @throws {DecodeError} that says among which the fault is, if they are no JSON */
export function parseItems({ text, first, count, mayBeNone }: ListItems): readonly unknown[] {
  let items: readonly unknown[];
  try {
    items = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const last = count === 1 ? "" : `..${first + count - 1}`;
    throw new DecodeError(`items[${first}${last}]`, error.message);
  }
  if (items.length !== count && !(items.length === 0 && mayBeNone)) {
    throw new DecodeError("items", "have a comma too many");
  }
  return items;
}
