import { assert, assertEquals } from "@std/assert";
import { serviceHealthFailedEvent, startingEvent } from "../../observe/events.ts";
import { eventBody, microTime } from "./event_recorder.ts";

/** 2025-01-02T03:04:05.678901Z */
const NOW_MS = 1735787045678.901;

Deno.test("the birth Event is kube-proxy's", { permissions: "none" }, () => {
  assertEquals(eventBody(startingEvent("node-a"), "host-7", NOW_MS), {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name: `node-a.${(1735787045678901000n).toString(16)}`, namespace: "default" },
    eventTime: "2025-01-02T03:04:05.678901Z",
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-host-7",
    action: "StartKubeProxy",
    reason: "Starting",
    regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
    type: "Normal",
  });
});

Deno.test("an Event of a Service lives in its namespace", { permissions: "none" }, () => {
  const event = serviceHealthFailedEvent("node-a", { service: "shop/web", port: 32000, message: "in use" });
  const { metadata, regarding, note } = eventBody(event, "host-7", NOW_MS);
  assertEquals(metadata.namespace, "shop");
  assertEquals(regarding, { apiVersion: "v1", kind: "Service", namespace: "shop", name: "web" });
  assertEquals(note, event.note);
});

Deno.test("what the API limits is cut to fit, between characters", { permissions: "none" }, () => {
  const name = `${"a".repeat(250)}.b`;
  const long = { ...startingEvent(name), note: "é".repeat(600) };
  const { metadata, note = "", reportingInstance } = eventBody(long, "h".repeat(200), NOW_MS);
  assertEquals(metadata.name.length, 253);
  assert(/^a+\.[0-9a-f]{16}$/.test(metadata.name), metadata.name);
  assertEquals(note, "é".repeat(510) + "...");
  assertEquals(reportingInstance?.length, 128);
  assertEquals(eventBody({ ...long, note: "x".repeat(1024) }, "h", NOW_MS).note?.length, 1024);
});

Deno.test("times have six digits of a second", { permissions: "none" }, () => {
  assertEquals(microTime(NOW_MS), "2025-01-02T03:04:05.678901Z");
  assertEquals(microTime(0), "1970-01-01T00:00:00.000000Z");
  assertEquals(microTime(999.9996), "1970-01-01T00:00:01.000000Z");
});
