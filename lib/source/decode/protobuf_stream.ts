/**
 * Kubernetes' protobuf as it arrives: lists object by object, watches event by event, however the pieces are cut. No more is kept
 * than what is not complete yet.
 *
 * Source: Kubernetes' apimachinery/pkg/runtime/serializer/protobuf: four bytes, then a `runtime.Unknown` that holds the object; in
 * a watch a length in four bytes, then a `meta/v1.WatchEvent` that holds such an object.
 *
 * @module
 */
import type { V1ListMeta, V1ObjectMeta } from "@kubernetes/client-node";
import { GrowingBytes } from "../../text/growing_bytes.ts";
import type { Raw, RawKubernetesObject, WatchedModels } from "./api_json.ts";
import { KIND_MESSAGES, STATUS } from "./protobuf_kinds.ts";
import { MalformedError, type Message, message, MessageReader } from "./protobuf_reader.ts";

const MAGIC = new Uint8Array([0x6b, 0x38, 0x73, 0]);
const FRAME_HEAD = 4;

interface TypeMeta {
  readonly apiVersion?: string;
  readonly kind?: string;
}
interface UnknownObject {
  readonly typeMeta?: TypeMeta;
  readonly raw?: unknown;
  readonly contentEncoding?: string;
  readonly contentType?: string;
}
interface RawExtension {
  readonly raw?: unknown;
}
interface WatchEventMessage {
  readonly type?: string;
  readonly object?: RawExtension;
}
/** The model has another name for `continue`, which is a word of its language. */
type ListMeta = Omit<V1ListMeta, "_continue"> & { readonly continue?: string };

const TYPE_META = message<TypeMeta>((field) => ({ 1: field.text("apiVersion"), 2: field.text("kind") }));
const UNKNOWN = message<UnknownObject>((field) => ({
  1: field.object("typeMeta", TYPE_META),
  2: field.bytes("raw"),
  3: field.text("contentEncoding"),
  4: field.text("contentType"),
}));
const RAW_EXTENSION = message<RawExtension>((field) => ({ 1: field.bytes("raw") }));
const WATCH_EVENT = message<WatchEventMessage>((field) => ({
  1: field.text("type"),
  2: field.object("object", RAW_EXTENSION),
}));
const LIST_META = message<ListMeta>((field) => ({
  2: field.text("resourceVersion"),
  3: field.text("continue"),
}));

/** An object whose bytes are no message of its kind, with what of its metadata comes before the fault. */
export class MalformedObject {
  readonly metadata: Raw<V1ObjectMeta>;
  readonly reason: string;

  constructor(metadata: Raw<V1ObjectMeta>, reason: string) {
    this.metadata = metadata;
    this.reason = reason;
  }
}

/** Reads objects of one kind, with what is shared between them. */
export class ObjectReader {
  readonly #reader = new MessageReader();
  readonly #message: Message<unknown>;

  constructor(kind: keyof WatchedModels) {
    this.#message = KIND_MESSAGES[kind];
  }

  /** The object that these bytes are, as its JSON would be read; a {@linkcode MalformedObject} if they are none. */
  read(bytes: Uint8Array): unknown {
    const object: Record<string, unknown> = {};
    try {
      this.#reader.read(bytes, this.#message, object);
      return object;
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      return new MalformedObject(
        (object.metadata ?? {}) as Raw<V1ObjectMeta>,
        `no message: ${error.message}`,
      );
    }
  }
}

/** @throws {MalformedError} */
function readMessage<T>(bytes: Uint8Array, message: Message<T>): T {
  const into: Record<string, unknown> = {};
  new MessageReader().read(bytes, message, into);
  return into as T;
}

/** An object in its envelope. */
export interface Envelope {
  readonly kind: string;
  readonly apiVersion: string;
  readonly bytes: Uint8Array;
}

/** Opens an envelope that is there as a whole. @throws {MalformedError} if it is none */
function openEnvelope(bytes: Uint8Array): Envelope {
  checkMagic(bytes);
  const { typeMeta = {}, raw, ...rest } = readMessage(bytes.subarray(MAGIC.length), UNKNOWN);
  checkPlain(rest);
  return {
    kind: typeMeta.kind ?? "",
    apiVersion: typeMeta.apiVersion ?? "",
    bytes: raw instanceof Uint8Array ? raw : new Uint8Array(0),
  };
}

function checkMagic(bytes: Uint8Array): void {
  if (bytes.length < MAGIC.length || MAGIC.some((byte, index) => bytes[index] !== byte)) {
    throw new MalformedError("not Kubernetes' protobuf");
  }
}

function checkPlain({ contentEncoding = "", contentType = "" }: UnknownObject): void {
  if (contentEncoding !== "" || contentType !== "") {
    throw new MalformedError(`packed or written in another way: ${contentEncoding} ${contentType}`);
  }
}

/** What a refusal says. @throws {MalformedError} if it is no Status */
export function readStatus(bytes: Uint8Array): RawKubernetesObject {
  const { kind, bytes: content } = openEnvelope(bytes);
  if (kind !== "Status") throw new MalformedError("not a Status");
  return readMessage(content, STATUS) as RawKubernetesObject;
}

/** A watch event as its JSON would be. */
export interface RawEvent {
  readonly type: string;
  readonly object: unknown;
}

/** Reads a watch of objects of one kind. */
export class EventReader {
  readonly #objectKind: keyof WatchedModels;
  readonly #objects: ObjectReader;
  #rest = new GrowingBytes();

  constructor(objectKind: keyof WatchedModels) {
    this.#objectKind = objectKind;
    this.#objects = new ObjectReader(objectKind);
  }

  /**
   * The frames that are complete with this piece.
   *
   * @throws {MalformedError} if one is announced to be longer than `maxBytes`
   */
  frames(piece: Uint8Array, maxBytes: number): Uint8Array[] {
    const isWhole = this.#rest.length === 0;
    if (!isWhole) this.#rest.add(piece);
    const bytes = isWhole ? piece : this.#rest.view();
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const frames: Uint8Array[] = [];
    let at = 0;
    while (bytes.length - at >= FRAME_HEAD) {
      const length = view.getUint32(at);
      if (length > maxBytes) throw new MalformedError(`an event of ${length} bytes`);
      const end = at + FRAME_HEAD + length;
      if (end > bytes.length) break;
      frames.push(bytes.subarray(at + FRAME_HEAD, end));
      at = end;
    }
    if (isWhole || at > 0) this.#rest = growing(bytes.subarray(at));
    return frames;
  }

  /** @throws {MalformedError} if the frame holds no event */
  read(frame: Uint8Array): RawEvent {
    const { type = "", object } = readMessage(frame, WATCH_EVENT);
    const { kind, apiVersion, bytes } = openEnvelope(object?.raw instanceof Uint8Array ? object.raw : EMPTY);
    if (kind === this.#objectKind) return { type, object: this.#objects.read(bytes) };
    const status = kind === "Status" ? readMessage(bytes, STATUS) : {};
    return { type, object: { ...status, kind, apiVersion } };
  }
}

const EMPTY = new Uint8Array(0);

function growing(bytes: Uint8Array): GrowingBytes {
  const rest = new GrowingBytes();
  rest.add(bytes);
  return rest;
}

/** What a list says of itself. */
export interface ListHead extends TypeMeta {
  readonly metadata?: ListMeta;
}

/** Reads a list of objects of one kind while it arrives. */
export class ListReader {
  readonly #objects: ObjectReader;
  readonly #maxFieldBytes: number;
  #rest = new GrowingBytes();
  #place: "magic" | "envelope" | "list" = "magic";
  /** Bytes of the list that have not been read. */
  #listLeft = 0;
  #hasList = false;
  #head: ListHead = {};

  /** A field longer than `maxFieldBytes` is no object. */
  constructor(itemKind: keyof WatchedModels, maxFieldBytes: number) {
    this.#objects = new ObjectReader(itemKind);
    this.#maxFieldBytes = maxFieldBytes;
  }

  /** Takes a piece; yields the objects that are complete with it. @throws {MalformedError} if it is no list */
  push(piece: Uint8Array): unknown[] {
    const isWhole = this.#rest.length === 0;
    if (!isWhole) this.#rest.add(piece);
    const bytes = isWhole ? piece : this.#rest.view();
    const items: unknown[] = [];
    let at = 0;
    for (let next = this.#step(bytes, at, items); next > at; next = this.#step(bytes, at, items)) at = next;
    if (isWhole || at > 0) this.#rest = growing(bytes.subarray(at));
    return items;
  }

  /** What the list said of itself, once all of it has been taken. @throws {MalformedError} if it is cut off */
  end(): ListHead {
    const isWhole = this.#hasList && this.#place !== "list" && this.#rest.length === 0;
    if (!isWhole) throw new MalformedError("a list that is cut off");
    return this.#head;
  }

  /** Reads what is next, if it is complete; returns where it ends. */
  #step(bytes: Uint8Array, at: number, items: unknown[]): number {
    if (this.#place === "magic") {
      if (bytes.length < MAGIC.length) return at;
      checkMagic(bytes);
      this.#place = "envelope";
      return at + MAGIC.length;
    }
    const field = fieldAt(bytes, at);
    if (field === null) return at;
    const { number, start, length } = field;
    if (this.#place === "envelope" && number === 2) {
      if (this.#hasList) throw new MalformedError("two lists");
      this.#hasList = true;
      this.#enterList(length);
      return start;
    }
    if (length > this.#maxFieldBytes) throw new MalformedError(`a field of ${length} bytes`);
    const end = start + length;
    const isList = this.#place === "list";
    if (isList && end - at > this.#listLeft) throw new MalformedError("a field that ends after the list");
    if (end > bytes.length) return at;
    if (!isList) this.#readEnvelope(bytes.subarray(at, end));
    else {
      const content = bytes.subarray(start, end);
      if (number === 1) this.#head = { ...this.#head, metadata: readMessage(content, LIST_META) };
      if (number === 2) items.push(this.#objects.read(content));
      this.#enterList(this.#listLeft - (end - at));
    }
    return end;
  }

  #enterList(left: number): void {
    this.#listLeft = left;
    this.#place = left > 0 ? "list" : "envelope";
  }

  #readEnvelope(field: Uint8Array): void {
    const { typeMeta, ...rest } = readMessage(field, UNKNOWN);
    checkPlain(rest);
    if (typeMeta !== undefined) this.#head = { ...this.#head, ...typeMeta };
  }
}

/** The field of bytes that begins at `at`; null if its head is not complete. */
function fieldAt(
  bytes: Uint8Array,
  at: number,
): { readonly number: number; readonly start: number; readonly length: number } | null {
  const tag = varintAt(bytes, at);
  const length = tag === null ? null : varintAt(bytes, tag.end);
  if (tag === null || length === null) return null;
  if (tag.value % 8 !== 2) throw new MalformedError(`a field of wire type ${tag.value % 8}`);
  return { number: Math.floor(tag.value / 8), start: length.end, length: length.value };
}

const MAX_VARINT = 10;

/** The number that begins at `at`; null if it is not complete. */
function varintAt(bytes: Uint8Array, at: number): { readonly value: number; readonly end: number } | null {
  let value = 0;
  for (let index = 0; index < MAX_VARINT; index++) {
    const byte = bytes[at + index];
    if (byte === undefined) return null;
    value += (byte & 0x7f) * 2 ** (7 * index);
    if (byte < 0x80) return { value, end: at + index + 1 };
  }
  throw new MalformedError("a number without an end");
}
