/**
 * Encodes JSON objects as Kubernetes' protobuf, like the API server: fields that kproxy reads, and others around them.
 *
 * Source: `generated.proto` of Kubernetes 1.34 and the marshalling that is generated from it, which writes a field without a
 * pointer also where it is empty.
 *
 * @module
 */

type Value = unknown;
/** `!` after a sort: the field is also written if it is absent, as empty. `json`: a message of JSON. */
type Sort =
  | "text"
  | "text!"
  | "int"
  | "int!"
  | "bool"
  | "bool!"
  | "time"
  | "texts"
  | "map"
  | "json"
  | Message
  | [
    Message,
  ];
type Message = { readonly [name: string]: readonly [number: number, sort: Sort] };

const MANAGED_FIELDS: Message = {
  manager: [1, "text!"],
  operation: [2, "text!"],
  apiVersion: [3, "text!"],
  fieldsType: [6, "text!"],
  fieldsV1: [7, "json"],
};
const META: Message = {
  name: [1, "text!"],
  generateName: [2, "text!"],
  namespace: [3, "text!"],
  selfLink: [4, "text!"],
  uid: [5, "text!"],
  resourceVersion: [6, "text!"],
  generation: [7, "int!"],
  creationTimestamp: [8, "time"],
  deletionTimestamp: [9, "time"],
  labels: [11, "map"],
  annotations: [12, "map"],
  finalizers: [14, "texts"],
  managedFields: [17, [MANAGED_FIELDS]],
};
const INT_OR_STRING: Message = { type: [1, "int!"], intVal: [2, "int!"], strVal: [3, "text!"] };
const SERVICE: Message = {
  metadata: [1, META],
  spec: [2, {
    ports: [1, [{
      name: [1, "text!"],
      protocol: [2, "text!"],
      port: [3, "int!"],
      targetPort: [4, INT_OR_STRING],
      nodePort: [5, "int!"],
      appProtocol: [6, "text"],
    }]],
    selector: [2, "map"],
    clusterIP: [3, "text!"],
    type: [4, "text!"],
    externalIPs: [5, "texts"],
    sessionAffinity: [7, "text!"],
    loadBalancerIP: [8, "text!"],
    loadBalancerSourceRanges: [9, "texts"],
    externalName: [10, "text!"],
    externalTrafficPolicy: [11, "text!"],
    healthCheckNodePort: [12, "int!"],
    publishNotReadyAddresses: [13, "bool!"],
    sessionAffinityConfig: [14, { clientIP: [1, { timeoutSeconds: [1, "int"] }] }],
    ipFamilyPolicy: [17, "text"],
    clusterIPs: [18, "texts"],
    ipFamilies: [19, "texts"],
    internalTrafficPolicy: [22, "text"],
    trafficDistribution: [23, "text"],
  }],
  status: [3, {
    loadBalancer: [1, {
      ingress: [1, [{ ip: [1, "text!"], hostname: [2, "text!"], ipMode: [3, "text"] }]],
    }],
  }],
};
const OBJECT_REFERENCE: Message = { kind: [1, "text!"], namespace: [2, "text!"], name: [3, "text!"] };
const ENDPOINT_SLICE: Message = {
  metadata: [1, META],
  endpoints: [2, [{
    addresses: [1, "texts"],
    conditions: [2, { ready: [1, "bool"], serving: [2, "bool"], terminating: [3, "bool"] }],
    hostname: [3, "text"],
    targetRef: [4, OBJECT_REFERENCE],
    nodeName: [6, "text"],
    zone: [7, "text"],
    hints: [8, { forZones: [1, [{ name: [1, "text!"] }]], forNodes: [2, [{ name: [1, "text!"] }]] }],
  }]],
  ports: [3, [{ name: [1, "text"], protocol: [2, "text"], port: [3, "int"], appProtocol: [4, "text"] }]],
  addressType: [4, "text!"],
};
const NODE: Message = {
  metadata: [1, META],
  spec: [2, {
    podCIDR: [1, "text!"],
    providerID: [3, "text!"],
    unschedulable: [4, "bool!"],
    taints: [5, [{ key: [1, "text!"], value: [2, "text!"], effect: [3, "text!"] }]],
    podCIDRs: [7, "texts"],
  }],
  status: [3, { phase: [3, "text!"], addresses: [5, [{ type: [1, "text!"], address: [2, "text!"] }]] }],
};
const SERVICE_CIDR: Message = { metadata: [1, META], spec: [2, { cidrs: [1, "texts"] }] };
const STATUS: Message = {
  status: [2, "text!"],
  message: [3, "text!"],
  reason: [4, "text!"],
  details: [5, { name: [1, "text!"], retryAfterSeconds: [5, "int!"] }],
  code: [6, "int!"],
};
const KINDS: Readonly<Record<string, Message>> = {
  Service: SERVICE,
  EndpointSlice: ENDPOINT_SLICE,
  Node: NODE,
  ServiceCIDR: SERVICE_CIDR,
  Status: STATUS,
};
const LIST_META: Message = {
  selfLink: [1, "text!"],
  resourceVersion: [2, "text!"],
  continue: [3, "text!"],
  remainingItemCount: [4, "int"],
};

const utf8 = new TextEncoder();

/** Varint encoding of a number: seven bits per byte, least significant first. */
export function varint(value: number | bigint): number[] {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, BigInt(value));
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  return [...bytes, Number(left)];
}

/** A length-delimited field. */
export function field(number: number, bytes: Uint8Array | readonly number[]): number[] {
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...bytes];
}

function text(value: Value): Uint8Array {
  return utf8.encode(String(value ?? ""));
}

/** A message with the fields of `value`. */
function encode(message: Message, value: Readonly<Record<string, Value>>): number[] {
  const bytes: number[] = [];
  for (const [name, [number, sort]] of Object.entries(message)) {
    const found = value[name] ?? undefined;
    const isAlways = typeof sort === "string" && sort.endsWith("!");
    if (found === undefined && !isAlways && sort !== META) continue;
    for (const byte of encodeField(number, sort, found)) bytes.push(byte);
  }
  return bytes;
}

function encodeField(number: number, sort: Sort, value: Value): number[] {
  if (Array.isArray(sort)) {
    return (value as Record<string, Value>[]).flatMap((item) => field(number, encode(sort[0], item)));
  }
  if (typeof sort === "object") {
    const object = sort === INT_OR_STRING ? intOrString(value) : value ?? {};
    return field(number, encode(sort, object as Record<string, Value>));
  }
  switch (sort) {
    case "text":
    case "text!":
      return field(number, text(value));
    case "int":
    case "int!":
      return [...varint(number * 8), ...varint(value as number ?? 0)];
    case "bool":
    case "bool!":
      return [...varint(number * 8), value === true ? 1 : 0];
    case "time":
      return field(number, [8, ...varint(Math.floor(Date.parse(String(value)) / 1000)), 16, 0]);
    case "json":
      return field(number, field(1, text(JSON.stringify(value))));
    case "texts":
      return (value as string[]).flatMap((item) => field(number, text(item)));
    case "map":
      return Object.entries(value as Record<string, string>).flatMap(([key, item]) =>
        field(number, [...field(1, text(key)), ...field(2, text(item))])
      );
  }
}

function intOrString(value: Value): Record<string, Value> {
  return typeof value === "string" ? { type: 1, strVal: value } : { type: 0, intVal: value };
}

/** Message of an object, without its envelope. */
export function objectBytes(kind: string, object: Value): Uint8Array {
  const message = KINDS[kind];
  if (message === undefined) throw new TypeError(`No message for kind ${kind}`);
  return new Uint8Array(encode(message, object as Record<string, Value>));
}

/** Bytes in the envelope that gives their kind. */
export function envelope(apiVersion: string, kind: string, bytes: Uint8Array): Uint8Array {
  const typeMeta = [...field(1, text(apiVersion)), ...field(2, text(kind))];
  const magic = [0x6b, 0x38, 0x73, 0];
  return joined([
    magic,
    field(1, typeMeta),
    varint(2 * 8 + 2),
    varint(bytes.length),
    bytes,
    field(3, []),
    field(4, []),
  ]);
}

/** A list in its envelope. `items` are in JSON, or already encoded. */
export function listBytes(
  { apiVersion, kind, metadata, items }: {
    readonly apiVersion: string;
    readonly kind: string;
    readonly metadata: Readonly<Record<string, Value>>;
    readonly items: readonly Value[];
  },
): Uint8Array {
  const itemKind = kind.replace(/List$/, "");
  const parts: (Uint8Array | number[])[] = [field(1, encode(LIST_META, metadata))];
  for (const item of items) {
    const bytes = item instanceof Uint8Array ? item : objectBytes(itemKind, item);
    parts.push(varint(2 * 8 + 2), varint(bytes.length), bytes);
  }
  return envelope(apiVersion, kind, joined(parts));
}

/** A frame of a watch. `object` is in JSON with its kind, or an envelope. */
export function frameBytes(
  type: string,
  object: Value,
  fallback: { apiVersion: string; kind: string },
): Uint8Array {
  const { apiVersion, kind } = { ...fallback, ...object as Partial<typeof fallback> };
  const inside = object instanceof Uint8Array
    ? object
    : envelope(apiVersion, kind, objectBytes(kind, object));
  return framed(joined([field(1, text(type)), field(2, field(1, inside))]));
}

/** A frame with any bytes. */
export function framed(bytes: Uint8Array): Uint8Array {
  const frame = new Uint8Array(4 + bytes.length);
  new DataView(frame.buffer).setUint32(0, bytes.length);
  frame.set(bytes, 4);
  return frame;
}

/** A Status in its envelope. */
export function statusBytes(status: Value): Uint8Array {
  return envelope("v1", "Status", objectBytes("Status", status));
}

/** Concatenated bytes. */
export function joined(parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
