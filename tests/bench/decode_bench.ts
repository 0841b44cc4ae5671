/**
 * What a node pays at start for decoding: 10,000 Services and their slices of 10 endpoints each, after JSON parsing.
 *
 * @module
 */
import { decodeEndpointSlice, decodeService } from "../../lib/source/decode/decode.ts";

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
