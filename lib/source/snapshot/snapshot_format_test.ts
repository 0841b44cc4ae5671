import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "../../../tests/support/fast_check.ts";
import { pure } from "../../../tests/support/decode_objects.ts";
import { ARBITRARY_CLUSTER } from "../../../tests/support/arbitrary_objects.ts";
import type { ApiObject, NodeObject } from "../../model/objects.ts";
import { testService, testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import { decodeNode, decodeService } from "../decode/decode.ts";
import { type Snapshot, SnapshotError, snapshotPieces, SnapshotReader } from "./snapshot_format.ts";

const OWNER = { node: "node-a", server: "https://10.0.0.1:6443" };
const HEADER = { ...OWNER, savedAtMs: Date.UTC(2026, 10, 21, 17, 0, 0, 123) };

const NODE: NodeObject = decodeNode({
  metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" }, deletionTimestamp: "x" },
  spec: { podCIDRs: ["10.244.0.0/24", "fd00::/64"], taints: [{ key: "ToBeDeleted" }] },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.10" }, { type: "Hostname", address: "ä" }] },
});

/** Every field of every kind differs from what a reader would fill in, in some object. */
const OBJECTS: readonly ApiObject[] = [
  NODE,
  testService(),
  testService({
    name: "all",
    uid: "u1",
    createdAtSeconds: Date.UTC(2025, 4, 6, 7, 8, 9) / 1000,
    annotations: { "kproxy.io/ipvs-scheduler": "lc" },
    type: "LoadBalancer",
    clusterIPs: ["10.96.0.10", "fd00::10"],
    ipFamilies: ["IPv4", "IPv6"],
    ports: [
      { name: "http", protocol: "TCP", port: 80, nodePort: 30080 },
      { name: "dns", protocol: "UDP", port: 53, nodePort: 0 },
      { name: "sctp", protocol: "SCTP", port: 54, nodePort: 0 },
    ],
    externalIPs: ["198.51.100.1"],
    loadBalancerSourceRanges: ["192.0.2.0/24", " 198.18.0.0/15 "],
    loadBalancerIngress: [{ ip: "203.0.113.9", ipMode: "VIP" }, { ip: "203.0.113.8", ipMode: "Proxy" }],
    sessionAffinity: "ClientIP",
    affinityTimeoutSeconds: 5,
    externalTrafficPolicy: "Local",
    internalTrafficPolicy: "Local",
    healthCheckNodePort: 32000,
  }),
  decodeService({ metadata: { name: "outside", namespace: "shop" }, spec: { type: "ExternalName" } }),
  decodeService({ metadata: { name: "none", namespace: "shop" }, spec: { clusterIP: "None" } }),
  testSlice({
    endpoints: [
      testSliceEndpoint("10.1.0.1", { nodeName: "node-a", zoneHints: ["z1", "z2"] }),
      testSliceEndpoint("10.1.0.2", { ready: false, serving: false, nodeHints: ["node-a"] }),
      testSliceEndpoint("10.1.0.3", { ready: false, terminating: true }),
    ],
    lastChangeTriggerTimeMs: Date.UTC(2026, 0, 1, 0, 0, 0, 7),
  }),
  testSlice({
    name: "web-6.a",
    addressType: "IPv6",
    endpoints: [testSliceEndpoint("fd00::1")],
    serviceName: "",
  }),
  testSlice({ name: "web-n", addressType: "FQDN", endpoints: [testSliceEndpoint("a.example")] }),
  testSlice({ name: "web-p", ports: [{ name: null, port: null, protocol: "UDP" }] }),
  { kind: "ServiceCIDR", name: "kubernetes", cidrs: ["10.96.0.0/16", "fd00:10:96::/112"] },
];

function bytesOf(objects: Iterable<ApiObject>, header = HEADER): Uint8Array {
  const pieces = [...snapshotPieces(header, objects)];
  const bytes = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

function read(bytes: Uint8Array, { owner = OWNER, pieceLength = bytes.length } = {}): Snapshot {
  const reader = new SnapshotReader(owner, "/s");
  // One memory for all pieces, as a file is read.
  const buffer = new Uint8Array(Math.max(1, pieceLength));
  for (let at = 0; at < bytes.length; at += pieceLength) {
    const piece = bytes.subarray(at, at + pieceLength);
    buffer.set(piece);
    reader.take(buffer.subarray(0, piece.length));
  }
  return reader.end();
}

function refusal(bytes: Uint8Array, owner = OWNER): string {
  return assertThrows(() => read(bytes, { owner }), SnapshotError).message;
}

function edited(edit: (text: string) => string): Uint8Array {
  return new TextEncoder().encode(edit(new TextDecoder().decode(bytesOf(OBJECTS))));
}

pure("what was written is read, whatever the pieces it comes in", () => {
  const bytes = bytesOf(OBJECTS);
  for (const pieceLength of [1, 7, 1000, bytes.length]) {
    assertEquals(read(bytes, { pieceLength }), { ...HEADER, objects: OBJECTS, rejections: [] });
  }
  assertEquals(read(bytesOf([])).objects, []);
});

pure("any cluster is read as it was written", () => {
  fc.assert(fc.property(ARBITRARY_CLUSTER, (objects) => {
    assertEquals(read(bytesOf(objects)).objects, objects);
  }));
});

pure("a large snapshot is made in many pieces, each small", () => {
  const objects = Array.from(
    { length: 2000 },
    (_, i) => testService({ name: `s${i}`, uid: "x".repeat(100) }),
  );
  const pieces = [...snapshotPieces(HEADER, objects)];
  assert(pieces.length > 10 && pieces.every(({ length }) => length < 70_000), String(pieces.length));
  assertEquals(read(bytesOf(objects), { pieceLength: 65_536 }).objects.length, 2000);
});

pure("a file that ends early is refused, wherever it ends", () => {
  const bytes = bytesOf(OBJECTS.slice(0, 3));
  for (let length = 0; length < bytes.length; length++) {
    const message = refusal(bytes.subarray(0, length));
    assert(
      /^(is empty|is no snapshot of kproxy|is not complete: its end is missing)$/.test(message),
      message,
    );
  }
});

pure("no single byte can be another one", () => {
  const bytes = bytesOf(OBJECTS.slice(0, 2));
  for (let at = 0; at < bytes.length; at++) {
    for (const bit of [1, 0x20, 0x80]) {
      const changed = bytes.slice();
      changed[at]! ^= bit;
      refusal(changed);
    }
  }
});

pure("the refusal says what is wrong", () => {
  const cases: readonly (readonly [Uint8Array, string])[] = [
    [edited((text) => text.replace('"10.96.0.10"', '"10.96.0.11"')), "is damaged: its checksum is wrong"],
    [
      edited((text) => text.replace('"kind":"Service"', '"kind":Service"')),
      "is damaged: line 3 cannot be read",
    ],
    [edited((text) => `${text}\n`), "goes on after its end"],
    [edited((text) => `${text}${text}`), "goes on after its end"],
    [edited((text) => text.replace(/.*\n$/, "")), "is not complete: its end is missing"],
    [
      edited((text) => text.replace('"kproxySnapshot":1', '"kproxySnapshot":2')),
      "was written by a newer release: it has form 2, this release reads 1",
    ],
    [
      edited((text) => text.replace('"kproxySnapshot":1', '"kproxySnapshot":0')),
      "was written by an older release: it has form 0, this release reads 1",
    ],
    [
      edited((text) => text.replace(/"savedAt":"[^"]*"/, '"savedAt":"lately"')),
      "does not say when it was written",
    ],
    [new TextEncoder().encode("apiVersion: v1\nkind: Service\n"), "is no snapshot of kproxy"],
    [new TextEncoder().encode('{"kind":"List"}\n'), "is no snapshot of kproxy"],
    [new Uint8Array(100_000), "is no snapshot of kproxy"],
    [new Uint8Array(0), "is empty"],
  ];
  for (const [bytes, message] of cases) assertEquals(refusal(bytes), message);
});

pure("a snapshot of another node or another API server is refused", () => {
  const bytes = bytesOf(OBJECTS);
  assertEquals(
    refusal(bytes, { ...OWNER, node: "node-b" }),
    'is of another node: "node-a", this one is "node-b"',
  );
  assertEquals(
    refusal(bytes, { ...OWNER, server: "https://other" }),
    'is of another API server: "https://10.0.0.1:6443", this one is "https://other"',
  );
});

pure("an object that cannot be read is refused by itself if the file is intact", () => {
  const odd = { ...testService({ name: "odd" }), type: "Cloud" as "ClusterIP" };
  const slice = testSlice({ name: "Web" });
  const { objects, rejections } = read(bytesOf([odd, testService(), slice]));
  assertEquals(objects, [testService()]);
  assertEquals(rejections.map(({ where, object }) => `${where} ${object}`), [
    "/s:2 Service shop/odd",
    "/s:4 EndpointSlice shop/Web",
  ]);
});
