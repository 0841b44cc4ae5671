/**
 * A long list of objects in JSON as it arrives, however the pieces are cut: its objects are read as soon as they are complete, and what
 * stands around them at the end. Neither the text of such a list nor all of its objects are ever held.
 *
 * Only brackets and texts are told apart here; whether the parts are JSON is for the runtime's parser to say. They all are if, and
 * only if, the whole is: a list may stand wherever an empty one may.
 *
 * @module
 */
import { GrowingBytes } from "../../text/growing_bytes.ts";
import { DecodeError } from "./decode_values.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const LIST = 0x5b;
const BACKSLASH = 0x5c;
const LIST_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

const OPENING = new Uint8Array([LIST]);
const CLOSING = new Uint8Array([LIST_END]);

/** As deep as Kubernetes' own reader goes. */
const MAX_DEPTH = 10_000;
/** The list after this name is cut. One whose name is written in another way is read with what stands around it. */
const ITEMS_NAME = /(^|[^\\])"items"\s*:\s*$/;
const NAME_BYTES = 64;

/** What is not longer is read at once: finding its objects would cost more than the memory of all of them is worth. */
const WHOLE_BYTES = 3 * 1024 * 1024;
const PART_BYTES = 64 * 1024;

/** Reads a list while it arrives. */
export class JsonListReader {
  readonly #maxBytes: number;
  readonly #wholeBytes: number;
  /** All that came, as long as it may be read at once. */
  #whole: GrowingBytes | null = new GrowingBytes();
  readonly #decoder = new TextDecoder();
  /** What stands around the items. */
  readonly #around = new GrowingBytes();
  /** An opening bracket, and what of the items has not been read. */
  readonly #items = new GrowingBytes();
  /** Whether the items have begun, and are still going on. */
  #place: "before" | "inside" | "after" = "before";
  #count = 0;
  #depth = 0;
  #isText = false;
  /** 1 if the next piece begins with what a backslash stands before. */
  #skipped = 0;

  /**
   * @param maxBytes so long may an object be, or what stands around all of them, as far as it is not in one piece
   * @param wholeBytes lists of no more bytes are read at their end
   */
  constructor(maxBytes: number, wholeBytes: number = WHOLE_BYTES) {
    this.#maxBytes = maxBytes;
    this.#wholeBytes = wholeBytes;
  }

  /**
   * Takes a piece; yields the objects that are complete with it, as far as they are not left to {@linkcode end}.
   *
   * @throws {DecodeError} if it is no list
   */
  push(piece: Uint8Array): unknown[] {
    if (this.#whole === null) return this.#scan(piece);
    this.#whole.add(piece);
    if (this.#whole.length <= this.#wholeBytes) return [];
    const bytes = this.#whole.view();
    this.#whole = null;
    const items: unknown[] = [];
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      for (const item of this.#scan(bytes.subarray(at, at + PART_BYTES))) items.push(item);
    }
    return items;
  }

  #scan(piece: Uint8Array): unknown[] {
    const items: unknown[] = [];
    const end = piece.length;
    // What has been put nowhere begins at `from`, and has so many commas between items, the last one at `comma`.
    let [from, comma, commas] = [0, 0, 0];
    let [depth, isText, isInside] = [this.#depth, this.#isText, this.#place === "inside"];
    let at = this.#skipped;
    for (; at < end; at++) {
      const byte = piece[at]!;
      if (isText) {
        if (byte === BACKSLASH) at++;
        else if (byte === QUOTE) isText = false;
      } else if (byte === QUOTE) {
        isText = true;
      } else if (byte === COMMA) {
        if (depth !== 2 || !isInside) continue;
        comma = at;
        commas++;
      } else if (byte === OBJECT || byte === LIST) {
        if (++depth > MAX_DEPTH) throw new DecodeError("", `more than ${MAX_DEPTH} values in one another`);
        if (depth !== 2 || byte === OBJECT || isInside) continue;
        this.#around.add(piece.subarray(from, at));
        from = at;
        isInside = this.#beginItems();
        if (isInside) from++;
      } else if (byte === OBJECT_END || byte === LIST_END) {
        if (--depth !== 1 || !isInside) continue;
        this.#place = "after";
        this.#read(piece.subarray(from, at), commas + 1, items);
        [from, commas, isInside] = [at, 0, false];
      }
    }
    if (commas > 0) {
      this.#read(piece.subarray(from, comma), commas, items);
      from = comma + 1;
    }
    const rest = isInside ? this.#items : this.#around;
    rest.add(piece.subarray(from));
    if (rest.length > this.#maxBytes) {
      throw new DecodeError("", `more than ${this.#maxBytes} bytes without a whole object`);
    }
    [this.#depth, this.#isText, this.#skipped] = [depth, isText, at - end];
    return items;
  }

  /**
   * What stood around the objects, once all has been taken: an object only if the text was one. Its `items` are those that
   * {@linkcode push} has not yielded.
   *
   * @throws {DecodeError} if the text is cut off, or has two lists
   * @throws {SyntaxError} if it is no JSON
   */
  end(): unknown {
    if (this.#whole !== null) return JSON.parse(this.#decoder.decode(this.#whole.view()));
    if (this.#depth > 0 || this.#isText) throw new DecodeError("", "a list that is cut off");
    const around: unknown = JSON.parse(this.#decoder.decode(this.#around.view()));
    if (this.#place === "after") {
      const { items } = around as { readonly items: unknown };
      if (!Array.isArray(items) || items.length > 0) throw new DecodeError("items", "are there twice");
    }
    return around;
  }

  /** True if the list that begins after what has been taken is that of the items. */
  #beginItems(): boolean {
    const before = this.#decoder.decode(this.#around.view().subarray(-NAME_BYTES));
    if (!ITEMS_NAME.test(before)) return false;
    if (this.#place !== "before") throw new DecodeError("items", "are there twice");
    this.#place = "inside";
    this.#around.add(OPENING);
    this.#items.add(OPENING);
    return true;
  }

  /** Reads so many items, of which `bytes` are the rest. */
  #read(bytes: Uint8Array, count: number, into: unknown[]): void {
    this.#items.add(bytes);
    this.#items.add(CLOSING);
    const text = this.#decoder.decode(this.#items.view());
    this.#items.clear();
    this.#items.add(OPENING);
    const items = parsed(text, this.#count, count);
    // Without a comma there may be one or none.
    const isNone = items.length === 0 && this.#place === "after" && this.#count + count === 1;
    if (items.length !== count && !isNone) throw new DecodeError("items", "have a comma too many");
    this.#count += count;
    for (const item of items) into.push(item);
  }
}

/** @throws {DecodeError} that says among which items the fault is, if it is no JSON */
function parsed(text: string, first: number, count: number): readonly unknown[] {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const last = count === 1 ? "" : `..${first + count - 1}`;
    throw new DecodeError(`items[${first}${last}]`, error.message);
  }
}
