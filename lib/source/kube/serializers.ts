/**
 * What an API server answers, in protobuf or JSON, read and checked: lists, watches and refusals. Which form it is, is what the answer
 * says, not what was asked for.
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
import { inTurns, TURN_MS, type Turns } from "../../kernel/clock.ts";
import { quote } from "../../text/quote.ts";
import type { Raw, RawKubernetesObject, WatchedModels } from "../decode/api_json.ts";
import { asObject, DecodeError, isAbsent, listAt, objectAt, textAt } from "../decode/decode_values.ts";
import { cutList, parsedItems } from "../decode/json_list.ts";
import { EventReader, readList, readStatus } from "../decode/protobuf_serializer.ts";
import {
  AnswerError,
  type HttpAnswer,
  MAX_EVENT_BYTES,
  piecesOf,
  readBytes,
  type Reading,
} from "./response.ts";

const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

/** What the configuration says of the form of answers. */
export interface ContentTypes {
  /** `clientConnection.contentType`. */
  readonly contentType: string;
  /** `clientConnection.acceptContentTypes`; counts before the other one unless it is `""`. */
  readonly acceptContentTypes: string;
}

/** Protobuf, as kube-proxy's configuration has it by itself. */
export const PROTOBUF: ContentTypes = { contentType: PROTOBUF_TYPE, acceptContentTypes: "" };

/**
 * The header `Accept`: of what is wanted, in that order, what can be read; then JSON, which every server has.
 *
 * Source: client-go's rest.Config, which would ask for what it cannot read, too.
 */
export function acceptHeader({ contentType, acceptContentTypes }: ContentTypes): string {
  const wanted = (acceptContentTypes === "" ? contentType : acceptContentTypes).split(",").map(mediaType);
  const known = wanted.filter((type) => type === PROTOBUF_TYPE || type === JSON_TYPE);
  return [...new Set([...known, JSON_TYPE])].join(",");
}

function mediaType(text: string): string {
  return (text.split(";", 1)[0] ?? "").trim().toLowerCase();
}

/** How one form is read. */
interface Format {
  readonly readList: (bytes: Uint8Array, type: ObjectType, turns: Turns) => ReadList | Promise<ReadList>;
  readonly newFrameReader: (kind: keyof WatchedModels) => FrameReader<unknown>;
  /** What a refusal says; an empty Status if it is none. */
  readonly readStatus: (bytes: Uint8Array) => Raw<V1Status>;
}

interface ReadList {
  /** What it says of itself. */
  readonly head: Raw<ListModel>;
  /** Each read when it is taken; undefined: it has no field for them. */
  readonly items: Iterable<unknown> | undefined;
}

/** Takes the pieces of a watch. */
interface FrameReader<Frame> {
  /** The frames that are complete with this piece. @throws {DecodeError} if one is longer than `maxBytes` */
  frames(piece: Uint8Array, maxBytes: number): readonly Frame[];
  /** @throws {DecodeError} if the frame holds no event */
  read(frame: Frame): { readonly type: string; readonly object: RawKubernetesObject };
}

function formatOf({ contentType }: Pick<HttpAnswer, "contentType">): Format | undefined {
  const type = mediaType(contentType);
  if (type === "" || type === JSON_TYPE) return JSON_FORMAT;
  return type === PROTOBUF_TYPE ? PROTOBUF_FORMAT : undefined;
}

/** @throws {AnswerError} if no API server answers in it */
function requiredFormat(answer: Pick<HttpAnswer, "contentType">, path: string): Format {
  const format = formatOf(answer);
  if (format !== undefined) return format;
  const type = answer.contentType.split(";", 1)[0] ?? "";
  throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
}

/**
 * Reads a page of a list; `take` is given its objects one by one.
 *
 * @throws {AnswerError} if it is none
 */
export async function readPage(
  answer: Pick<HttpAnswer, "contentType" | "body" | "onRead">,
  type: ObjectType,
  reading: Reading,
  take: (raw: unknown) => void,
): Promise<ListPage> {
  const format = requiredFormat(answer, type.path);
  const turns = { turnMs: TURN_MS, signal: reading.signal };
  try {
    const { head, items } = await format.readList(await readBytes(answer, reading), type, turns);
    const page = checkPage(head, type);
    if (items === undefined) throw new DecodeError("items", "is required");
    await inTurns(taking(items, take), turns);
    return page;
  } catch (error) {
    throw unreadable(`GET ${type.path}: no list`, error);
  }
}

function* taking(items: Iterable<unknown>, take: (raw: unknown) => void): Generator<void, void> {
  for (const item of items) {
    take(item);
    yield;
  }
}

/** Events that arrived together. Each is read when it is taken, so those before a fault count. */
export type WatchBatch = Iterable<WatchEvent>;

/**
 * The events of a watch, those together that arrive together. Half an event is dropped.
 *
 * @throws {AnswerError} if it is no watch
 */
export function readEvents(
  answer: Pick<HttpAnswer, "contentType" | "body">,
  type: ObjectType,
  reading: Reading,
): AsyncGenerator<WatchBatch> {
  const reader = requiredFormat(answer, type.path).newFrameReader(type.objectKind);
  return batchesOf(reader, answer.body, type, reading);
}

async function* batchesOf(
  reader: FrameReader<unknown>,
  body: HttpAnswer["body"],
  type: ObjectType,
  reading: Reading,
): AsyncGenerator<WatchBatch> {
  const what = `GET ${type.path}: no watch event`;
  const checked = <T>(read: () => T): T => {
    try {
      return read();
    } catch (error) {
      throw unreadable(what, error);
    }
  };
  for await (const piece of piecesOf(body, reading)) {
    const frames = checked(() => reader.frames(piece, MAX_EVENT_BYTES));
    if (frames.length > 0) {
      yield frames.values().map((frame) => checkEvent(checked(() => reader.read(frame)), type));
    }
  }
}

/** An {@linkcode AnswerError} that begins with `what` for what cannot be read, else the error itself. */
function unreadable(what: string, error: unknown): unknown {
  const isUnreadable = error instanceof SyntaxError || error instanceof DecodeError;
  return isUnreadable ? new AnswerError(`${what}: ${error.message}`, { cause: error }) : error;
}

/** What a refusal says, which may be in any form. */
export function readRefusalStatus(answer: Pick<HttpAnswer, "contentType">, bytes: Uint8Array): StatusParts {
  return statusOf((formatOf(answer) ?? JSON_FORMAT).readStatus(bytes));
}

/** What is not longer is parsed at once: finding its objects would cost more than the memory of all of them is worth. */
const WHOLE_LENGTH = 3 * 1024 * 1024;

async function readJsonList(bytes: Uint8Array, _: ObjectType, turns: Turns): Promise<ReadList> {
  const text = new TextDecoder().decode(bytes);
  const list = text.length > WHOLE_LENGTH ? await inTurns(cutList(text), turns) : null;
  const spans = list?.items ?? [[0, text.length]];
  const tooLong = spans.find(([start, end]) => end - start > MAX_EVENT_BYTES);
  if (tooLong !== undefined) throw new DecodeError("", `an object of more than ${MAX_EVENT_BYTES} bytes`);
  if (list !== null) return { head: list.head, items: parsedItems(text, list) };
  const head = asObject<ListModel>(JSON.parse(text), "answer");
  // Null stands for no items: so servers write a list that was never made.
  return { head, items: "items" in head ? listAt(head, "items") : undefined };
}

/** Events in JSON, a line for each. Blank lines are none. */
export class JsonEventReader implements FrameReader<string> {
  /** The runtime takes a mark of the byte order off each piece, not only off the first one (Deno 2.9.6). */
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #rest = "";

  frames(piece: Uint8Array, maxBytes: number): readonly string[] {
    const text = this.#decoder.decode(piece, { stream: true });
    const end = text.lastIndexOf("\n");
    const whole = end < 0 ? "" : this.#rest + text.slice(0, end);
    this.#rest = end < 0 ? this.#rest + text : text.slice(end + 1);
    if (this.#rest.length > maxBytes) throw new DecodeError("", `a line of more than ${maxBytes} bytes`);
    return whole.split("\n").filter((line) => line !== "");
  }

  read(line: string): { readonly type: string; readonly object: RawKubernetesObject } {
    const event = asObject(JSON.parse(line), "line");
    return { type: textAt(event, "type"), object: asObject(event["object"], "object") };
  }
}

const JSON_FORMAT: Format = {
  readList: readJsonList,
  newFrameReader: () => new JsonEventReader(),
  readStatus: (bytes) => jsonStatus(new TextDecoder().decode(bytes)),
};

const PROTOBUF_FORMAT: Format = {
  readList: (bytes, { objectKind }) => readList(bytes, objectKind, MAX_EVENT_BYTES) as ReadList,
  newFrameReader: (kind) => new EventReader(kind),
  readStatus(bytes) {
    try {
      return readStatus(bytes);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      return { message: error.message };
    }
  },
};

/** A list that may be one, but none of its objects can be read. */
export class UnreadableListError extends AnswerError {
  constructor(message: string) {
    super(message);
    this.name = "UnreadableListError";
  }
}

/** The server says no. */
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

/** The version asked for is gone, or from another life of the server: the state must be listed again. */
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

/** What a page of a list says beside its objects. */
export interface ListPage {
  readonly resourceVersion: string;
  /** `""` at the end. */
  readonly continueToken: string;
}

/** One event of a watch, without errors. */
export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly object: RawKubernetesObject;
  /** `""` if the object does not say. */
  readonly resourceVersion: string;
  /** True for the bookmark after the last object of a list that was asked for as events. */
  readonly endsList: boolean;
}

const EVENT_TYPES: readonly string[] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"];
const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

/** Of which kind objects are. */
export interface ObjectType {
  /** e.g. `discovery.k8s.io/v1`. */
  readonly apiVersion: string;
  readonly objectKind: keyof WatchedModels;
  /** Where they are asked for, for messages. */
  readonly path: string;
}

/**
 * Checks what a page of a list says of itself.
 *
 * @throws {DecodeError} if it is something else: an empty answer must never pass for an empty list
 */
function checkPage(page: Raw<ListModel>, { apiVersion, objectKind }: ObjectType): ListPage {
  const metadata = objectAt(page, "metadata");
  const resourceVersion = textAt(metadata, "resourceVersion");
  requireText(page, "kind", `${objectKind}List`);
  requireText(page, "apiVersion", apiVersion);
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
function checkEvent(
  event: { readonly type: string; readonly object: RawKubernetesObject },
  { path, objectKind }: ObjectType,
): WatchEvent {
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

/** What a Status says. */
interface StatusParts {
  /** `""` if there is none. */
  readonly message: string;
  /** e.g. `Expired`; `""` if there is none. */
  readonly reason: string;
  /** 500 if there is none. */
  readonly code: number;
  /** 0 if it does not say. */
  readonly retryAfterSeconds: number;
}

/** Reads a Status as far as it is one. */
function statusOf(raw: Raw<V1Status>): StatusParts {
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
  // Old servers report a version that is gone with 500; one restored from a backup is behind the version we know.
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
