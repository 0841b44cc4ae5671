import { assert, assertEquals, assertFalse, assertStrictEquals } from "@std/assert";
import { ChangeTracker, type Checkout } from "./change_tracker.ts";
import type { EndpointSlice, IpFamily, Service } from "./objects.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

const A = testService();

const B = testService({ clusterIP: "10.96.0.11" });

const IGNORED = testService({ type: "ExternalName" });

function newTracker(family: IpFamily = "IPv4", startedAtMs?: number): ChangeTracker {
  return new ChangeTracker({ family, node: NODE_A, ...(startedAtMs === undefined ? {} : { startedAtMs }) });
}

/** The checkout of a tracker, with updated Services and served ports as texts. */
function checkoutOf(tracker: ChangeTracker): { names: string[]; keys: string[]; checkout: Checkout } {
  const checkout = tracker.checkout();
  const keys = [...checkout.state.services.values()].flat().map((port) =>
    `${port.key} ${port.clusterIP}:${port.port}`
  );
  return { names: [...checkout.updatedServices].sort(), keys, checkout };
}

Deno.test("tracker vector: adding and then changing a Service is one change, to the last value", pure, () => {
  const tracker = newTracker();
  assert(tracker.updateService(undefined, A));
  assert(tracker.updateService(A, B));
  const { names, keys } = checkoutOf(tracker);
  assertEquals([names, keys], [["shop/web"], ["shop/web/TCP 10.96.0.11:80"]]);
  assertEquals(checkoutOf(tracker).names, []);
});

Deno.test("tracker vector: adding and then deleting a Service is nothing", pure, () => {
  const tracker = newTracker();
  assert(tracker.updateService(undefined, A));
  assertFalse(tracker.updateService(A, undefined));
  assertEquals(checkoutOf(tracker).names, []);
});

Deno.test("tracker vector: there and back again is nothing, unless something else is queued", pure, () => {
  const tracker = newTracker();
  tracker.updateService(undefined, A);
  tracker.checkout();
  assert(tracker.updateService(A, B));
  assertFalse(tracker.updateService(B, A));
  const other = testService({ name: "api", clusterIP: "10.96.0.20" });
  assert(tracker.updateService(undefined, other));
  assert(tracker.updateService(A, B));
  assert(tracker.updateService(B, A));
  assertEquals(checkoutOf(tracker).names, ["shop/api"]);
});

Deno.test("a Service that becomes ignored is deleted; ignored from the start it is nothing", pure, () => {
  const tracker = newTracker();
  assertFalse(tracker.updateService(undefined, IGNORED));
  tracker.updateService(IGNORED, A);
  tracker.checkout();
  assert(tracker.updateService(A, IGNORED));
  const { names, keys } = checkoutOf(tracker);
  assertEquals([names, keys], [["shop/web"], []]);
});

Deno.test("an update to an equal object is no change", pure, () => {
  const tracker = newTracker();
  const slice = testSlice({ endpoints: [testSliceEndpoint("10.0.0.1")] });
  tracker.updateService(undefined, A);
  tracker.updateEndpointSlice(slice, false);
  tracker.checkout();
  assertFalse(tracker.updateService(A, structuredClone(A)));
  assertFalse(tracker.updateEndpointSlice(structuredClone(slice), false));
  assertFalse(tracker.updateService(undefined, undefined));
  assertEquals(checkoutOf(tracker).names, []);
});

Deno.test("a change of labels or of the other family's addresses is no change", pure, () => {
  const tracker = newTracker();
  const service = testService({ clusterIPs: ["10.96.0.10", "fd00::1"], ipFamilies: ["IPv4", "IPv6"] });
  tracker.updateService(undefined, service);
  tracker.checkout();
  const fields = { uid: "2", clusterIPs: ["10.96.0.10", "fd00::2"], externalIPs: ["2001:db8::1"] };
  assertFalse(tracker.updateService(service, { ...service, ...fields }));
});

Deno.test("a changed endpoint touches its own Service and no other object of the state", pure, () => {
  const tracker = newTracker();
  for (const [name, ip] of [["web", "10.96.0.10"], ["api", "10.96.0.11"]] as const) {
    tracker.updateService(undefined, testService({ name, clusterIP: ip, clusterIPs: [ip] }));
    tracker.updateEndpointSlice(
      testSlice({ name: `${name}-1`, serviceName: name, endpoints: [testSliceEndpoint("10.0.0.1")] }),
      false,
    );
  }
  const first = tracker.checkout();
  const untouched = first.state.endpoints.get("shop/api");
  assert(tracker.updateEndpointSlice(testSlice({ endpoints: [testSliceEndpoint("10.0.0.2")] }), false));
  const second = tracker.checkout();
  assertStrictEquals(second.state, first.state);
  assertEquals([...second.updatedServices], ["shop/web"]);
  assertStrictEquals(second.state.endpoints.get("shop/api"), untouched);
  assertEquals(second.state.endpoints.get("shop/web")?.get("shop/web/TCP")?.map((endpoint) => endpoint.key), [
    "10.0.0.2:8080",
  ]);
});

Deno.test("endpoints are counted only where a port of a Service leads to them", pure, () => {
  const tracker = newTracker();
  const service = testService({ ports: [testPort({ name: "a" }), testPort({ name: "b", port: 81 })] });
  const count = (): number => tracker.checkout().state.endpointCount;
  tracker.updateEndpointSlice(
    testSlice({
      ports: [testSlicePort({ name: "a" }), testSlicePort({ name: "b" }), testSlicePort({ name: "c" })],
      endpoints: [
        testSliceEndpoint("10.0.0.1"),
        testSliceEndpoint("10.0.0.2", { ready: false, serving: false }),
      ],
    }),
    false,
  );
  assertEquals(count(), 0);
  tracker.updateService(undefined, service);
  assertEquals(count(), 4);
  tracker.updateService(service, { ...service, ports: [testPort({ name: "a" })] });
  assertEquals(count(), 2);
  tracker.updateEndpointSlice(
    testSlice({ ports: [testSlicePort({ name: "a" })], endpoints: [testSliceEndpoint("10.0.0.1")] }),
    false,
  );
  assertEquals(count(), 1);
  tracker.updateEndpointSlice(testSlice(), true);
  assertEquals(count(), 0);
});

Deno.test("changed endpoints of a UDP port call for cleaning connections, others do not", pure, () => {
  const tracker = newTracker();
  const udp = testSlice({
    ports: [testSlicePort({ protocol: "UDP" })],
    endpoints: [testSliceEndpoint("10.0.0.1")],
  });
  const tcp = testSlice({ endpoints: [testSliceEndpoint("10.0.0.1")] });
  const changed = (slice: EndpointSlice, remove = false): boolean => {
    tracker.updateEndpointSlice(slice, remove);
    return tracker.checkout().udpEndpointsChanged;
  };
  assertFalse(changed(udp), "no Service asks for it");
  assertFalse(changed(udp, true));
  tracker.updateService(undefined, testService({ ports: [testPort(), testPort({ protocol: "UDP" })] }));
  assert(changed(udp));
  assertFalse(changed(udp));
  assert(changed({ ...udp, endpoints: [] }));
  assertFalse(changed({ ...tcp, name: "web-2" }));
  assertFalse(changed({ ...tcp, name: "web-2" }, true));
  assert(changed(udp));
  assert(changed(tcp), "the UDP port is gone");
});

Deno.test("a changed Service with a UDP port calls for cleaning connections, others do not", pure, () => {
  const tracker = newTracker();
  const udp = testService({ ports: [testPort(), testPort({ protocol: "UDP" })] });
  let old: Service | undefined;
  const changed = (service: Service | undefined): boolean => {
    tracker.updateService(old, service);
    old = service;
    return tracker.checkout().udpServicesChanged;
  };
  assertFalse(changed(testService()));
  assert(changed(udp), "the port is new");
  assertFalse(changed(udp));
  assert(changed({ ...udp, externalIPs: ["192.0.2.1"] }));
  assert(changed(testService()), "the UDP port is gone");
  assertFalse(changed(undefined));
  assert(changed(udp));
  assert(changed(undefined));
});

Deno.test(
  "trigger times are those of changed slices, after the start, not of removals, and given once",
  pure,
  () => {
    const tracker = newTracker("IPv4", 1000);
    const slice = (address: string, timeMs: number | null): EndpointSlice =>
      testSlice({ endpoints: [testSliceEndpoint(address)], lastChangeTriggerTimeMs: timeMs });
    tracker.updateEndpointSlice(slice("10.0.0.1", 900), false);
    tracker.updateEndpointSlice(slice("10.0.0.2", 1000), false);
    tracker.updateEndpointSlice(slice("10.0.0.3", null), false);
    assertEquals(tracker.checkout().triggerTimesMs, []);
    tracker.updateEndpointSlice(slice("10.0.0.4", 1500), false);
    tracker.updateEndpointSlice(slice("10.0.0.4", 1600), false);
    tracker.updateEndpointSlice(slice("10.0.0.5", 1700), false);
    tracker.updateEndpointSlice(slice("10.0.0.5", 1800), true);
    assertEquals(tracker.checkout().triggerTimesMs, [1500, 1700]);
    assertEquals(tracker.checkout().triggerTimesMs, []);
  },
);

Deno.test("a zone that differs takes effect at once and is reported as a change", pure, () => {
  const tracker = newTracker();
  const { state } = tracker.checkout();
  assertFalse(tracker.setZone("z1"));
  assert(tracker.setZone("z2"));
  assertEquals(state.node, { name: "node-a", zone: "z2" });
  assertFalse(tracker.setZone("z2"));
  assert(tracker.setZone(""));
});

Deno.test("what is left out of an object is reported as the object arrives", pure, () => {
  const problems: string[] = [];
  const tracker = new ChangeTracker({
    family: "IPv4",
    node: NODE_A,
    report: (problem) => problems.push(problem),
  });
  tracker.updateService(undefined, testService({ externalIPs: ["x"] }));
  assertEquals(problems.length, 1);
  tracker.updateEndpointSlice(testSlice({ addressType: "FQDN" }), false);
  tracker.checkout();
  assertEquals(problems, [
    'Service shop/web: spec.externalIPs has "x", which is not an IP address; it is skipped',
    'EndpointSlice shop/web-1: addressType "FQDN" is not supported; it is ignored',
  ]);
});
