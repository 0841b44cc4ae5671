/**
 * Serializers of the API server's answers, JSON and protobuf. The type that an answer names decides, not the one that was requested.
 *
 * @module
 */
import type { KubernetesObject, V1Status } from "@kubernetes/client-node";
import { yieldToOthers } from "../../kernel/clock.ts";
import { GrowingBytes } from "../../text/bytes.ts";
import type { Raw } from "../decode/api_json.ts";
import { asObject, DecodeError, listAt, textAt } from "../decode/decode_values.ts";
import { JsonListReader, parseItems } from "../decode/json_list_reader.ts";
import { EventReader, readList, readStatus } from "../decode/protobuf_serializer.ts";
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
  type WatchEvent,
} from "./list_watch_messages.ts";

/** Events that arrived together. Each is read when it is taken, so those before a fault count. */
export type WatchBatch = Iterable<WatchEvent>;

/** Reader of answers in one serialization. */
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
  /** The Status of a refusal; an empty one if it is none. */
  readonly readStatus: (bytes: Uint8Array) => Raw<V1Status>;
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

/** The form of an answer. @throws {AnswerError} if no API server answers in it */
export function formatOf({ contentType }: Pick<HttpAnswer, "contentType">, path: string): AnswerFormat {
  const format = knownFormat(contentType);
  if (format !== undefined) return format;
  const type = contentType.split(";", 1)[0] ?? "";
  throw new AnswerError(`GET ${path}: the answer is ${type} instead of JSON: it is not from an API server`);
}

/** The format of a refusal; JSON where it is unknown, as a refusal may be in any. */
export function formatOfRefusal({ contentType }: Pick<HttpAnswer, "contentType">): AnswerFormat {
  return knownFormat(contentType) ?? JSON_FORMAT;
}

function knownFormat(contentType: string): AnswerFormat | undefined {
  const type = mediaType(contentType);
  if (type === "" || type === JSON_TYPE) return JSON_FORMAT;
  return type === PROTOBUF_TYPE ? PROTOBUF_FORMAT : undefined;
}

/** Reads a list from its pieces. */
interface ListReader {
  /** Objects that this piece completes, consecutive ones together, as far as they are not left to the end. */
  push(piece: Uint8Array): Iterable<readonly unknown[]>;
  /** The list's head, and its other objects, each read when it is taken; undefined: it has no `items`. */
  end(): { readonly head: Raw<ListModel>; readonly items: Iterable<unknown> | undefined };
}

/** Reads a watch from its pieces. */
interface FrameReader<Frame> {
  /** Frames that this piece completes. @throws {DecodeError} if one is longer than `maxBytes` */
  frames(piece: Uint8Array, maxBytes: number): readonly Frame[];
  /** @throws {DecodeError} if the frame holds no event */
  read(frame: Frame): { readonly type: string; readonly object: unknown };
}

/** Some milliseconds of work: a page is as long. */
const BATCH_SIZE = 500;

function formatBy<Frame>(
  newListReader: (type: ObjectType) => ListReader,
  newFrameReader: (type: ObjectType) => FrameReader<Frame>,
  readStatus: AnswerFormat["readStatus"],
): AnswerFormat {
  return {
    async readPage(answer, type, reading, take) {
      const what = `GET ${type.path}: no list`;
      const list = newListReader(type);
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
    },

    async *readEvents(body, type, reading) {
      const events = newFrameReader(type);
      for await (const piece of piecesOf(body, reading)) {
        const frames = checked(whatEvent(type), () => events.frames(piece, MAX_EVENT_BYTES));
        if (frames.length > 0) yield eventsOf(frames, events, type);
      }
    },

    readStatus,
  };
}

function* eventsOf<Frame>(
  frames: readonly Frame[],
  events: FrameReader<Frame>,
  type: ObjectType,
): Generator<WatchEvent> {
  for (const frame of frames) {
    const event = checked(whatEvent(type), () => events.read(frame));
    yield checkEvent({ type: event.type, object: event.object as Raw<KubernetesObject> }, type);
  }
}

function whatEvent({ path }: ObjectType): string {
  return `GET ${path}: no watch event`;
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
export class JsonEventReader implements FrameReader<string> {
  readonly #decoder = newTextDecoder();
  #rest = "";

  frames(piece: Uint8Array, maxBytes: number): readonly string[] {
    const text = this.#decoder.decode(piece, { stream: true });
    const end = text.lastIndexOf("\n");
    const whole = end < 0 ? "" : this.#rest + text.slice(0, end);
    this.#rest = end < 0 ? this.#rest + text : text.slice(end + 1);
    if (this.#rest.length > maxBytes) throw new DecodeError("", `a line of more than ${maxBytes} bytes`);
    return whole.split("\n").filter((line) => line !== "");
  }

  read(line: string): { readonly type: string; readonly object: unknown } {
    const event = asObject(JSON.parse(line), "line");
    return { type: textAt(event, "type"), object: asObject(event["object"], "object") };
  }
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

function readProtobufStatus(bytes: Uint8Array): Raw<V1Status> {
  try {
    return readStatus(bytes);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return { message: error.message };
  }
}

const JSON_FORMAT = formatBy(
  newJsonListReader,
  () => new JsonEventReader(),
  (bytes) => jsonStatus(new TextDecoder().decode(bytes)),
);
const PROTOBUF_FORMAT = formatBy(
  newProtobufListReader,
  ({ objectKind }) => new EventReader(objectKind),
  readProtobufStatus,
);
