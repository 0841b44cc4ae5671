/**
 * What the API server says in lists, watches and refusals, checked.
 *
 * @module
 */
import type { KubernetesObject, V1ListMeta, V1ObjectMeta, V1Status } from "@kubernetes/client-node";
import type { Raw, RawKubernetesObject } from "../decode/api_json.ts";
import { asObject, DecodeError, isAbsent, listAt, objectAt, quote, textAt } from "../decode/decode_values.ts";

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

/** One page of a list. */
export interface ListPage {
  readonly items: readonly unknown[];
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
}

const EVENT_TYPES: readonly string[] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"];

/** Of which kind objects are. */
export interface ObjectType {
  /** e.g. `discovery.k8s.io/v1`. */
  readonly apiVersion: string;
  readonly objectKind: string;
  /** Where they are asked for, for messages. */
  readonly path: string;
}

/**
 * Reads a page of a list.
 *
 * @throws {AnswerError} if it is something else: an empty answer must never pass for an empty list
 */
export function parseListPage(text: string, { path, apiVersion, objectKind }: ObjectType): ListPage {
  return checked(`GET ${path}: no list`, () => {
    const page = asObject<ListModel>(parseJson(text), "answer");
    const metadata = objectAt(page, "metadata");
    const resourceVersion = textAt(metadata, "resourceVersion");
    requireText(page, "kind", `${objectKind}List`);
    requireText(page, "apiVersion", apiVersion);
    // Null stands for no items: so servers write a list that was never made.
    if (!("items" in page)) throw new DecodeError("items", "is required");
    if (resourceVersion === "") throw new DecodeError("metadata.resourceVersion", "is required");
    return { items: listAt(page, "items"), resourceVersion, continueToken: textAt(metadata, "continue") };
  });
}

function requireText(raw: RawKubernetesObject, key: "kind" | "apiVersion", wanted: string): void {
  const found = textAt(raw, key);
  if (found !== wanted) throw new DecodeError(key, `must be ${wanted}, found ${quote(found)}`);
}

/**
 * Reads a line of a watch.
 *
 * @throws {ExpiredError} if the server says that the version is gone
 * @throws {RefusalError} if it tells of another error
 * @throws {AnswerError} if the line is no event of such an object
 */
export function parseWatchEvent(line: string, { path, objectKind }: ObjectType): WatchEvent {
  const event = checked(`GET ${path}: no watch event`, () => {
    const { type, object } = asObject(parseJson(line), "line");
    return { type: String(type), object: asObject<KubernetesObject>(object, "object") };
  });
  if (event.type === "ERROR") {
    const { code, message } = event.object as Raw<V1Status>;
    throw refusal(path, typeof code === "number" ? code : 500, String(message ?? "no reason given"));
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
  const version = isAbsent(metadata) ? undefined : metadata.resourceVersion;
  return { ...event, resourceVersion: typeof version === "string" ? version : "" } as WatchEvent;
}

/** The error for an answer with another status than 200; `text` is its body. */
export function refusal(path: string, status: number, text: string, retryAfterSeconds = 0): RefusalError {
  const reason = statusMessage(text);
  // Old servers tell of a version that is gone with 500; one restored from a backup is behind the version we know.
  if (status === 410 || /too (old|large) resource version/i.test(reason)) {
    return new ExpiredError(path, status, reason);
  }
  return new RefusalError(path, status, reason, retryAfterSeconds);
}

/** The message of a Status object; the beginning of any other text. */
export function statusMessage(text: string): string {
  let message: unknown;
  try {
    message = (JSON.parse(text) as Raw<V1Status> | null)?.message;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const reason = typeof message === "string" ? message : text;
  return reason.replace(/\s+/g, " ").trim().slice(0, 300) || "no reason given";
}

function parseJson(text: string): unknown {
  return JSON.parse(text);
}

function checked<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof SyntaxError || cause instanceof DecodeError)) throw cause;
    throw new AnswerError(`${what}: ${cause.message}`, { cause });
  }
}
