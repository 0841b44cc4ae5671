/**
 * Wire formats of an API server's answers: JSON and protobuf.
 *
 * @module
 */
import type { HttpConnection } from "./http_connection.ts";
import { frameBytes, listBytes, statusBytes } from "./kube_protobuf.ts";

/** A list: kind, version, metadata and objects. */
export interface WireList {
  readonly kind: string;
  readonly apiVersion: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly items: readonly unknown[];
}

/** Status of a failed request. */
export interface WireStatus {
  readonly kind: "Status";
  readonly apiVersion: "v1";
  readonly status: "Failure";
  readonly code: number;
  readonly message: string;
  readonly [field: string]: unknown;
}

/** A wire format. */
export interface ApiWire {
  readonly contentType: string;
  readonly watchContentType: string;
  readonly list: (list: WireList) => Uint8Array;
  readonly event: (type: string, object: Readonly<Record<string, unknown>>) => Uint8Array;
  readonly status: (status: WireStatus) => Uint8Array;
}

const encoder = new TextEncoder();
const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";

const JSON_WIRE: ApiWire = {
  contentType: JSON_TYPE,
  watchContentType: JSON_TYPE,
  list: (list) => encoder.encode(JSON.stringify(list)),
  event: (type, object) => encoder.encode(`${JSON.stringify({ type, object })}\n`),
  status: (status) => encoder.encode(JSON.stringify(status)),
};

const PROTOBUF_WIRE: ApiWire = {
  contentType: PROTOBUF_TYPE,
  watchContentType: `${PROTOBUF_TYPE};stream=watch`,
  list: listBytes,
  event: (type, object) => frameBytes(type, object, { apiVersion: "v1", kind: "Status" }),
  status: statusBytes,
};

/** Format of the answer, from a server with both formats or only JSON. */
export function wireFor(accept: string, hasProtobuf: boolean): ApiWire {
  return hasProtobuf && accept.startsWith(PROTOBUF_TYPE) ? PROTOBUF_WIRE : JSON_WIRE;
}

/** A Status of a failure. */
export function statusOf(code: number, message: string): WireStatus {
  return { kind: "Status", apiVersion: "v1", status: "Failure", code, message };
}

/** A Status of a failure, as JSON text. */
export function statusText(code: number, message: string): string {
  return JSON.stringify(statusOf(code, message));
}

/** A complete HTTP answer. */
export function answerBytes(
  connection: HttpConnection,
  status: number,
  type: string,
  bytes: Uint8Array,
): void {
  connection.begin(status, { "content-type": type });
  connection.bytes(bytes);
  connection.end();
}

/** Kind and API version of lists, by plural. */
export const LISTS: Readonly<Record<string, { readonly kind: string; readonly apiVersion: string }>> = {
  services: { kind: "ServiceList", apiVersion: "v1" },
  endpointslices: { kind: "EndpointSliceList", apiVersion: "discovery.k8s.io/v1" },
  endpoints: { kind: "EndpointsList", apiVersion: "v1" },
  nodes: { kind: "NodeList", apiVersion: "v1" },
  servicecidrs: { kind: "ServiceCIDRList", apiVersion: "networking.k8s.io/v1" },
};
/** Plurals by kind. */
export const PLURALS: Readonly<Record<string, string>> = {
  Service: "services",
  EndpointSlice: "endpointslices",
  Endpoints: "endpoints",
  Node: "nodes",
  ServiceCIDR: "servicecidrs",
};

/** A bookmark event for objects of a plural. */
export function bookmarkOf(
  plural: string,
  metadata: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const { kind = "", apiVersion = "" } = LISTS[plural] ?? {};
  return { kind: kind.replace(/List$/, ""), apiVersion, metadata };
}
