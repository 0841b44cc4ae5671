/**
 * Serializers of the API server's answers, JSON and protobuf. The type that an answer names decides, not the one that was requested.
 *
 * @module
 */
import type { V1Status } from "@kubernetes/client-node";
import { yieldToOthers } from "../../kernel/clock.ts";
import { GrowingBytes } from "../../text/bytes.ts";
import type { Raw } from "../decode/api_json.ts";
import { asObject, DecodeError, listAt, textAt } from "../decode/decode_values.ts";
import { JsonListReader, parseItems } from "../decode/json_list_reader.ts";
import { ProtobufEventReader, readList, readProtobufStatus } from "../decode/protobuf_serializer.ts";
import {
  type AnswerBody,
  type HttpAnswer,
  MAX_EVENT_BYTES,
  piecesOf,
  type Reading,
  readPieces,
} from "./response.ts";
import {
  AnswerError,
  checked,
  checkEvent,
  checkPage,
  jsonStatus,
  type ListModel,
  type ListPage,
  type ObjectType,
  type RawEvent,
  type WatchEvent,
} from "./list_watch_messages.ts";

/** Events that arrived together. Each is read when it is taken, so those before a fault count. */
export type WatchBatch = Iterable<WatchEvent>;

/** How answers of one form are read. */
interface Serializer {
  readonly newListReader: (type: ObjectType) => ListReader;
  readonly newEventReader: (type: ObjectType) => EventReader;
  /** What a refusal says; an empty Status if it is none. */
  readonly readStatus: (bytes: Uint8Array) => Raw<V1Status>;
}

/** Takes the pieces of a list. */
interface ListReader {
  /** The objects that are complete with this piece, as far as they are not left to the end, those together that stand together. */
  push(piece: Uint8Array): Iterable<readonly unknown[]>;
  /** What the list says of itself, and its other objects, each read when it is taken; undefined: it has no field for them. */
  end(): { readonly head: Raw<ListModel>; readonly items: Iterable<unknown> | undefined };
}

/** Takes the pieces of a watch. */
interface EventReader {
  /** Reads each of the events that are complete with this piece. @throws {DecodeError} if one is longer than `maxBytes` */
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

/** @throws {AnswerError} if no API server answers in that form */
function knownSerializerOf(contentType: string, path: string): Serializer {
  const serializer = serializerOf(contentType);
  if (serializer !== undefined) return serializer;
  const type = contentType.split(";", 1)[0] ?? "";
  throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
}

type Answer = AnswerBody & Pick<HttpAnswer, "contentType">;

/** What a refusal says, of which these are the bytes: it may be in any form. */
export function readStatus({ contentType }: Pick<Answer, "contentType">, bytes: Uint8Array): Raw<V1Status> {
  return (serializerOf(contentType) ?? JSON_SERIALIZER).readStatus(bytes);
}

/** Some milliseconds of work: a page is as long. */
const BATCH_SIZE = 500;

/**
 * Reads a page of a list; `take` is given its objects as they are read.
 *
 * @throws {AnswerError} if it is none
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
 * The events of a watch, those together that arrive together. Half an event is dropped.
 *
 * @throws {AnswerError} if the answer is none of an API server
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
