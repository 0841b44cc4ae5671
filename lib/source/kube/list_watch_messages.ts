/**
 * Checks of lists, watch events and refusals that the API server sends.
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
import type { Raw, RawKubernetesObject, WatchedModels } from "../decode/api_json.ts";
import { DecodeError, isAbsent, objectAt, textAt } from "../decode/decode_values.ts";
import { quote } from "../../text/quote.ts";

/** The server, or something on the way to it, answered, but not with what was asked for. */
export class AnswerError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "AnswerError";
  }
}

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
export interface ListModel {
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

/** One event of a watch, as it was read: its object may be anything. */
export interface RawEvent {
  readonly type: string;
  readonly object: unknown;
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

/** Type of the objects of a resource. */
export interface ObjectType {
  /** e.g. `discovery.k8s.io/v1`. */
  readonly apiVersion: string;
  readonly objectKind: keyof WatchedModels;
  /** Path of the resource, for messages. */
  readonly path: string;
}

/**
 * Checks kind, API version and metadata of a page of a list.
 *
 * @throws {DecodeError} if it is something else: an empty answer must never pass for an empty list
 */
export function checkPage(page: Raw<ListModel>, { apiVersion, objectKind }: ObjectType): ListPage {
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
export function checkEvent(raw: RawEvent, { path, objectKind }: ObjectType): WatchEvent {
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
export function jsonStatus(text: string): Raw<V1Status> {
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
export function checked<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    const isUnreadable = cause instanceof SyntaxError || cause instanceof DecodeError;
    if (!isUnreadable) throw cause;
    throw new AnswerError(`${what}: ${cause.message}`, { cause });
  }
}
