/**
 * Kubernetes' protobuf: lists and refusals as a whole, watches event by event as they arrive, however the pieces are cut.
 *
 * Source: Kubernetes' apimachinery/pkg/runtime/serializer/protobuf: four bytes, then a `runtime.Unknown` that holds the object; in
 * a watch a length in four bytes, then a `meta/v1.WatchEvent` that holds such an object.
 *
 * @module
 */
import type { V1ListMeta, V1ObjectMeta, V1Status } from "@kubernetes/client-node";
import { GrowingBytes } from "../../text/bytes.ts";
import type { Raw, WatchedModels } from "./api_json.ts";
import { DecodeError } from "./decode_values.ts";
import { type Fields, KIND_MESSAGES, type Message, message, readMessage, STATUS } from "./protobuf_reader.ts";

const MAGIC = new Uint8Array([0x6b, 0x38, 0x73, 0]);
const FRAME_HEAD = 4;
const EMPTY = new Uint8Array(0);

interface TypeMeta {
  readonly apiVersion?: string;
  readonly kind?: string;
}
/** The model has another name for `continue`, which is a word of its language. */
type ListMeta = Omit<V1ListMeta, "_continue"> & { readonly continue?: string };

const TYPE_META = message<TypeMeta>({ 1: ["apiVersion", "text"], 2: ["kind", "text"] });
const UNKNOWN = message<{
  readonly typeMeta?: TypeMeta;
  readonly raw?: unknown;
  readonly contentEncoding?: string;
  readonly contentType?: string;
}>({
  1: ["typeMeta", "object", TYPE_META],
  2: ["raw", "bytes"],
  3: ["contentEncoding", "text"],
  4: ["contentType", "text"],
});
const RAW_EXTENSION = message<{ readonly raw?: unknown }>({ 1: ["raw", "bytes"] });
const WATCH_EVENT = message<{ readonly type?: string; readonly object?: { readonly raw?: unknown } }>({
  1: ["type", "text"],
  2: ["object", "object", RAW_EXTENSION],
});
const LIST_META = message<ListMeta>({
  2: ["resourceVersion", "text"],
  3: ["continue", "text"],
});

/** An object whose bytes are no message of its kind, with the metadata that comes before the fault. */
export class MalformedObject {
  readonly metadata: Raw<V1ObjectMeta>;
  readonly reason: string;

  constructor(metadata: Raw<V1ObjectMeta>, reason: string) {
    this.metadata = metadata;
    this.reason = reason;
  }
}

/** Decodes bytes as an object of a kind, in the shape of its JSON; a {@linkcode MalformedObject} if they are none. */
export function readObject(kind: keyof WatchedModels, bytes: Uint8Array): unknown {
  const object: Fields = {};
  try {
    readMessage(bytes, KIND_MESSAGES[kind], object);
    return object;
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return new MalformedObject(
      (object["metadata"] ?? {}) as Raw<V1ObjectMeta>,
      `no message: ${error.message}`,
    );
  }
}

/** @throws {DecodeError} */
function wholeMessage<T>(bytes: Uint8Array, message: Message<T>): T {
  const into: Fields = {};
  readMessage(bytes, message, into);
  return into as T;
}

/** Unpacks an object from its `runtime.Unknown`. @throws {DecodeError} if it is none */
function openEnvelope(bytes: Uint8Array): Required<TypeMeta> & { readonly bytes: Uint8Array } {
  if (bytes.length < MAGIC.length || MAGIC.some((byte, index) => bytes[index] !== byte)) {
    throw new DecodeError("", "not Kubernetes' protobuf");
  }
  const { typeMeta, raw, contentEncoding = "", contentType = "" } = wholeMessage(
    bytes.subarray(MAGIC.length),
    UNKNOWN,
  );
  if (contentEncoding !== "" || contentType !== "") {
    throw new DecodeError("", `packed or written in another way: ${contentEncoding} ${contentType}`);
  }
  const { kind = "", apiVersion = "" } = typeMeta ?? {};
  return { kind, apiVersion, bytes: raw instanceof Uint8Array ? raw : EMPTY };
}

/** The Status of a refusal; if it is no Status, one with the reason as its message. */
export function readProtobufStatus(bytes: Uint8Array): Raw<V1Status> {
  try {
    const { kind, bytes: content } = openEnvelope(bytes);
    if (kind !== "Status") throw new DecodeError("", "not a Status");
    return wholeMessage(content, STATUS) as Raw<V1Status>;
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return { message: error.message };
  }
}

/** Reads a watch of objects of one kind. */
export class ProtobufEventReader {
  readonly #objectKind: keyof WatchedModels;
  #rest = new GrowingBytes();

  constructor(objectKind: keyof WatchedModels) {
    this.#objectKind = objectKind;
  }

  /**
   * Readers of the events that this piece completes; each yields it as JSON would, or throws a {@linkcode DecodeError}.
   *
   * @throws {DecodeError} if an event's announced length exceeds `maxBytes`
   */
  push(piece: Uint8Array, maxBytes: number): (() => { readonly type: string; readonly object: unknown })[] {
    const isWhole = this.#rest.length === 0;
    if (!isWhole) this.#rest.add(piece);
    const bytes = isWhole ? piece : this.#rest.view();
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const frames: Uint8Array[] = [];
    let at = 0;
    while (bytes.length - at >= FRAME_HEAD) {
      const length = view.getUint32(at);
      if (length > maxBytes) throw new DecodeError("", `an event of ${length} bytes`);
      const end = at + FRAME_HEAD + length;
      if (end > bytes.length) break;
      frames.push(bytes.subarray(at + FRAME_HEAD, end));
      at = end;
    }
    if (isWhole || at > 0) this.#rest = growing(bytes.subarray(at));
    return frames.map((frame) => () => this.#read(frame));
  }

  #read(frame: Uint8Array): { readonly type: string; readonly object: unknown } {
    const { type = "", object } = wholeMessage(frame, WATCH_EVENT);
    const { kind, apiVersion, bytes } = openEnvelope(object?.raw instanceof Uint8Array ? object.raw : EMPTY);
    if (kind === this.#objectKind) return { type, object: readObject(this.#objectKind, bytes) };
    const status = kind === "Status" ? wholeMessage(bytes, STATUS) : {};
    return { type, object: { ...status, kind, apiVersion } };
  }
}

function growing(bytes: Uint8Array): GrowingBytes {
  const rest = new GrowingBytes();
  rest.add(bytes);
  return rest;
}

/** Kind, version and metadata of a list. */
export interface ListHead extends TypeMeta {
  readonly metadata?: ListMeta;
}

const LIST = message<{ readonly metadata?: ListMeta; readonly items?: readonly Uint8Array[] }>({
  1: ["metadata", "object", LIST_META],
  2: ["items", "eachBytes"],
});

/**
 * A list of objects of one kind: its head, and its objects, each decoded when it is taken.
 *
 * @throws {DecodeError} if it is none, is cut off, or has an object of more than `maxBytes`
 */
export function readList(
  bytes: Uint8Array,
  itemKind: keyof WatchedModels,
  maxBytes: number,
): { readonly head: ListHead; readonly items: Iterable<unknown> } {
  const { kind, apiVersion, bytes: content } = openEnvelope(bytes);
  const { metadata, items = [] } = wholeMessage(content, LIST);
  const tooLong = items.find(({ length }) => length > maxBytes);
  if (tooLong !== undefined) throw new DecodeError("", `an object of ${tooLong.length} bytes`);
  const head = { kind, apiVersion, ...(metadata === undefined ? {} : { metadata }) };
  return { head, items: items.values().map((item) => readObject(itemKind, item)) };
}
