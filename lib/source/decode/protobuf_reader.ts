/**
 * Protobuf messages to plain objects of the same shape as their JSON, so that whatever is checked of one is checked of the other.
 *
 * A message is described by a table: which of its fields are read, under which names, of what sort. All other fields are passed
 * over without being looked at.
 *
 * @module
 */
import { PbfReader } from "pbf";
import type { FieldOf, ItemIn, ObjectIn } from "./api_json.ts";

declare const MODEL: unique symbol;

/** Which fields of a message are read, by their numbers. */
export interface Message<T> {
  readonly fields: readonly (AnyField | undefined)[];
  readonly [MODEL]?: T;
}

/**
 * `text`: an empty one counts as absent, as in the JSON of a field without a pointer. `optionalText`: it counts. `sharedText`: a
 * `text` that many objects have in common, kept once. `time`: a message of seconds since the epoch, read as JSON has it.
 */
type Sort =
  | "text"
  | "optionalText"
  | "sharedText"
  | "number"
  | "boolean"
  | "time"
  | "bytes"
  | "eachBytes"
  | "texts"
  | "map"
  | "object"
  | "objects";

interface AnyField {
  readonly name: string;
  readonly sort: Sort;
  readonly message?: Message<unknown>;
}

/** A field of a `T`. */
export type Field<T> = AnyField & { readonly [MODEL]?: T };

/** Makes the fields of a `T`: no name that its model does not have, none of another sort. */
class FieldsOf<T> {
  text(name: FieldOf<T, "text">): Field<T> {
    return { name, sort: "text" };
  }
  optionalText(name: FieldOf<T, "text">): Field<T> {
    return { name, sort: "optionalText" };
  }
  sharedText(name: FieldOf<T, "text">): Field<T> {
    return { name, sort: "sharedText" };
  }
  time(name: FieldOf<T, "text">): Field<T> {
    return { name, sort: "time" };
  }
  number(name: FieldOf<T, "number">): Field<T> {
    return { name, sort: "number" };
  }
  boolean(name: FieldOf<T, "boolean">): Field<T> {
    return { name, sort: "boolean" };
  }
  bytes(name: keyof T & string): Field<T> {
    return { name, sort: "bytes" };
  }
  eachBytes(name: keyof T & string): Field<T> {
    return { name, sort: "eachBytes" };
  }
  texts(name: FieldOf<T, "texts">): Field<T> {
    return { name, sort: "texts" };
  }
  map(name: FieldOf<T, "object">): Field<T> {
    return { name, sort: "map" };
  }
  object<Key extends FieldOf<T, "object">>(name: Key, message: Message<ObjectIn<T, Key>>): Field<T> {
    return { name, sort: "object", message };
  }
  objects<Key extends FieldOf<T, "objects">>(name: Key, message: Message<ItemIn<T, Key>>): Field<T> {
    return { name, sort: "objects", message };
  }
}

/** The message whose fields have these numbers. */
export function message<T>(
  describe: (fields: FieldsOf<T>) => Readonly<Record<number, Field<T>>>,
): Message<T> {
  const fields: (AnyField | undefined)[] = [];
  for (const [number, field] of Object.entries(describe(new FieldsOf<T>()))) {
    fields[Number(number)] = field;
  }
  // A list without holes is read faster, and one that ends is asked past its end.
  return { fields: Array.from(fields) };
}

/** Bytes that are no such message. */
export class MalformedError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "MalformedError";
  }
}

type Fields = Record<string, unknown>;

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/** Texts that may be shared, by a hash of their bytes. */
const SHARED_TEXTS = 512;
const MAX_SHARED_LENGTH = 63;

/** Reads messages; keeps some of the texts that come again and again, a few kilobytes of them. */
export class MessageReader {
  /** Made when one comes: most messages are envelopes, which have none. */
  #shared: string[] | undefined;

  /**
   * Reads `bytes` into `into`, which holds what was read before a fault, too.
   *
   * @throws {MalformedError} if they are no such message
   */
  read(bytes: Uint8Array, { fields }: Message<unknown>, into: Fields): void {
    const reader = new PbfReader(bytes);
    try {
      this.#readFields(reader, bytes.length, fields, into);
    } catch (error) {
      if (error instanceof MalformedError) throw error;
      // The library throws what is exactly an Error for a number without an end. All else is a fault of ours.
      if (!(error instanceof Error) || error.constructor !== Error) throw error;
      throw new MalformedError("a number without an end");
    }
  }

  #readFields(reader: PbfReader, end: number, fields: Message<unknown>["fields"], into: Fields): void {
    while (reader.pos < end) {
      const tag = reader.readVarint();
      const number = tag >>> 3;
      if (tag > 0xffffffff || number === 0) throw new MalformedError("a field without a number");
      const field = number < fields.length ? fields[number] : undefined;
      if (field === undefined) skip(reader, tag & 7, end);
      else this.#readField(reader, tag & 7, end, field, into);
      // The library reads on past an end, as if there were zeros.
      if (reader.pos > end) throw new MalformedError("cut off");
    }
  }

  #readField(reader: PbfReader, type: number, end: number, field: AnyField, into: Fields): void {
    const { name, sort, message } = field;
    if (sort === "number" || sort === "boolean") {
      if (type !== VARINT) throw wrongType(name, type);
      into[name] = sort === "number" ? reader.readVarint(true) : reader.readVarint() !== 0;
      return;
    }
    if (type !== BYTES) throw wrongType(name, type);
    const fieldStart = reader.pos;
    const fieldEnd = endOf(reader, end, name);
    switch (sort) {
      case "text":
      case "optionalText":
        if (reader.pos < fieldEnd || sort === "optionalText") {
          into[name] = textFrom(reader, fieldStart, fieldEnd);
        } else delete into[name];
        return;
      case "sharedText":
        into[name] = this.#sharedText(reader, fieldStart, fieldEnd);
        return;
      case "texts":
        listAt(into, name).push(textFrom(reader, fieldStart, fieldEnd));
        return;
      case "map":
        readEntry(reader, fieldEnd, mapAt(into, name));
        return;
      case "time":
        into[name] = readTime(reader, fieldEnd);
        return;
      case "bytes":
        into[name] = reader.buf.subarray(reader.pos, fieldEnd);
        reader.pos = fieldEnd;
        return;
      case "eachBytes":
        listAt(into, name).push(reader.buf.subarray(reader.pos, fieldEnd));
        reader.pos = fieldEnd;
        return;
    }
    const object: Fields = {};
    if (sort === "objects") listAt(into, name).push(object);
    else into[name] = object;
    this.#readFields(reader, fieldEnd, message?.fields ?? [], object);
  }

  #sharedText(reader: PbfReader, start: number, end: number): string {
    const { buf, pos } = reader;
    const length = end - pos;
    if (length > MAX_SHARED_LENGTH) return textFrom(reader, start, end);
    let hash = length;
    for (let at = pos; at < end; at++) hash = (hash * 31 + (buf[at] ?? 0)) | 0;
    const place = (hash ^ (hash >>> 9)) & (SHARED_TEXTS - 1);
    const shared = this.#shared ??= new Array<string>(SHARED_TEXTS).fill("");
    const known = shared[place] ?? "";
    let same = known.length === length ? 0 : -1;
    while (same >= 0 && same < length) same = known.charCodeAt(same) === buf[pos + same] ? same + 1 : -1;
    if (same >= 0) {
      reader.pos = end;
      return known;
    }
    const text = textFrom(reader, start, end);
    // Only those of one byte for each character are compared with bytes.
    if (text.length === length) shared[place] = text;
    return text;
  }
}

function wrongType(name: string, type: number): MalformedError {
  return new MalformedError(`${name} of wire type ${type}`);
}

/** Where the bytes end whose length comes next. */
function endOf(reader: PbfReader, limit: number, name: string): number {
  const length = reader.readVarint();
  const end = reader.pos + length;
  if (end > limit) throw new MalformedError(`${name} cut off`);
  return end;
}

/** Keeps a mark of the order of bytes, as JSON does: without it a name would be another one. */
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * The text that begins, with its length, at `start`. What is no UTF-8 in it is replaced, as in JSON; the library ends a text there,
 * and a beginning of a name is another name.
 */
function textFrom(reader: PbfReader, start: number, end: number): string {
  const { buf, pos } = reader;
  for (let at = pos; at < end; at++) {
    if ((buf[at] ?? 0) < 0x80) continue;
    reader.pos = end;
    return DECODER.decode(buf.subarray(pos, end));
  }
  reader.pos = start;
  return reader.readString();
}

function listAt(into: Fields, name: string): unknown[] {
  return (into[name] ??= []) as unknown[];
}

function mapAt(into: Fields, name: string): Record<string, string> {
  return (into[name] ??= {}) as Record<string, string>;
}

/** Field 1 is the key of an entry, field 2 its value. */
function readEntry(reader: PbfReader, end: number, map: Record<string, string>): void {
  let key = "";
  let value = "";
  while (reader.pos < end) {
    const tag = reader.readVarint();
    if (tag === 10 || tag === 18) {
      const start = reader.pos;
      const text = textFrom(reader, start, endOf(reader, end, "an entry"));
      if (tag === 10) key = text;
      else value = text;
    } else skip(reader, tag & 7, end);
  }
  if (reader.pos > end) throw new MalformedError("an entry cut off");
  map[key] = value;
}

/** Field 1 is the seconds; none at all is no time. */
function readTime(reader: PbfReader, end: number): string | null {
  if (reader.pos === end) return null;
  let seconds = 0;
  while (reader.pos < end) {
    const tag = reader.readVarint();
    if (tag === 8) seconds = reader.readVarint(true);
    else skip(reader, tag & 7, end);
  }
  const time = new Date(seconds * 1000);
  if (reader.pos > end || Number.isNaN(time.getTime())) throw new MalformedError("a time that is none");
  return time.toISOString();
}

function skip(reader: PbfReader, type: number, end: number): void {
  if (type === BYTES) reader.pos = endOf(reader, end, "a field");
  else if (type === VARINT || type === FIXED64 || type === FIXED32) reader.skip(type);
  // Groups, which can be nested without an end, are in no message of Kubernetes.
  else throw new MalformedError(`a field of wire type ${type}`);
}
