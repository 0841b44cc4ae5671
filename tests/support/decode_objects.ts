/**
 * Raw objects for decoding tests: complete, with fields replaced by the test.
 *
 * @module
 */
import type { V1EndpointSlice, V1ServiceSpec, V1ServiceStatus } from "@kubernetes/client-node";
import type { Raw as RawOf } from "../../lib/source/decode/api_json.ts";

/** An object in JSON. */
export type Raw = Record<string, unknown>;

/** A Service `shop/web` with one port, extended by `spec` and `status`. */
export function rawService(spec: RawOf<V1ServiceSpec> = {}, status: RawOf<V1ServiceStatus> = {}): Raw {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace: "shop", name: "web", uid: "u1" },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }], ...spec },
    status,
  };
}

/** A slice `shop/web-1` with one endpoint, extended by `fields`. */
export function rawSlice(fields: RawOf<V1EndpointSlice> = {}): Raw {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: [{ addresses: ["10.0.0.1"] }],
    ...fields,
  };
}

/** Registers a test without permissions, which proves that the tested code is pure. */
export function pure(name: string, fn: () => void): void {
  Deno.test(name, { permissions: "none" }, fn);
}
