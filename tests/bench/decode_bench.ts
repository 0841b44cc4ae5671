/**
 * What a node pays at start for decoding: 10,000 Services and their slices of 10 endpoints each, after JSON parsing; and for lists and
 * watches as they arrive, in JSON and protobuf.
 *
 * @module
 */
import { decodeEndpointSlice, decodeService } from "../../lib/source/decode/decode.ts";
import { formatOf } from "../../lib/source/kube/kube_formats.ts";
import { ENDPOINT_SLICES } from "../../lib/source/kube/kube_resources.ts";
import { frameBytes, joined, listBytes } from "../support/kube_protobuf.ts";

const COUNT = 10_000;

const services: unknown[] = Array.from({ length: COUNT }, (_, index) => ({
  metadata: {
    namespace: "bench",
    name: `svc-${index}`,
    uid: `u-${index}`,
    managedFields: [{ manager: "kubectl" }],
  },
  spec: {
    type: "ClusterIP",
    clusterIP: `10.96.${index >> 8}.${index & 255}`,
    clusterIPs: [`10.96.${index >> 8}.${index & 255}`],
    ipFamilies: ["IPv4"],
    ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080 }],
    sessionAffinity: "None",
  },
  status: { loadBalancer: {} },
}));

const slices: unknown[] = Array.from({ length: COUNT }, (_, index) => ({
  metadata: {
    namespace: "bench",
    name: `svc-${index}-1`,
    labels: { "kubernetes.io/service-name": `svc-${index}` },
    annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2024-05-01T10:00:00Z" },
  },
  addressType: "IPv4",
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  endpoints: Array.from({ length: 10 }, (_, number) => ({
    addresses: [`10.${index >> 8}.${index & 255}.${number}`],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: `node-${number}`,
    targetRef: { kind: "Pod", name: "x" },
  })),
}));

Deno.bench("decode 10,000 Services", () => {
  for (const raw of services) decodeService(raw);
});

Deno.bench("decode 10,000 EndpointSlices of 10 endpoints", () => {
  for (const raw of slices) decodeEndpointSlice(raw);
});

/** What arrives, read as the source reads it: a whole list, and a thousand events of a watch. */
const LISTED = 5_000;
const EVENTS = 1_000;
const SLICE_TYPE = { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice" };
const LIST = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSliceList",
  metadata: { resourceVersion: "7" },
  items: slices.slice(0, LISTED),
};
const JSON_LIST = new TextEncoder().encode(JSON.stringify(LIST));
const PROTOBUF_LIST = listBytes(LIST);
const JSON_EVENTS = new TextEncoder().encode(
  slices.slice(0, EVENTS).map((object) => `${JSON.stringify({ type: "MODIFIED", object })}\n`).join(""),
);
const PROTOBUF_EVENTS = joined(
  slices.slice(0, EVENTS).map((object) => frameBytes("MODIFIED", object, SLICE_TYPE)),
);
const READING = { signal: new AbortController().signal, note: () => {} };

/** Bytes as they come from a socket. */
function arriving(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return ReadableStream.from((function* () {
    for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
  })());
}

for (
  const [contentType, list, events] of [
    ["application/json", JSON_LIST, JSON_EVENTS],
    ["application/vnd.kubernetes.protobuf", PROTOBUF_LIST, PROTOBUF_EVENTS],
  ] as const
) {
  const format = formatOf({ contentType }, ENDPOINT_SLICES.path);
  const baseline = contentType === "application/json";
  Deno.bench(`list of ${LISTED} slices, ${contentType}`, { group: "list", baseline }, async () => {
    await format.readPage({ body: arriving(list) }, ENDPOINT_SLICES, READING, (raws) => {
      for (const raw of raws) decodeEndpointSlice(raw);
    });
  });
  Deno.bench(`${EVENTS} events of slices, ${contentType}`, { group: "events", baseline }, async () => {
    for await (const batch of format.readEvents(arriving(events), ENDPOINT_SLICES, READING)) {
      for (const { object } of batch) decodeEndpointSlice(object);
    }
  });
}
