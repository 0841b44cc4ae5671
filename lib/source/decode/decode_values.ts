/**
 * Reading single values out of untyped objects, with errors that name the field.
 *
 * Paths are built only when something is wrong: every function throws with the path below the value it was given, and
 * callers that go into a list put their part in front ({@linkcode decodeList}).
 *
 * @module
 */
import type { DiscoveryV1EndpointPort, V1ObjectMeta, V1ServicePort } from "@kubernetes/client-node";
import { closestWord } from "../../config/suggest.ts";
import type { Protocol } from "../../model/objects.ts";
import { SharedTexts, tight } from "../../text/kept.ts";
import { quote } from "../../text/quote.ts";
import { oneOf } from "../../text/words.ts";
import type { AnyModel, FieldOf, ItemIn, ObjectIn, Raw, RawKubernetesObject } from "./api_json.ts";
import { type Ip, parseIp, specialUse } from "../../model/ip.ts";

/** A field that cannot be read. `path` is relative to the value that was decoded. */
export class DecodeError extends TypeError {
  readonly path: string;
  readonly reason: string;

  constructor(path: string, reason: string) {
    super(path === "" ? reason : `${path}: ${reason}`);
    this.name = "DecodeError";
    this.path = path;
    this.reason = reason;
  }

  /** The same problem with its path prefixed by `prefix`, the path of a value that holds this one. */
  within(prefix: string): DecodeError {
    if (prefix === "") return this;
    const joint = this.path === "" || this.path.startsWith("[") ? "" : ".";
    return new DecodeError(`${prefix}${joint}${this.path}`, this.reason);
  }
}

/** An object without a model. Fields that are null count as absent, as in the API. */
export type RawObject = Raw<AnyModel>;

const EMPTY_OBJECT = Object.freeze({});
/** Empty list that all objects share: 100,000 empty lists are worth not having. */
export const NO_TEXTS: readonly string[] = Object.freeze([]);

function wrong(path: string, wanted: string, value: unknown): DecodeError {
  return new DecodeError(path, `must be ${wanted}, found ${quote(value)}`);
}

/** True for null and undefined. */
export function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

/** `value` as an object that should be a `T`. @throws {DecodeError} if it is no object */
export function asObject<T = AnyModel>(value: unknown, path = ""): Raw<T> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw wrong(path, "an object", value);
  }
  return value as Raw<T>;
}

/** The object at `key`; an empty one if absent. */
export function objectAt<T, Key extends FieldOf<T, "object">>(
  parent: Raw<T>,
  key: Key,
): Raw<ObjectIn<T, Key>> {
  const value: unknown = parent[key];
  return isAbsent(value) ? EMPTY_OBJECT : asObject(value, key);
}

/** The text at `key`; `fallback` if absent. */
export function textAt<T>(parent: Raw<T>, key: FieldOf<T, "text">, fallback = ""): string {
  const value: unknown = parent[key];
  if (typeof value === "string") return value;
  if (isAbsent(value)) return fallback;
  throw wrong(key, "a string", value);
}

const sharedTexts = new SharedTexts();

/** As {@linkcode textAt}, for a text that many objects share: equal strings are kept once. */
export function sharedTextAt<T>(parent: Raw<T>, key: FieldOf<T, "text">): string {
  const text = textAt(parent, key);
  return text === "" ? text : sharedTexts.of(text);
}

/** The boolean at `key`; `fallback` if absent. */
export function booleanAt<T>(parent: Raw<T>, key: FieldOf<T, "boolean">, fallback: boolean): boolean {
  const value: unknown = parent[key];
  if (typeof value === "boolean") return value;
  if (isAbsent(value)) return fallback;
  throw wrong(key, "true or false", value);
}

/** The whole number at `key`; `fallback` if absent. @throws {DecodeError} if it is not within `min`..`max` */
export function integerAt<T>(
  parent: Raw<T>,
  key: FieldOf<T, "number">,
  min: number,
  max: number,
  fallback: number,
): number {
  const value: unknown = parent[key];
  if (isAbsent(value)) return fallback;
  if (typeof value !== "number" || !Number.isInteger(value)) throw wrong(key, "a whole number", value);
  if (value < min || value > max) throw wrong(key, `${min}..${max}`, value);
  return value;
}

/** The port at `key`. @throws {DecodeError} if absent or not 1..65535 */
export function portAt<T>(parent: Raw<T>, key: FieldOf<T, "number">): number {
  const port = integerAt(parent, key, 1, 65535, 0);
  if (port === 0) throw new DecodeError(key, "is required");
  return port;
}

/** The list at `key`; an empty one if absent. */
export function listAt<T>(parent: Raw<T>, key: FieldOf<T, "texts" | "objects">): readonly unknown[] {
  return asList(parent[key], key);
}

function asList(value: unknown, key: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  if (isAbsent(value)) return NO_TEXTS;
  throw wrong(key, "a list", value);
}

/** Every item of the list at `key`, decoded. */
export function decodeList<T, Key extends FieldOf<T, "objects">, Item>(
  parent: Raw<T>,
  key: Key,
  decode: (item: Raw<ItemIn<T, Key>>) => Item,
): readonly Item[] {
  const list = asList(parent[key], key);
  const decoded: Item[] = [];
  let index = 0;
  try {
    for (; index < list.length; index++) decoded.push(decode(asObject(list[index])));
  } catch (error) {
    throw withPrefix(error, `${key}[${index}]`);
  }
  return tight(decoded);
}

/** The list of texts at `key`, each checked by `check`, which throws with an empty path. */
export function textsAt<T>(
  parent: Raw<T>,
  key: FieldOf<T, "texts">,
  check?: (text: string) => void,
): readonly string[] {
  const list = checkedTextsAt(parent, key, check);
  return list.length === 0 ? NO_TEXTS : tight(list);
}

/** The first text of the list at `key`, all of which are checked as by {@linkcode textsAt}; undefined if there is none. */
export function firstTextAt<T>(
  parent: Raw<T>,
  key: FieldOf<T, "texts">,
  check?: (text: string) => void,
): string | undefined {
  return checkedTextsAt(parent, key, check)[0];
}

/** The raw object's own list, once its texts are checked. */
function checkedTextsAt<T>(
  parent: Raw<T>,
  key: FieldOf<T, "texts">,
  check?: (text: string) => void,
): readonly string[] {
  const list = asList(parent[key], key);
  let index = 0;
  try {
    for (; index < list.length; index++) {
      const value = list[index];
      if (typeof value !== "string") throw wrong("", "a string", value);
      check?.(value);
    }
  } catch (error) {
    throw withPrefix(error, `${key}[${index}]`);
  }
  return list as readonly string[];
}

/** Runs `decode`, putting `prefix` before the path of an error that it throws. */
export function inside<T>(prefix: string, decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw withPrefix(error, prefix);
  }
}

function withPrefix(error: unknown, prefix: string): unknown {
  return error instanceof DecodeError ? error.within(prefix) : error;
}

/** The text at `key`, which must be one of `allowed`; `fallback` if absent or empty. */
export function choiceAt<T, Choice extends string>(
  parent: Raw<T>,
  key: FieldOf<T, "text">,
  allowed: readonly Choice[],
  fallback: Choice,
): Choice {
  const value: unknown = parent[key];
  if (isAbsent(value) || value === "") return fallback;
  for (const choice of allowed) if (choice === value) return choice;
  throw notAmong(key, allowed, value);
}

/** The error for a value that is none of `allowed` (in words: `wanted`); says which one was probably meant. */
export function notAmong(
  path: string,
  allowed: readonly string[],
  value: unknown,
  wanted: string = oneOf(allowed),
): DecodeError {
  const meant = typeof value === "string" ? closestWord(value, allowed) : undefined;
  const hint = meant === undefined ? "" : ` (did you mean ${meant}?)`;
  return new DecodeError(path, `must be ${wanted}, found ${quote(value)}${hint}`);
}

const PROTOCOLS: readonly Protocol[] = ["TCP", "UDP", "SCTP"];

/** The protocol at `key`; TCP if absent. */
export function protocolAt<T>(parent: Raw<T>, key: FieldOf<T, "text">): Protocol {
  return choiceAt(parent, key, PROTOCOLS, "TCP");
}

const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** Form of a name: `label` is one DNS label, `subdomain` labels with dots between them. */
export type NameForm = "label" | "subdomain";

/** Fails unless `text` is a name of that form. Names end up in rule texts, so nothing else may pass. */
export function checkName(text: string, form: NameForm, path = ""): void {
  if (form === "label") {
    if (LABEL.test(text)) return;
    throw wrong(path, "a DNS label (at most 63 of a-z, 0-9 and -)", text);
  }
  if (text.length <= 253 && SUBDOMAIN.test(text)) return;
  throw wrong(path, "a DNS subdomain (at most 253 of a-z, 0-9, - and .)", text);
}

/** Metadata of a namespaced object, with its namespace and name. */
export interface ObjectName {
  readonly metadata: Raw<V1ObjectMeta>;
  readonly namespace: string;
  readonly name: string;
}

/** How strictly and with what defaults objects are read. */
export interface DecodeOptions {
  /**
   * True for objects that people wrote and no API server has seen: its defaults are filled in (namespace `default`,
   * port names), and objects that it would refuse are refused.
   */
  readonly manifest?: boolean;
}

/** Reads and checks a namespaced object's name. */
export function nameOf(object: RawKubernetesObject, form: NameForm, options: DecodeOptions): ObjectName {
  const metadata = objectAt(object, "metadata");
  const name = requiredName(metadata, "name", form);
  if (options.manifest === true && isAbsent(metadata.namespace)) {
    return { metadata, namespace: "default", name };
  }
  return { metadata, namespace: requiredName(metadata, "namespace", "label"), name };
}

/** The name at `metadata.<key>`. @throws {DecodeError} if absent, empty or not of that form */
export function requiredName(
  metadata: Raw<V1ObjectMeta>,
  key: "name" | "namespace",
  form: NameForm,
): string {
  return inside("metadata", () => {
    const name = textAt(metadata, key);
    if (name === "") throw new DecodeError(key, "is required");
    checkName(name, form, key);
    return name;
  });
}

/** The port name; null if absent. */
export function portNameAt(raw: Raw<V1ServicePort | DiscoveryV1EndpointPort>): string | null {
  if (isAbsent(raw.name)) return null;
  const name = sharedTextAt(raw, "name");
  if (name !== "") checkName(name, "label", "name");
  return name;
}

/**
 * Refuses addresses that no host of a cluster has.
 *
 * @param useOf why an address is refused, e.g. `a loopback address`; null if it is accepted
 * @throws {DecodeError} with that reason
 */
export function checkNoSpecialUse(text: string, useOf: (ip: Ip) => string | null): void {
  const ip = parseIp(text);
  const use = ip === null ? null : useOf(ip);
  if (use !== null) throw new DecodeError("", `must not be ${use}, found ${quote(text)}`);
}

/**
 * Kind of an address that an API server refuses for an endpoint, as it leads back to the node or its link; null: accepted.
 *
 * Source: Kubernetes 1.36 ValidateNonSpecialIP, which accepts multicast addresses beyond the link, and broadcast.
 */
export function refusedEndpointUse(ip: Ip): string | null {
  const use = specialUse(ip);
  const isMulticast = use === "a multicast address";
  const isOfLink = ip.family === "IPv4"
    ? ip.bytes[1] === 0 && ip.bytes[2] === 0
    : ((ip.bytes[1] ?? 0) & 0x0f) === 2;
  if (isMulticast) return isOfLink ? "a multicast address of the link" : null;
  return use === "the broadcast address" ? null : use;
}

const LAST_CHANGE_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time";
const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Milliseconds of the trigger-time annotation; null if absent or unparsable. It only feeds a metric, so it is never refused. */
export function lastChangeTriggerTimeMs(metadata: Raw<V1ObjectMeta>): number | null {
  const text = objectAt(metadata, "annotations")[LAST_CHANGE_TRIGGER_TIME];
  if (typeof text !== "string" || !RFC3339.test(text)) return null;
  const timeMs = Date.parse(text);
  return Number.isNaN(timeMs) ? null : timeMs;
}
