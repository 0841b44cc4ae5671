/**
 * The forms in which an API server answers, and how each is read. Which one it is, is what the answer says, not what was asked for.
 *
 * @module
 */
import type { KubernetesObject, V1Status } from "@kubernetes/client-node";
import { yieldToOthers } from "../../kernel/clock.ts";
import type { Raw } from "../decode/api_json.ts";
import { asObject, DecodeError, listAt, textAt } from "../decode/decode_values.ts";
import { JsonListReader, parseItems } from "../decode/json_list_reader.ts";
import { EventReader, readList, readStatus } from "../decode/protobuf_serializer.ts";
import {
  type AnswerBody,
  type HttpAnswer,
  MAX_EVENT_BYTES,
  piecesOf,
  readBytes,
  type Reading,
  readLines,
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
  type WatchEvent,
} from "./list_watch_messages.ts";

/** Events that arrived together. Each is read when it is taken, so those before a fault count. */
export type WatchBatch = Iterable<WatchEvent>;

/** How answers of one form are read. */
export interface AnswerFormat {
  /**
   * Reads a page of a list; `take` is given its objects as they are read.
   *
   * @throws {AnswerError} if it is none
   */
  readonly readPage: (
    answer: AnswerBody,
    type: ObjectType,
    reading: Reading,
    take: (raws: readonly unknown[]) => void,
  ) => Promise<ListPage>;
  /** Yields the events of a watch, those together that arrive together. Half an event is dropped. */
  readonly readEvents: (
    body: ReadableStream<Uint8Array>,
    type: ObjectType,
    reading: Reading,
  ) => AsyncGenerator<WatchBatch>;
  /** What a refusal says; an empty Status if it is none. */
  readonly readStatus: (bytes: Uint8Array) => Raw<V1Status>;
}

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

/** The form of an answer. @throws {AnswerError} if no API server answers in it */
export function formatOf({ contentType }: Pick<HttpAnswer, "contentType">, path: string): AnswerFormat {
  const format = knownFormat(contentType);
  if (format !== undefined) return format;
  const type = contentType.split(";", 1)[0] ?? "";
  throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
}

/** Likewise; JSON, as a refusal may be in any format. */
export function formatOfRefusal({ contentType }: Pick<HttpAnswer, "contentType">): AnswerFormat {
  return knownFormat(contentType) ?? JSON_FORMAT;
}

function knownFormat(contentType: string): AnswerFormat | undefined {
  const type = mediaType(contentType);
  if (type === "" || type === JSON_TYPE) return JSON_FORMAT;
  return type === PROTOBUF_TYPE ? PROTOBUF_FORMAT : undefined;
}

const JSON_FORMAT: AnswerFormat = {
  async readPage(answer, type, reading, take) {
    const what = `GET ${type.path}: no list`;
    const list = new JsonListReader({ maxLength: MAX_EVENT_BYTES });
    // The runtime takes a mark of the byte order off each piece, not only off the first one (Deno 2.9.6).
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    for await (const piece of readPieces(answer, reading)) {
      const text = decoder.decode(piece, { stream: true });
      for (const items of checked(what, () => list.push(text))) take(checked(what, () => parseItems(items)));
    }
    const { items, page } = checked(what, () => {
      const around = asObject<ListModel>(list.end(), "answer");
      const page = checkPage(around, type);
      // Null stands for no items: so servers write a list that was never made.
      if (!("items" in around)) throw new DecodeError("items", "is required");
      return { items: listAt(around, "items"), page };
    });
    take(items);
    return page;
  },

  async *readEvents(body, type, reading) {
    for await (const lines of readLines(body, reading)) yield jsonEvents(lines, type);
  },

  readStatus: (bytes) => jsonStatus(new TextDecoder().decode(bytes)),
};

function* jsonEvents(lines: readonly string[], type: ObjectType): Generator<WatchEvent> {
  for (const line of lines) {
    const event = checked(`GET ${type.path}: no watch event`, () => {
      const event = asObject(JSON.parse(line), "line");
      return { type: textAt(event, "type"), object: asObject<KubernetesObject>(event["object"], "object") };
    });
    yield checkEvent(event, type);
  }
}

/** Some milliseconds of work: a page is as long. */
const BATCH_SIZE = 500;

const PROTOBUF_FORMAT: AnswerFormat = {
  async readPage(answer, type, reading, take) {
    const what = `GET ${type.path}: no list`;
    const bytes = await readBytes(answer, reading);
    const { head, items } = checked(what, () => readList(bytes, type.objectKind, MAX_EVENT_BYTES));
    const page = checked(what, () => checkPage(head as Raw<ListModel>, type));
    let raws: unknown[] = [];
    for (const item of items) {
      if (raws.push(item) < BATCH_SIZE) continue;
      take(raws);
      raws = [];
      await yieldToOthers();
    }
    if (raws.length > 0) take(raws);
    return page;
  },

  async *readEvents(body, type, reading) {
    const what = `GET ${type.path}: no watch event`;
    const events = new EventReader(type.objectKind);
    for await (const piece of piecesOf(body, reading)) {
      const frames = checked(what, () => events.frames(piece, MAX_EVENT_BYTES));
      if (frames.length > 0) yield protobufEvents(frames, events, type);
    }
  },

  readStatus(bytes) {
    try {
      return readStatus(bytes);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      return { message: error.message };
    }
  },
};

function* protobufEvents(
  frames: readonly Uint8Array[],
  events: EventReader,
  type: ObjectType,
): Generator<WatchEvent> {
  for (const frame of frames) {
    const { type: eventType, object } = checked(`GET ${type.path}: no watch event`, () => events.read(frame));
    yield checkEvent({ type: eventType, object: object as Raw<KubernetesObject> }, type);
  }
}
