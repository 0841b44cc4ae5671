import { assert, assertEquals, assertInstanceOf, assertStringIncludes, assertThrows } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { pure } from "../../../tests/support/decode_objects.ts";
import {
  envelope,
  field,
  frameBytes,
  joined,
  listBytes,
  objectBytes,
  varint,
} from "../../../tests/support/kube_protobuf.ts";
import type { WatchedModels } from "./api_json.ts";
import { decodeEndpointSlice, DecodeError, decodeNode, decodeService, decodeServiceCidr } from "./decode.ts";
import {
  MalformedObject,
  ProtobufEventReader,
  readList,
  readObject,
  readProtobufStatus,
} from "./protobuf_serializer.ts";

const MAX_BYTES = 1024 * 1024;
const DECODERS: { readonly [Kind in keyof WatchedModels]: (raw: unknown) => unknown } = {
  Service: decodeService,
  EndpointSlice: decodeEndpointSlice,
  Node: decodeNode,
  ServiceCIDR: decodeServiceCidr,
};

/** The decoded object, or the reason why it is refused. */
function judged(kind: keyof WatchedModels, raw: unknown): unknown {
  try {
    return DECODERS[kind](raw);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return error.message;
  }
}

/** Mostly values of `usual`. */
function mostly<T>(usual: fc.Arbitrary<T>, odd: fc.Arbitrary<T>): fc.Arbitrary<T> {
  return fc.oneof({ weight: 30, arbitrary: usual }, { weight: 1, arbitrary: odd });
}

const NAME = mostly(
  fc.constantFrom("web", "api"),
  fc.constantFrom("a.b", "", "Äpfel", "not a name", "x".repeat(70)),
);
const TEXT = fc.oneof(fc.string({ maxLength: 40 }), fc.string({ unit: "grapheme", maxLength: 30 }), NAME);
const IP = fc.oneof(fc.ipV4(), fc.ipV6(), fc.constant("None"));
const IPS = fc.array(mostly(fc.ipV4(), IP), { maxLength: 3 });
const NUMBER = mostly(fc.constantFrom(80, 443, 65535), fc.integer({ min: -2147483648, max: 2147483647 }));
const PORT = fc.record(
  {
    name: NAME,
    protocol: mostly(fc.constantFrom("TCP", "UDP", "SCTP", ""), fc.constant("ICMP")),
    port: NUMBER,
    nodePort: NUMBER,
    targetPort: fc.oneof(NUMBER, NAME),
  },
  { requiredKeys: ["port"] },
);
const KEY = fc.constantFrom("kubernetes.io/service-name", "service.kubernetes.io/headless", "app", "");
const META = fc.record({
  name: NAME,
  namespace: NAME,
  uid: TEXT,
  resourceVersion: TEXT,
  generation: fc.maxSafeInteger(),
  creationTimestamp: fc.date({ min: new Date(0), max: new Date("2200-01-01"), noInvalidDate: true }).map((
    date,
  ) => date.toISOString().replace(/\.\d+Z$/, "Z")),
  deletionTimestamp: fc.constant("2024-05-01T10:00:00Z"),
  labels: fc.dictionary(KEY, TEXT),
  annotations: fc.dictionary(
    fc.constantFrom("endpoints.kubernetes.io/last-change-trigger-time", "other", "kproxy.io/scheduler"),
    fc.oneof(TEXT, fc.constant("2024-05-01T10:00:00.5Z")),
  ),
  managedFields: fc.constant([{ manager: "x", operation: "Update" }]),
}, { requiredKeys: ["name"] });
const choice = (...values: string[]) => fc.constantFrom(...values, "");

const OBJECTS: { readonly [Kind in keyof WatchedModels]: fc.Arbitrary<unknown> } = {
  Service: fc.record({
    metadata: META,
    spec: fc.record({
      type: mostly(choice("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"), fc.constant("Nodeport")),
      clusterIP: mostly(fc.constant("10.96.0.1"), IP),
      clusterIPs: fc.constantFrom(["10.96.0.1"], ["10.96.0.1", "fd00::1"], []),
      ipFamilies: fc.constantFrom(["IPv4"], ["IPv4", "IPv6"], ["IPv6"], [], [""]),
      ports: fc.array(PORT, { maxLength: 3 }),
      externalIPs: IPS,
      loadBalancerSourceRanges: fc.array(TEXT, { maxLength: 2 }),
      sessionAffinity: choice("None", "ClientIP"),
      sessionAffinityConfig: fc.record({
        clientIP: fc.record({ timeoutSeconds: NUMBER }, { requiredKeys: [] }),
      }, { requiredKeys: [] }),
      externalTrafficPolicy: choice("Cluster", "Local"),
      internalTrafficPolicy: choice("Cluster", "Local"),
      healthCheckNodePort: NUMBER,
      selector: fc.dictionary(TEXT, TEXT, { maxKeys: 2 }),
    }, { requiredKeys: [] }),
    status: fc.record({
      loadBalancer: fc.record({
        ingress: fc.array(
          fc.record({ ip: fc.oneof(IP, fc.constant("")), ipMode: choice("VIP", "Proxy"), hostname: TEXT }, {
            requiredKeys: [],
          }),
          { maxLength: 2 },
        ),
      }, { requiredKeys: [] }),
    }, { requiredKeys: [] }),
  }, { requiredKeys: ["metadata"] }),
  EndpointSlice: fc.record({
    metadata: META,
    addressType: choice("IPv4", "IPv6", "FQDN"),
    ports: fc.array(
      fc.record({ name: NAME, protocol: choice("TCP", "UDP"), port: NUMBER }, { requiredKeys: [] }),
      { maxLength: 2 },
    ),
    endpoints: fc.array(
      fc.record({
        addresses: IPS,
        conditions: fc.record({ ready: fc.boolean(), serving: fc.boolean(), terminating: fc.boolean() }, {
          requiredKeys: [],
        }),
        nodeName: NAME,
        zone: TEXT,
        hints: fc.record({
          forZones: fc.array(fc.record({ name: NAME })),
          forNodes: fc.array(fc.record({ name: NAME })),
        }, { requiredKeys: [] }),
      }, { requiredKeys: ["addresses"] }),
      { maxLength: 4 },
    ),
  }, { requiredKeys: ["metadata", "addressType"] }),
  Node: fc.record({
    metadata: META,
    spec: fc.record({
      podCIDR: choice("10.0.0.0/24", "x"),
      podCIDRs: fc.array(choice("10.0.0.0/24", "fd00::/64"), { maxLength: 2 }),
      taints: fc.array(fc.record({ key: TEXT, value: TEXT, effect: TEXT }), { maxLength: 2 }),
      unschedulable: fc.boolean(),
    }, { requiredKeys: [] }),
    status: fc.record({ addresses: fc.array(fc.record({ type: TEXT, address: TEXT }), { maxLength: 3 }) }, {
      requiredKeys: [],
    }),
  }, { requiredKeys: ["metadata"] }),
  ServiceCIDR: fc.record({
    metadata: META,
    spec: fc.record({ cidrs: fc.array(choice("10.96.0.0/16", "0.0.0.0/0", "fd00::/108"), { maxLength: 2 }) }),
  }, { requiredKeys: ["metadata"] }),
};

for (const kind of Object.keys(OBJECTS) as (keyof WatchedModels)[]) {
  pure(`any ${kind} is the same in protobuf as in JSON, or refused for the same reason`, () => {
    let good = 0;
    fc.assert(
      fc.property(OBJECTS[kind], (object) => {
        const json: unknown = JSON.parse(JSON.stringify(object));
        const expected = judged(kind, json);
        if (typeof expected !== "string") good++;
        assertEquals(judged(kind, readObject(kind, objectBytes(kind, json))), expected);
      }),
      { numRuns: 150 },
    );
    assert(good > 20, `${good} good ones`);
  });
}

const WEB = {
  metadata: { name: "web", namespace: "shop", resourceVersion: "7", labels: { app: "web" } },
  spec: {
    type: "ClusterIP",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1"],
    ports: [{ name: "http", port: 80 }],
  },
};
const WEB_BYTES = objectBytes("Service", WEB);

function refusalOf(bytes: Uint8Array): MalformedObject {
  const object = readObject("Service", bytes);
  assertInstanceOf(object, MalformedObject);
  return object;
}

pure("a Service cut off anywhere is refused by itself, and keeps its name where that was whole", () => {
  const boundaries = [objectBytes("Service", { metadata: WEB.metadata }).length];
  for (let length = 1; length < WEB_BYTES.length; length++) {
    const bytes = WEB_BYTES.subarray(0, length);
    if (boundaries.includes(length)) continue;
    const { metadata, reason } = refusalOf(bytes);
    assertStringIncludes(reason, "no message: ");
    if (length > boundaries[0]!) assertEquals([metadata.name, metadata.namespace], ["web", "shop"]);
  }
});

const META_FIELD = field(1, objectBytes("Service", { metadata: WEB.metadata }).subarray(2));
const HOSTILE: readonly (readonly [what: string, bytes: readonly number[], reason: string])[] = [
  ["a length of 4 GiB", [0x12, ...varint(0xffffffff)], "spec cut off"],
  ["a length of 16 EiB", [0x12, ...varint(2n ** 64n - 1n)], "spec cut off"],
  ["a skipped length of 4 GiB", [0x7a, ...varint(0xffffffff), 1], "a field cut off"],
  ["a number without an end", [0x12, ...Array(11).fill(0xff)], "a number without an end"],
  ["a field number of 0", [0x02, 0x00], "a field without a number"],
  ["a tag of 64 bits", [...varint(2n ** 63n + 2n), 0], "a field without a number"],
  ["a number in place of the spec", [0x10, 5], "spec of wire type 0"],
  ["a text in place of a port", field(2, field(1, field(3, [1, 2]))), "port of wire type 2"],
  ["a fixed number in place of a text", field(2, [3 * 8 + 5, 1, 2, 3, 4]), "clusterIP of wire type 5"],
  ["a group", [0x7b, 0x7c], "a field of wire type 3"],
  ["100,000 nested groups", Array(100_000).fill(0x7b), "a field of wire type 3"],
  ["a part that is longer than the whole", field(2, [0x0a, 100, 0x18, 80]), "ports cut off"],
  ["a fixed number that is cut off", [0x79, 1, 2], "cut off"],
  ["a number that is cut off", field(2, field(1, [0x18, 0xff])), "a number without an end"],
  ["a label that is cut off", field(1, [...field(1, [97]), 0x5a, 3, 0x0a, 9, 97]), "an entry cut off"],
  ["a time beyond all calendars", field(1, field(8, [8, ...varint(2n ** 62n)])), "a time that is none"],
];

for (const [what, bytes, reason] of HOSTILE) {
  pure(`${what} is refused with that object, and no other`, () => {
    const bad = new Uint8Array([...META_FIELD, ...bytes]);
    assertStringIncludes(refusalOf(bad).reason, reason);
    assertEquals(refusalOf(bad).metadata.name, bytes[0] === 0x0a ? refusalOf(bad).metadata.name : "web");
    const list = listBytes({
      apiVersion: "v1",
      kind: "ServiceList",
      metadata: { resourceVersion: "9" },
      items: [WEB, bad, WEB],
    });
    const { head, items } = readList(list, "Service", MAX_BYTES);
    const kinds = [...items].map((item) =>
      item instanceof MalformedObject ? "bad" : judged("Service", item) as object
    );
    assertEquals(kinds.map((kind) => typeof kind === "string" ? kind : "good"), ["good", "bad", "good"]);
    assertEquals(head.metadata?.resourceVersion, "9");
  });
}

pure("nested as deep as bytes allow, messages are passed over, not followed", () => {
  let bytes: Uint8Array = new Uint8Array(0);
  for (let depth = 0; depth < 3_000; depth++) bytes = new Uint8Array(field(15, bytes));
  assertEquals(
    judged("Service", readObject("Service", joined([WEB_BYTES, bytes]))),
    judged("Service", WEB),
  );
});

pure("what is no UTF-8 never makes one name of another", () => {
  for (const broken of [[0x80], [0xc0], [0xe2], [0xf8], [0xff], [0xef, 0xbb, 0xbf], [0xed, 0xa0, 0x80]]) {
    for (
      const name of [[0x77, ...broken, 0x62], [0x77, ...broken], [...broken, 0x77], [
        ...broken,
        ...Array(20).fill(0x77),
      ]]
    ) {
      const meta = field(1, [...field(1, name), ...field(3, [0x61])]);
      const raw = readObject("Service", new Uint8Array(meta)) as { metadata: { name: string } };
      assertEquals(
        raw.metadata.name,
        new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(name)),
      );
      assertStringIncludes(String(judged("Service", raw)), "metadata.name: must be a DNS label");
    }
  }
});

const LIST = {
  apiVersion: "v1",
  kind: "ServiceList",
  metadata: { resourceVersion: "41", continue: "next", remainingItemCount: 3 },
  items: [WEB, { ...WEB, metadata: { ...WEB.metadata, name: "api" } }, WEB],
};

/** Bytes in pieces of that length. */
function* pieces(bytes: Uint8Array, length: number): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.slice(at, at + length);
}

pure("a list is what was sent; cut off anywhere it is none, or says nothing of itself", () => {
  const bytes = listBytes(LIST);
  const { head, items } = readList(bytes, "Service", MAX_BYTES);
  assertEquals([...items].map((item) => decodeService(item)), LIST.items.map((item) => decodeService(item)));
  assertEquals(head, {
    apiVersion: "v1",
    kind: "ServiceList",
    metadata: { resourceVersion: "41", continue: "next" },
  });
  let cutOff = 0;
  // Without the two empty fields at the end the list is whole.
  for (let length = 0; length < bytes.length - 4; length++) {
    try {
      const { head: { metadata } } = readList(bytes.subarray(0, length), "Service", MAX_BYTES);
      assertEquals(metadata, undefined);
    } catch (error) {
      assertInstanceOf(error, DecodeError);
      cutOff++;
    }
  }
  assert(cutOff > bytes.length - 50);
});

const NO_LISTS: readonly (readonly [bytes: Uint8Array, reason: string])[] = [
  [new TextEncoder().encode("<html><body>Please log in</body></html>"), "not Kubernetes' protobuf"],
  [new TextEncoder().encode(JSON.stringify(LIST)), "not Kubernetes' protobuf"],
  [new Uint8Array([0x6b, 0x38, 0x73, 0, 0x12, ...varint(2 ** 32)]), "raw cut off"],
  [new Uint8Array([0x6b, 0x38, 0x73, 0, 0x12, 3, 0x12, 100, 1]), "items cut off"],
  [listBytes({ ...LIST, items: [{ ...WEB, metadata: { name: "w".repeat(MAX_BYTES) } }] }), "an object of "],
  [new Uint8Array([0x6b, 0x38, 0x73, 0, 0x12, 2, 0x10, 1]), "items of wire type 0"],
  [new Uint8Array([0x6b, 0x38, 0x73, 0, ...Array(12).fill(0xff)]), "a number without an end"],
  [new Uint8Array([0x6b, 0x38, 0x73, 0, ...field(3, [0x67, 0x7a])]), "packed or written in another way"],
];

for (const [bytes, reason] of NO_LISTS) {
  pure(`no list: ${reason} (${bytes.length} bytes)`, () => {
    assertThrows(() => readList(bytes, "Service", MAX_BYTES), DecodeError, reason);
  });
}

const SERVICE_TYPE = { apiVersion: "v1", kind: "Service" };

pure("events are what was sent, whatever the pieces; half an event is none", () => {
  const frames = joined([
    frameBytes("ADDED", WEB, SERVICE_TYPE),
    frameBytes("DELETED", WEB, SERVICE_TYPE),
    frameBytes(
      "ERROR",
      { kind: "Status", apiVersion: "v1", code: 410, message: "gone", reason: "Expired" },
      SERVICE_TYPE,
    ),
    frameBytes("ADDED", WEB, SERVICE_TYPE).subarray(0, 30),
  ]);
  for (const length of [1, 3, 4, 50, frames.length]) {
    const reader = new ProtobufEventReader("Service");
    const events = [...pieces(frames, length)].flatMap((piece) => reader.push(piece, MAX_BYTES))
      .map((read) => read());
    assertEquals(events.map(({ type }) => type), ["ADDED", "DELETED", "ERROR"]);
    assertEquals(decodeService(events[0]?.object), decodeService(WEB));
    const { code, message, reason } = events[2]?.object as Record<string, unknown>;
    assertEquals([code, message, reason], [410, "gone", "Expired"]);
  }
});

pure("a frame announced as 4 GiB is refused before a byte of it is kept", () => {
  assertThrows(
    () => new ProtobufEventReader("Service").push(new Uint8Array([255, 255, 255, 255]), MAX_BYTES),
    DecodeError,
    "an event of 4294967295 bytes",
  );
});

pure("a frame without an event, an object or an envelope is no event; a Service is no Status", () => {
  assertEquals(readProtobufStatus(envelope("v1", "Service", WEB_BYTES)), { message: "not a Status" });
  const reader = new ProtobufEventReader("Service");
  for (const frame of [[], [0xff], field(1, [65]), [...field(1, [65]), ...field(2, field(1, [1, 2, 3]))]]) {
    const [read] = reader.push(new Uint8Array([0, 0, 0, frame.length, ...frame]), MAX_BYTES);
    assertThrows(() => read?.(), DecodeError);
  }
});
