import { assert, assertEquals, assertInstanceOf, assertThrows } from "@std/assert";
import { pure } from "../../../tests/support/decode_objects.ts";
import {
  envelope,
  field,
  frameBytes,
  framed,
  joined,
  listBytes,
  objectBytes,
  statusBytes,
  varint,
} from "../../../tests/support/kube_protobuf.ts";
import { decodeService } from "./decode.ts";
import { DecodeError } from "./decode_values.ts";
import { EventReader, MalformedObject, readList, readStatus } from "./protobuf_serializer.ts";

const MAX_BYTES = 1024 * 1024;
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
    const reader = new EventReader("Service");
    const events = [...pieces(frames, length)].flatMap((piece) => reader.frames(piece, MAX_BYTES)).map((
      frame,
    ) => reader.read(frame));
    assertEquals(events.map(({ type }) => type), ["ADDED", "DELETED", "ERROR"]);
    assertEquals(decodeService(events[0]?.object), decodeService(WEB));
    const { code, message, reason } = events[2]?.object as Record<string, unknown>;
    assertEquals([code, message, reason], [410, "gone", "Expired"]);
  }
});

pure("a frame announced as 4 GiB is refused before a byte of it is kept", () => {
  assertThrows(
    () => new EventReader("Service").frames(new Uint8Array([255, 255, 255, 255]), MAX_BYTES),
    DecodeError,
    "an event of 4294967295 bytes",
  );
});

pure("a frame without an event, an object or an envelope is no event", () => {
  const reader = new EventReader("Service");
  for (const frame of [[], [0xff], field(1, [65]), [...field(1, [65]), ...field(2, field(1, [1, 2, 3]))]]) {
    assertThrows(() => reader.read(new Uint8Array(frame)), DecodeError);
  }
});

pure("an event whose object cannot be read keeps its name and version", () => {
  const bad = envelope(
    "v1",
    "Service",
    joined([objectBytes("Service", { metadata: WEB.metadata }), [0x12, 100]]),
  );
  const reader = new EventReader("Service");
  const [frame] = reader.frames(frameBytes("MODIFIED", bad, SERVICE_TYPE), MAX_BYTES);
  const { object } = reader.read(frame!);
  assertInstanceOf(object, MalformedObject);
  assertEquals([object.metadata.name, object.metadata.resourceVersion], ["web", "7"]);
  assertEquals(reader.frames(framed(new Uint8Array(3)), MAX_BYTES).length, 1);
});

pure("a refusal says its message, reason, code and when to come again", () => {
  const said = {
    status: "Failure",
    message: "slow down",
    reason: "TooManyRequests",
    code: 429,
    details: { retryAfterSeconds: 7 },
  };
  const { message, reason, code, details } = readStatus(statusBytes(said)) as Record<string, unknown>;
  assertEquals({ message, reason, code, details }, {
    message: "slow down",
    reason: "TooManyRequests",
    code: 429,
    details: { retryAfterSeconds: 7 },
  });
  assertThrows(() => readStatus(envelope("v1", "Service", WEB_BYTES)), DecodeError, "not a Status");
});
