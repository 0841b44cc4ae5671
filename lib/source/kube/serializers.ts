/**
 * Serializations of API server answers, their readers, and the checks of lists, events and refusals. The content type
 * of the answer decides, not the one that was requested.
 *
 * @module
 */
import type {
  KubernetesObject,
  V1ListMeta,
  V1ObjectMeta,
  V1Status,
  V1StatusDetails,
} from "@kubernetes/client-node";
import { yieldToOthers } from "../../kernel/clock.ts";
import { GrowingBytes } from "../../text/bytes.ts";
import { quote } from "../../text/quote.ts";
import type { Raw, RawKubernetesObject, WatchedModels } from "../decode/api_json.ts";
import { apiVersionOf } from "../decode/decode.ts";
import { asObject, DecodeError, isAbsent, listAt, objectAt, textAt } from "../decode/decode_values.ts";
import { JsonListReader, parseItems } from "../decode/json_list_reader.ts";
import { ProtobufEventReader, readList, readProtobufStatus } from "../decode/protobuf_serializer.ts";
import {
  type AnswerBody,
  AnswerError,
  type HttpAnswer,
  MAX_EVENT_BYTES,
  piecesOf,
  type Reading,
  readPieces,
} from "./response.ts";

/** Events that arrived together. Each is read when it is taken, so those before a fault count. */
export type WatchBatch = Iterable<WatchEvent>;

/** Reader of answers in one serialization. */
interface Serializer {
  readonly newListReader: (type: ObjectType) => ListReader;
  readonly newEventReader: (type: ObjectType) => EventReader;
  /** The Status of a refusal; an empty one if it is none. */
  readonly readStatus: (bytes: Uint8Array) => Raw<V1Status>;
}

/** Reads a list from its pieces. */
interface ListReader {
  /** Objects that this piece completes, consecutive ones together, as far as they are not left to the end. */
  push(piece: Uint8Array): Iterable<readonly unknown[]>;
  /** The list's head, and its other objects, each read when it is taken; undefined: it has no `items`. */
  end(): { readonly head: Raw<ListModel>; readonly items: Iterable<unknown> | undefined };
}

/** Reads a watch from its pieces. */
interface EventReader {
  /** Readers of the events that this piece completes. @throws {DecodeError} if one is longer than `maxBytes` */
  push(piece: Uint8Array, maxBytes: number): readonly (() => RawEvent)[];
}

const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

/** Content types in the configuration of the client. */
export interface ContentTypes {
  /** `clientConnection.contentType`. */
  readonly contentType: string;
  /** `clientConnection.acceptContentTypes`; used instead of `contentType` unless it is `""`. */
  readonly acceptContentTypes: string;
}

/** Protobuf, the default of kube-proxy's configuration. */
export const PROTOBUF: ContentTypes = { contentType: PROTOBUF_TYPE, acceptContentTypes: "" };

/**
 * The header `Accept`: those of the wanted types that can be read, in order; then JSON, which every server has.
 *
 * Source: client-go's rest.Config, which would ask for types that it cannot read, too.
 */
export function acceptHeader({ contentType, acceptContentTypes }: ContentTypes): string {
  const wanted = (acceptContentTypes === "" ? contentType : acceptContentTypes).split(",").map(mediaType);
  const known = wanted.filter((type) => type === PROTOBUF_TYPE || type === JSON_TYPE);
  return [...new Set([...known, JSON_TYPE])].join(",");
}

function mediaType(text: string): string {
  return (text.split(";", 1)[0] ?? "").trim().toLowerCase();
}

function serializerOf(contentType: string): Serializer | undefined {
  const type = mediaType(contentType);
  if (type === "" || type === JSON_TYPE) return JSON_SERIALIZER;
  return type === PROTOBUF_TYPE ? PROTOBUF_SERIALIZER : undefined;
}

/** The serializer of a content type. @throws {AnswerError} if API servers do not use it */
function knownSerializerOf(contentType: string, path: string): Serializer {
  const serializer = serializerOf(contentType);
  if (serializer !== undefined) return serializer;
  const type = contentType.split(";", 1)[0] ?? "";
  throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
}

type Answer = AnswerBody & Pick<HttpAnswer, "contentType">;

/** The Status in the bytes of a refusal, whatever its content type. */
export function readStatus({ contentType }: Pick<Answer, "contentType">, bytes: Uint8Array): Raw<V1Status> {
  return (serializerOf(contentType) ?? JSON_SERIALIZER).readStatus(bytes);
}

/** Objects per batch: some milliseconds of work, and as many as a page has. */
const BATCH_SIZE = 500;

/**
 * Reads a page of a list; `take` gets its objects as they are read.
 *
 * @throws {AnswerError} if the answer is no list
 */
export async function readPage(
  answer: Answer,
  type: ObjectType,
  reading: Reading,
  take: (raws: readonly unknown[]) => void,
): Promise<ListPage> {
  const what = `GET ${type.path}: no list`;
  const list = knownSerializerOf(answer.contentType, type.path).newListReader(type);
  for await (const piece of readPieces(answer, reading)) {
    for (const raws of checked(what, () => list.push(piece))) take(raws);
  }
  const { items, page } = checked(what, () => {
    const { head, items } = list.end();
    const page = checkPage(head, type);
    if (items === undefined) throw new DecodeError("items", "is required");
    return { items, page };
  });
  let raws: unknown[] = [];
  for (const item of items) {
    if (raws.push(item) < BATCH_SIZE) continue;
    take(raws);
    raws = [];
    await yieldToOthers();
  }
  take(raws);
  return page;
}

/**
 * The events of a watch, in batches that arrived together. An incomplete last event is dropped.
 *
 * @throws {AnswerError} if the answer is not from an API server
 */
export function readEvents(answer: Answer, type: ObjectType, reading: Reading): AsyncGenerator<WatchBatch> {
  const events = knownSerializerOf(answer.contentType, type.path).newEventReader(type);
  return eventsIn(answer.body, events, type, reading);
}

async function* eventsIn(
  body: ReadableStream<Uint8Array>,
  events: EventReader,
  type: ObjectType,
  reading: Reading,
): AsyncGenerator<WatchBatch> {
  const what = `GET ${type.path}: no watch event`;
  for await (const piece of piecesOf(body, reading)) {
    const arrived = checked(what, () => events.push(piece, MAX_EVENT_BYTES));
    if (arrived.length > 0) yield arrived.values().map((read) => checkEvent(checked(what, read), type));
  }
}

/** The runtime removes a byte order mark from each piece, not only from the first one (Deno 2.9.6). */
function newTextDecoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}

function newJsonListReader(): ListReader {
  const list = new JsonListReader({ maxLength: MAX_EVENT_BYTES });
  const decoder = newTextDecoder();
  return {
    push: (piece) => list.push(decoder.decode(piece, { stream: true })).map(parseItems),
    end() {
      // A character that is cut off at the end of the text.
      list.push(decoder.decode());
      const head = asObject<ListModel>(list.end(), "answer");
      // Null stands for no items: so servers write a list that was never made.
      return { head, items: "items" in head ? listAt(head, "items") : undefined };
    },
  };
}

/** Events in JSON, a line for each. Blank lines are none. */
export class JsonEventReader implements EventReader {
  readonly #decoder = newTextDecoder();
  #rest = "";

  push(piece: Uint8Array, maxBytes: number): readonly (() => RawEvent)[] {
    const text = this.#decoder.decode(piece, { stream: true });
    const end = text.lastIndexOf("\n");
    const whole = end < 0 ? "" : this.#rest + text.slice(0, end);
    this.#rest = end < 0 ? this.#rest + text : text.slice(end + 1);
    if (this.#rest.length > maxBytes) throw new DecodeError("", `a line of more than ${maxBytes} bytes`);
    return whole.split("\n").filter((line) => line !== "").map((line) => () => readJsonEvent(line));
  }
}

function readJsonEvent(line: string): RawEvent {
  const event = asObject(JSON.parse(line), "line");
  return { type: textAt(event, "type"), object: asObject(event["object"], "object") };
}

function newProtobufListReader({ objectKind }: ObjectType): ListReader {
  const bytes = new GrowingBytes();
  return {
    push(piece) {
      bytes.add(piece);
      return [];
    },
    end() {
      const { head, items } = readList(bytes.view(), objectKind, MAX_EVENT_BYTES);
      return { head: head as Raw<ListModel>, items };
    },
  };
}

const JSON_SERIALIZER: Serializer = {
  newListReader: newJsonListReader,
  newEventReader: () => new JsonEventReader(),
  readStatus: (bytes) => jsonStatus(new TextDecoder().decode(bytes)),
};
const PROTOBUF_SERIALIZER: Serializer = {
  newListReader: newProtobufListReader,
  newEventReader: ({ objectKind }) => new ProtobufEventReader(objectKind),
  readStatus: readProtobufStatus,
};

/** A list that may be one, but none of its objects can be read. */
export class UnreadableListError extends AnswerError {
  constructor(message: string) {
    super(message);
    this.name = "UnreadableListError";
  }
}

/** The server refuses the request. */
export class RefusalError extends AnswerError {
  /** HTTP status, or that of an error inside a watch. */
  readonly status: number;
  /** From `Retry-After`; 0 if the server did not say. */
  readonly retryAfterSeconds: number;

  constructor(path: string, status: number, reason: string, retryAfterSeconds = 0) {
    super(`GET ${path}: status ${status}: ${reason}`);
    this.name = "RefusalError";
    this.status = status;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The requested version is gone, or of another instance of the server: the state must be listed again. */
export class ExpiredError extends RefusalError {
  constructor(path: string, status: number, reason: string) {
    super(path, status, reason);
    this.name = "ExpiredError";
  }
}

/** A list of any kind. The model has another name for `continue`, which is a word of its language. */
interface ListModel {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata?: Omit<V1ListMeta, "_continue"> & { readonly continue?: V1ListMeta["_continue"] };
  readonly items: readonly KubernetesObject[];
}

/** Metadata of a page of a list. */
export interface ListPage {
  readonly resourceVersion: string;
  /** `""` at the end. */
  readonly continueToken: string;
}

/** One event of a watch as it was decoded, its object still unchecked. */
export interface RawEvent {
  readonly type: string;
  readonly object: unknown;
}

/** One event of a watch, without errors. */
export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly object: RawKubernetesObject;
  /** `""` if the object has none. */
  readonly resourceVersion: string;
  /** True for the bookmark after the last object of a list that was asked for as events. */
  readonly endsList: boolean;
}

const EVENT_TYPES: readonly string[] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"];
const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

/** Type of the objects of a resource. */
export interface ObjectType {
  readonly objectKind: keyof WatchedModels;
  /** Path of the resource, for messages. */
  readonly path: string;
}

/**
 * Checks kind, API version and metadata of a page of a list.
 *
 * @throws {DecodeError} if it is something else: an empty answer must never pass for an empty list
 */
function checkPage(page: Raw<ListModel>, { objectKind }: ObjectType): ListPage {
  const metadata = objectAt(page, "metadata");
  const resourceVersion = textAt(metadata, "resourceVersion");
  requireText(page, "kind", `${objectKind}List`);
  requireText(page, "apiVersion", apiVersionOf(objectKind));
  if (resourceVersion === "") throw new DecodeError("metadata.resourceVersion", "is required");
  return { resourceVersion, continueToken: textAt(metadata, "continue") };
}

function requireText(raw: RawKubernetesObject, key: "kind" | "apiVersion", wanted: string): void {
  const found = textAt(raw, key);
  if (found !== wanted) throw new DecodeError(key, `must be ${wanted}, found ${quote(found)}`);
}

/**
 * Checks an event of a watch.
 *
 * @throws {ExpiredError} if the server says that the version is gone
 * @throws {RefusalError} if it holds another error
 * @throws {AnswerError} if it is no event of such an object
 */
function checkEvent(raw: RawEvent, { path, objectKind }: ObjectType): WatchEvent {
  const event = { type: raw.type, object: raw.object as RawKubernetesObject };
  if (event.type === "ERROR") {
    const status = statusOf(event.object);
    throw refusal(path, status.code, status.message || "no reason given", status);
  }
  if (!EVENT_TYPES.includes(event.type)) {
    throw new AnswerError(`GET ${path}: no watch event: unknown type ${quote(event.type)}`);
  }
  const { kind } = event.object;
  if (event.type !== "BOOKMARK" && !isAbsent(kind) && kind !== objectKind) {
    throw new AnswerError(`GET ${path}: no watch event: the object is of kind ${quote(kind)}`);
  }
  // A malformed object must only be refused itself, so its metadata is looked at without checks.
  const metadata = event.object.metadata as Raw<V1ObjectMeta> | null | undefined;
  const { resourceVersion: version, annotations } = isAbsent(metadata) ? {} as Raw<V1ObjectMeta> : metadata;
  const marks = (annotations ?? {}) as Readonly<Record<string, unknown>>;
  return {
    ...event,
    resourceVersion: typeof version === "string" ? version : "",
    endsList: event.type === "BOOKMARK" && marks[INITIAL_EVENTS_END] === "true",
  } as WatchEvent;
}

/** Fields of a Status. */
export interface StatusParts {
  /** `""` if there is none. */
  readonly message: string;
  /** e.g. `Expired`; `""` if there is none. */
  readonly reason: string;
  /** 500 if there is none. */
  readonly code: number;
  /** 0 if there is none. */
  readonly retryAfterSeconds: number;
}

/** Reads a Status as far as it is one. */
export function statusOf(raw: Raw<V1Status>): StatusParts {
  const { message, reason, code, details } = raw;
  const seconds = typeof details === "object" && details !== null
    ? (details as Raw<V1StatusDetails>).retryAfterSeconds
    : undefined;
  return {
    message: typeof message === "string" ? message : "",
    reason: typeof reason === "string" ? reason : "",
    code: typeof code === "number" ? code : 500,
    retryAfterSeconds: typeof seconds === "number" && seconds > 0 ? seconds : 0,
  };
}

/** The error for an answer with another status than 200, or for an error in a watch. */
export function refusal(
  path: string,
  status: number,
  message: string,
  { reason = "", retryAfterSeconds = 0 }: Partial<StatusParts> = {},
): RefusalError {
  const said = shortened(message);
  // Old servers report a version that is gone with 500; one restored from a backup is behind the version known here.
  const isGone = status === 410 || reason === "Expired" || reason === "Gone" ||
    /too (old|large) resource version/i.test(said);
  if (isGone) return new ExpiredError(path, status, said);
  return new RefusalError(path, status, said, retryAfterSeconds);
}

/** The message of a Status object in JSON; the beginning of any other text. */
export function statusMessage(text: string): string {
  return shortened(statusOf(jsonStatus(text)).message || text);
}

/** A Status in JSON; an empty one if the text is none. */
function jsonStatus(text: string): Raw<V1Status> {
  try {
    const status: unknown = JSON.parse(text);
    return typeof status === "object" && status !== null ? status : {};
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return {};
  }
}

function shortened(message: string): string {
  return message.replace(/\s+/g, " ").trim().slice(0, 300) || "no reason given";
}

/** Result of `read`. @throws {AnswerError} that begins with `what`, if the text is unreadable */
function checked<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const isUnreadable = cause instanceof SyntaxError || cause instanceof DecodeError;
    if (!isUnreadable) throw cause;
    throw new AnswerError(`${what}: ${cause.message}`, { cause });
  }
}
