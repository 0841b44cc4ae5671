/** Invariants of the change tracker, for changes of any kind in any order. */
import { assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { ChangeTracker } from "./change_tracker.ts";
import type { EndpointSlice, Service } from "./objects.ts";
import type { ProxyState } from "./state.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

/** The state as plain values, Services in order of name. */
function snapshot(state: ProxyState): Record<string, unknown> {
  const names = [...new Set([...state.services.keys(), ...state.endpoints.keys()])].sort();
  return Object.fromEntries(names.map((name) => {
    const endpoints = [...state.endpoints.get(name) ?? []].sort(([left], [right]) => left < right ? -1 : 1);
    return [name, { ports: state.services.get(name) ?? [], endpoints }];
  }));
}

function countedFromScratch(state: ProxyState): number {
  let count = 0;
  for (const [name, ports] of state.services) {
    for (const port of ports) count += state.endpoints.get(name)?.get(port.key)?.length ?? 0;
  }
  return count;
}

type Step =
  | { readonly kind: "service"; readonly service: Service | undefined; readonly name: string }
  | { readonly kind: "slice"; readonly slice: EndpointSlice | undefined; readonly name: string }
  | { readonly kind: "checkout" };

const someService = (name: string): fc.Arbitrary<Service> =>
  fc.record({
    type: fc.constantFrom("ClusterIP" as const, "NodePort" as const, "ExternalName" as const),
    ports: fc.subarray([testPort({ name: "a" }), testPort({ name: "b", protocol: "UDP" }), testPort()]),
    clusterIP: fc.constantFrom("10.96.0.1", "10.96.0.2", "None"),
    externalIPs: fc.subarray(["192.0.2.1", "2001:db8::1"]),
  }).map((fields) => testService({ ...fields, name }));

const someSlice = (name: string): fc.Arbitrary<EndpointSlice> =>
  fc.record({
    addressType: fc.constantFrom("IPv4", "IPv4", "IPv4", "IPv6"),
    serviceName: fc.constantFrom("web", "web", "api", ""),
    ports: fc.subarray([
      testSlicePort({ name: "a" }),
      testSlicePort({ name: "b", protocol: "UDP" }),
      testSlicePort(),
    ]),
    endpoints: fc.array(
      fc.record({
        address: fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.3"),
        nodeName: fc.constantFrom("node-a", "node-b"),
        ready: fc.boolean(),
        terminating: fc.boolean(),
        zoneHints: fc.subarray(["z1", "z2"]),
      }).map(({ address, ...fields }) => testSliceEndpoint(address, fields)),
      { maxLength: 4 },
    ),
  }).map((fields) => testSlice({ ...fields, name }));

const optional = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined, freq: 3 });

const someStep: fc.Arbitrary<Step> = fc.oneof(
  fc.constantFrom("web", "api").chain((name) =>
    optional(someService(name)).map((service): Step => ({ kind: "service", service, name }))
  ),
  fc.constantFrom("s1", "s2", "endpoints/web/IPv4", "endpoints/web/IPv4/1").chain((name) =>
    optional(someSlice(name)).map((slice): Step => ({ kind: "slice", slice, name }))
  ),
  fc.constant<Step>({ kind: "checkout" }),
);

Deno.test("any events and checkouts that end in the same objects end in the same state", pure, () => {
  fc.assert(
    fc.property(fc.array(someStep, { maxLength: 30 }), fc.boolean(), (steps, reversed) => {
      const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
      const services = new Map<string, Service>();
      const slices = new Map<string, EndpointSlice>();
      let before: Record<string, unknown> = {};
      for (const step of [...steps, { kind: "checkout" } as const]) {
        if (step.kind === "service") {
          tracker.updateService(services.get(step.name), step.service);
          if (step.service === undefined) services.delete(step.name);
          else services.set(step.name, step.service);
        } else if (step.kind === "slice") {
          const old = slices.get(step.name);
          if (step.slice !== undefined) tracker.updateEndpointSlice(step.slice, false);
          else if (old !== undefined) tracker.updateEndpointSlice(old, true);
          if (step.slice === undefined) slices.delete(step.name);
          else slices.set(step.name, step.slice);
        } else {
          const { state, updatedServices } = tracker.checkout();
          const after = snapshot(state);
          const differing = [...new Set([...Object.keys(before), ...Object.keys(after)])]
            .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
          assertEquals([...updatedServices].sort(), differing.sort());
          assertEquals(state.endpointCount, countedFromScratch(state));
          before = after;
        }
      }

      const fresh = new ChangeTracker({ family: "IPv4", node: NODE_A });
      const feed = [
        ...[...services.values()].map((service) => () => fresh.updateService(undefined, service)),
        ...[...slices.values()].map((slice) => () => fresh.updateEndpointSlice(slice, false)),
      ];
      for (const event of reversed ? feed.reverse() : feed) event();
      const expected = fresh.checkout().state;
      assertEquals(before, snapshot(expected));
      assertEquals(tracker.checkout().state.endpointCount, expected.endpointCount);
    }),
    { numRuns: 1000 },
  );
});

Deno.test("an update of a slice answers whether anything is different, in any sequence", pure, () => {
  fc.assert(
    fc.property(fc.array(optional(someSlice("s1")), { maxLength: 10 }), (values) => {
      const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
      let current: EndpointSlice | undefined;
      for (const value of values) {
        const changed = value === undefined
          ? current !== undefined && tracker.updateEndpointSlice(current, true)
          : tracker.updateEndpointSlice(value, false);
        const { updatedServices } = tracker.checkout();
        if (!changed) assertEquals(updatedServices.size, 0);
        current = value;
      }
    }),
    { numRuns: 500 },
  );
});
