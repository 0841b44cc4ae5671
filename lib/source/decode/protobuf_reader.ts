/**
 * Protobuf messages to plain objects of the same shape as their JSON, so that whatever is checked of one is checked of the other.
 *
 * A message is described by a table: which of its fields are read, under which names, of what sort. All other fields are passed
 * over without being looked at. The tables of Kubernetes' messages are at the end.
 *
 * @module
 */
import { PbfReader } from "pbf";
import type {
  DiscoveryV1EndpointPort,
  V1ClientIPConfig,
  V1Endpoint,
  V1EndpointConditions,
  V1EndpointHints,
  V1EndpointSlice,
  V1ForNode,
  V1ForZone,
  V1LoadBalancerIngress,
  V1LoadBalancerStatus,
  V1Node,
  V1NodeAddress,
  V1NodeSpec,
  V1NodeStatus,
  V1ObjectMeta,
  V1Service,
  V1ServiceCIDR,
  V1ServiceCIDRSpec,
  V1ServicePort,
  V1ServiceSpec,
  V1ServiceStatus,
  V1SessionAffinityConfig,
  V1Status,
  V1StatusDetails,
  V1Taint,
} from "@kubernetes/client-node";
import type { FieldOf, ItemIn, ObjectIn, WatchedModels } from "./api_json.ts";
import { DecodeError } from "./decode_values.ts";

declare const MODEL: unique symbol;

/** Fields of a message that are read, by their numbers. */
export interface Message<T> {
  readonly fields: readonly (AnyField | undefined)[];
  readonly [MODEL]?: T;
}

/**
 * `text`: an empty one counts as absent, as in the JSON of a field without a pointer. `optionalText`: it is kept. `time`: a message of
 * seconds since the epoch, read as JSON has it.
 */
type Sort =
  | "text"
  | "optionalText"
  | "time"
  | "number"
  | "boolean"
  | "bytes"
  | "eachBytes"
  | "texts"
  | "map"
  | "object"
  | "objects";

type AnyField = readonly [name: string, sort: Sort, message?: Message<unknown>];

/** A field of a `T`: a name that its model has, with a value of that sort. */
export type Field<T> =
  | readonly [FieldOf<T, "text">, "text" | "optionalText" | "time"]
  | readonly [FieldOf<T, "number">, "number"]
  | readonly [FieldOf<T, "boolean">, "boolean"]
  | readonly [FieldOf<T, "texts">, "texts"]
  | readonly [FieldOf<T, "object">, "map"]
  | readonly [keyof T & string, "bytes" | "eachBytes"]
  | {
    [Key in FieldOf<T, "object">]: readonly [Key, "object", Message<ObjectIn<T, Key>>];
  }[FieldOf<T, "object">]
  | {
    [Key in FieldOf<T, "objects">]: readonly [Key, "objects", Message<ItemIn<T, Key>>];
  }[FieldOf<T, "objects">];

/** Table of a message whose fields have these numbers. */
export function message<T>(numbered: Readonly<Record<number, Field<T>>>): Message<T> {
  const fields: (AnyField | undefined)[] = [];
  for (const [number, field] of Object.entries(numbered)) fields[Number(number)] = field as AnyField;
  // A list without holes is read faster, and one that ends is asked past its end.
  return { fields: Array.from(fields) };
}

/** The fields of a message that were read. */
export type Fields = Record<string, unknown>;

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/**
 * Reads `bytes` into `into`, which holds what was read before a fault, too.
 *
 * @throws {DecodeError} if they are no such message
 */
export function readMessage(bytes: Uint8Array, { fields }: Message<unknown>, into: Fields): void {
  try {
    readFields(new PbfReader(bytes), bytes.length, fields, into);
  } catch (error) {
    if (error instanceof DecodeError) throw error;
    // The library throws exactly an Error for a number without an end. Any other error is a fault of kproxy's.
    if (!(error instanceof Error) || error.constructor !== Error) throw error;
    throw new DecodeError("", "a number without an end");
  }
}

function readFields(reader: PbfReader, end: number, fields: Message<unknown>["fields"], into: Fields): void {
  while (reader.pos < end) {
    const tag = reader.readVarint();
    const number = tag >>> 3;
    if (tag > 0xffffffff || number === 0) throw new DecodeError("", "a field without a number");
    const field = number < fields.length ? fields[number] : undefined;
    if (field === undefined) skip(reader, tag & 7, end);
    else readField(reader, tag & 7, end, field, into);
    // The library reads on past an end, as if there were zeros.
    if (reader.pos > end) throw new DecodeError("", "cut off");
  }
}

function readField(reader: PbfReader, type: number, end: number, field: AnyField, into: Fields): void {
  const [name, sort, message] = field;
  if (sort === "number" || sort === "boolean") {
    if (type !== VARINT) throw wrongType(name, type);
    into[name] = sort === "number" ? reader.readVarint(true) : reader.readVarint() !== 0;
    return;
  }
  if (type !== BYTES) throw wrongType(name, type);
  const fieldStart = reader.pos;
  const fieldEnd = endOf(reader, end, name);
  switch (sort) {
    case "text":
    case "optionalText":
      if (reader.pos < fieldEnd || sort === "optionalText") {
        into[name] = textFrom(reader, fieldStart, fieldEnd);
      } else delete into[name];
      return;
    case "texts":
      listAt(into, name).push(textFrom(reader, fieldStart, fieldEnd));
      return;
    case "map":
      readEntry(reader, fieldEnd, mapAt(into, name));
      return;
    case "time":
      into[name] = readTime(reader, fieldEnd);
      return;
    case "bytes":
    case "eachBytes": {
      const bytes = reader.buf.subarray(reader.pos, fieldEnd);
      reader.pos = fieldEnd;
      if (sort === "bytes") into[name] = bytes;
      else listAt(into, name).push(bytes);
      return;
    }
  }
  const object: Fields = {};
  if (sort === "objects") listAt(into, name).push(object);
  else into[name] = object;
  readFields(reader, fieldEnd, message?.fields ?? [], object);
}

function wrongType(name: string, type: number): DecodeError {
  return new DecodeError("", `${name} of wire type ${type}`);
}

/** Reads a length; yields the offset at which the bytes of that length end. */
function endOf(reader: PbfReader, limit: number, name: string): number {
  const length = reader.readVarint();
  const end = reader.pos + length;
  if (end > limit) throw new DecodeError("", `${name} cut off`);
  return end;
}

/** Keeps a byte order mark, as JSON does: without it, a name would be a different one. */
const DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * The text whose length stands at `start`. Bytes that are no UTF-8 are replaced, as in JSON; the library ends a text there,
 * and the beginning of a name is another name.
 */
function textFrom(reader: PbfReader, start: number, end: number): string {
  const { buf, pos } = reader;
  for (let at = pos; at < end; at++) {
    if ((buf[at] ?? 0) < 0x80) continue;
    reader.pos = end;
    return DECODER.decode(buf.subarray(pos, end));
  }
  reader.pos = start;
  return reader.readString();
}

function listAt(into: Fields, name: string): unknown[] {
  return (into[name] ??= []) as unknown[];
}

function mapAt(into: Fields, name: string): Record<string, string> {
  return (into[name] ??= {}) as Record<string, string>;
}

/** Reads an entry of a map: field 1 is its key, field 2 its value. */
function readEntry(reader: PbfReader, end: number, map: Record<string, string>): void {
  let key = "";
  let value = "";
  while (reader.pos < end) {
    const tag = reader.readVarint();
    if (tag === 10 || tag === 18) {
      const start = reader.pos;
      const text = textFrom(reader, start, endOf(reader, end, "an entry"));
      if (tag === 10) key = text;
      else value = text;
    } else skip(reader, tag & 7, end);
  }
  if (reader.pos > end) throw new DecodeError("", "an entry cut off");
  map[key] = value;
}

/** Reads a Timestamp: field 1 is the seconds; an empty message is no time. */
function readTime(reader: PbfReader, end: number): string | null {
  if (reader.pos === end) return null;
  let seconds = 0;
  while (reader.pos < end) {
    const tag = reader.readVarint();
    if (tag === 8) seconds = reader.readVarint(true);
    else skip(reader, tag & 7, end);
  }
  const time = new Date(seconds * 1000);
  if (reader.pos > end || Number.isNaN(time.getTime())) throw new DecodeError("", "a time that is none");
  return time.toISOString();
}

function skip(reader: PbfReader, type: number, end: number): void {
  if (type === BYTES) reader.pos = endOf(reader, end, "a field");
  else if (type === VARINT || type === FIXED64 || type === FIXED32) reader.skip(type);
  // Groups, which can be nested without an end, are in no message of Kubernetes.
  else throw new DecodeError("", `a field of wire type ${type}`);
}

// Source: `generated.proto` of Kubernetes 1.34, in staging/src/k8s.io: api/core/v1, api/discovery/v1, api/networking/v1,
// apimachinery/pkg/apis/meta/v1 and apimachinery/pkg/runtime. The numbers of fields never change.

const OBJECT_META = message<V1ObjectMeta>({
  1: ["name", "text"],
  3: ["namespace", "text"],
  5: ["uid", "text"],
  6: ["resourceVersion", "text"],
  8: ["creationTimestamp", "time"],
  9: ["deletionTimestamp", "time"],
  11: ["labels", "map"],
  12: ["annotations", "map"],
});

const SERVICE_PORT = message<V1ServicePort>({
  1: ["name", "text"],
  2: ["protocol", "text"],
  3: ["port", "number"],
  5: ["nodePort", "number"],
});

const CLIENT_IP_CONFIG = message<V1ClientIPConfig>({ 1: ["timeoutSeconds", "number"] });
const SESSION_AFFINITY_CONFIG = message<V1SessionAffinityConfig>({
  1: ["clientIP", "object", CLIENT_IP_CONFIG],
});

const SERVICE_SPEC = message<V1ServiceSpec>({
  1: ["ports", "objects", SERVICE_PORT],
  3: ["clusterIP", "text"],
  4: ["type", "text"],
  5: ["externalIPs", "texts"],
  7: ["sessionAffinity", "text"],
  9: ["loadBalancerSourceRanges", "texts"],
  11: ["externalTrafficPolicy", "text"],
  12: ["healthCheckNodePort", "number"],
  14: ["sessionAffinityConfig", "object", SESSION_AFFINITY_CONFIG],
  18: ["clusterIPs", "texts"],
  19: ["ipFamilies", "texts"],
  22: ["internalTrafficPolicy", "text"],
});

const INGRESS = message<V1LoadBalancerIngress>({
  1: ["ip", "text"],
  3: ["ipMode", "optionalText"],
});
const LOAD_BALANCER_STATUS = message<V1LoadBalancerStatus>({
  1: ["ingress", "objects", INGRESS],
});
const SERVICE_STATUS = message<V1ServiceStatus>({
  1: ["loadBalancer", "object", LOAD_BALANCER_STATUS],
});

const SERVICE = message<V1Service>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", SERVICE_SPEC],
  3: ["status", "object", SERVICE_STATUS],
});

const CONDITIONS = message<V1EndpointConditions>({
  1: ["ready", "boolean"],
  2: ["serving", "boolean"],
  3: ["terminating", "boolean"],
});
const FOR_ZONE = message<V1ForZone>({ 1: ["name", "text"] });
const FOR_NODE = message<V1ForNode>({ 1: ["name", "text"] });
const HINTS = message<V1EndpointHints>({
  1: ["forZones", "objects", FOR_ZONE],
  2: ["forNodes", "objects", FOR_NODE],
});
const ENDPOINT = message<V1Endpoint>({
  1: ["addresses", "texts"],
  2: ["conditions", "object", CONDITIONS],
  6: ["nodeName", "text"],
  8: ["hints", "object", HINTS],
});
const SLICE_PORT = message<DiscoveryV1EndpointPort>({
  1: ["name", "optionalText"],
  2: ["protocol", "text"],
  3: ["port", "number"],
});
const ENDPOINT_SLICE = message<V1EndpointSlice>({
  1: ["metadata", "object", OBJECT_META],
  2: ["endpoints", "objects", ENDPOINT],
  3: ["ports", "objects", SLICE_PORT],
  4: ["addressType", "text"],
});

const TAINT = message<V1Taint>({ 1: ["key", "text"] });
const NODE_SPEC = message<V1NodeSpec>({
  1: ["podCIDR", "text"],
  5: ["taints", "objects", TAINT],
  7: ["podCIDRs", "texts"],
});
const NODE_ADDRESS = message<V1NodeAddress>({ 1: ["type", "text"], 2: ["address", "text"] });
const NODE_STATUS = message<V1NodeStatus>({ 5: ["addresses", "objects", NODE_ADDRESS] });
const NODE = message<V1Node>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", NODE_SPEC],
  3: ["status", "object", NODE_STATUS],
});

const SERVICE_CIDR_SPEC = message<V1ServiceCIDRSpec>({ 1: ["cidrs", "texts"] });
const SERVICE_CIDR = message<V1ServiceCIDR>({
  1: ["metadata", "object", OBJECT_META],
  2: ["spec", "object", SERVICE_CIDR_SPEC],
});

const STATUS_DETAILS = message<V1StatusDetails>({ 5: ["retryAfterSeconds", "number"] });
/** Status with which a server refuses a request. */
export const STATUS: Message<V1Status> = message<V1Status>({
  3: ["message", "text"],
  4: ["reason", "text"],
  5: ["details", "object", STATUS_DETAILS],
  6: ["code", "number"],
});

/** Message tables by kind. */
export const KIND_MESSAGES: { readonly [Kind in keyof WatchedModels]: Message<WatchedModels[Kind]> } = {
  Service: SERVICE,
  EndpointSlice: ENDPOINT_SLICE,
  Node: NODE,
  ServiceCIDR: SERVICE_CIDR,
};
