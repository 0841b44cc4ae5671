/**
 * That a field which no model knows does not compile: `deno check` fails where one of the expected errors is missing.
 *
 * @module
 */
import { assertEquals, assertThrows } from "@std/assert";
import type { V1Node, V1Service, V1ServiceCIDR, V1ServicePort, V1ServiceSpec } from "@kubernetes/client-node";
import { pure } from "../../../tests/support/decode_objects.ts";
import type { EventBody, EventRepetition } from "../kube/event_recorder.ts";
import type { EventSubject } from "../../observe/events.ts";
import type { EventJson, JsonPart, ObjectJson, Raw, RawKubernetesObject } from "./api_json.ts";
import {
  asObject,
  DecodeError,
  decodeList,
  integerAt,
  nameOf,
  objectAt,
  portAt,
  protocolAt,
  textAt,
  textsAt,
} from "./decode_values.ts";

/** Reads the same field under its own name and under none: the one compiles, the other is `undefined` to the program. */
pure("a Service's fields have the names and the sorts of its model", () => {
  const service = asObject<V1Service>({ spec: { clusterIPs: ["10.96.0.1"], clusterIP: "10.96.0.1" } });
  const spec: Raw<V1ServiceSpec> = objectAt(service, "spec");
  assertEquals(textsAt(spec, "clusterIPs"), ["10.96.0.1"]);
  // @ts-expect-error no such field
  assertEquals(textsAt(spec, "clusterIps"), []);
  // @ts-expect-error a text is no list of texts
  assertThrows(() => textsAt(spec, "clusterIP"), DecodeError, "clusterIP: must be a list");
  // @ts-expect-error a list is no text
  assertThrows(() => textAt(spec, "clusterIPs"), DecodeError, "clusterIPs: must be a string");
  // @ts-expect-error no such field
  assertEquals(spec.clusterIps, undefined);
  // @ts-expect-error no such field
  assertEquals(objectAt(service, "specification"), {});
  // @ts-expect-error the list of objects is no object
  assertEquals(objectAt(spec, "ports"), {});
  // @ts-expect-error no such field
  assertEquals(integerAt(spec, "healthCheckPort", 0, 65535, 0), 0);
});

pure("so have those of its ports, and a port by name is no number", () => {
  const spec = asObject<V1ServiceSpec>({ ports: [{ port: 80, nodePort: 30080, targetPort: "http" }] });
  decodeList(spec, "ports", (port: Raw<V1ServicePort>) => {
    assertEquals([portAt(port, "port"), protocolAt(port, "protocol")], [80, "TCP"]);
    // @ts-expect-error no such field
    assertEquals(integerAt(port, "nodeport", 0, 65535, 0), 0);
    // @ts-expect-error a number or a text
    assertThrows(() => portAt(port, "targetPort"), DecodeError, "must be a whole number");
    // @ts-expect-error a number or a text
    assertEquals(textAt(port, "targetPort"), "http");
  });
  // @ts-expect-error a list of texts has no objects
  assertEquals(decodeList(spec, "clusterIPs", () => 0), []);
});

pure("metadata has the names of its model in every kind; a time is a text", () => {
  const object: RawKubernetesObject = asObject<V1Service>({
    metadata: { name: "web", namespace: "shop", creationTimestamp: "2026-01-01T00:00:00Z" },
  });
  const { metadata } = nameOf(object, "label", {});
  assertEquals(textAt(metadata, "creationTimestamp"), "2026-01-01T00:00:00Z");
  // @ts-expect-error no such field
  assertEquals(textAt(metadata, "creationTimeStamp"), "");
  // @ts-expect-error no such field
  assertEquals(metadata.deletedAt, undefined);
  assertEquals(textAt(objectAt(metadata, "labels"), "any name is a label's"), "");
});

pure("objects are written with the names of their models", () => {
  // @ts-expect-error no such field
  const service: ObjectJson<"Service"> = { spec: { clusterIPS: [] } };
  // @ts-expect-error an address type is required
  const slice: ObjectJson<"EndpointSlice"> = { endpoints: [] };
  // @ts-expect-error no such field
  const node: JsonPart<V1Node> = { spec: { podCidrs: [] } };
  // @ts-expect-error no such field
  const serviceCidr: JsonPart<V1ServiceCIDR> = { spec: { networks: [] } };
  // @ts-expect-error JSON has no Date
  const aged: ObjectJson<"Service"> = { metadata: { creationTimestamp: new Date(0) } };
  const kept: JsonPart<V1Service> = { metadata: { uid: undefined }, spec: null };
  assertEquals([service, slice, node, serviceCidr, aged, kept].length, 6);
});

pure("Events are written with the names of their model", () => {
  const eventTime = "2026-01-01T00:00:00.000000Z";
  const metadata = { name: "node-a.1", namespace: "default" };
  // @ts-expect-error so it is called in v1, not in events.k8s.io/v1
  const body: EventBody = { metadata, eventTime, involvedObject: {} };
  // @ts-expect-error no such field
  const about: EventJson = { eventTime, regarding: { namespaces: "shop" } };
  // @ts-expect-error no such field
  const repetition: EventRepetition = { series: { count: 2, lastObserved: eventTime } };
  // @ts-expect-error a Node has no namespace
  const subject: EventSubject = { kind: "Node", name: "node-a", namespace: "shop" };
  assertEquals([body, about, repetition, subject].length, 4);
});
