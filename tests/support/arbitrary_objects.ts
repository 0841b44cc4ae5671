/**
 * Random Services and slices for property tests: few names, addresses and ports, so that features meet and changes hit
 * existing objects.
 *
 * @module
 */
import fc from "./fast_check.ts";
import type { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { ApiObject, EndpointSlice, Service, SliceEndpoint } from "../../lib/model/objects.ts";
import { testPort, testService, testSlice, testSliceEndpoint, testSlicePort } from "./model_objects.ts";

const NAMES = ["api", "cart", "web", "web-2"] as const;
/** Addresses that are external and load-balancer IPs at once, and shared by Services, as users have them. */
const EXTERNAL_IPS = ["198.51.100.1", "203.0.113.9"];
const LB_IPS = ["203.0.113.9", "203.0.113.8"];
const RANGES = ["192.0.2.0/24", "198.18.0.0/15"];
const POD_IPS = ["10.244.0.1", "10.244.0.2", "10.244.1.1", "10.244.1.2", "10.244.1.3"];

/** A Service with random features; `index` makes its node ports unique. */
function arbitraryService(name: string, index: number): fc.Arbitrary<Service> {
  const policy = fc.constantFrom("Cluster" as const, "Local" as const);
  return fc.record({
    type: fc.constantFrom("ClusterIP" as const, "NodePort" as const, "LoadBalancer" as const),
    address: fc.integer({ min: 1, max: 2 }),
    portCount: fc.integer({ min: 1, max: 2 }),
    nodePortShift: fc.integer({ min: 0, max: 1 }),
    externalIPs: fc.subarray(EXTERNAL_IPS),
    lbIps: fc.subarray(LB_IPS),
    ranges: fc.subarray(RANGES),
    externalTrafficPolicy: policy,
    internalTrafficPolicy: policy,
    sticky: fc.boolean(),
    createdAtSeconds: fc.constantFrom(null, 1_700_000_000, 1_700_000_001),
  }).map((from) =>
    testService({
      name,
      createdAtSeconds: from.createdAtSeconds,
      type: from.type,
      clusterIP: `10.96.${index}.${from.address}`,
      ports: ["http", "dns"].slice(0, from.portCount).map((portName, at) =>
        testPort({
          name: portName,
          protocol: at === 0 ? "TCP" : "UDP",
          port: 80 + at,
          nodePort: from.type === "ClusterIP" ? 0 : 30000 + 10 * index + 2 * at + from.nodePortShift,
        })
      ),
      externalIPs: from.externalIPs,
      loadBalancerIngress: from.type === "LoadBalancer"
        ? from.lbIps.map((ip) => ({ ip, ipMode: "VIP" }))
        : [],
      loadBalancerSourceRanges: from.ranges,
      externalTrafficPolicy: from.externalTrafficPolicy,
      internalTrafficPolicy: from.internalTrafficPolicy,
      sessionAffinity: from.sticky ? "ClientIP" : "None",
      healthCheckNodePort: from.type === "LoadBalancer" && from.externalTrafficPolicy === "Local"
        ? 32000 + index
        : 0,
    })
  );
}

function arbitrarySlice(name: string): fc.Arbitrary<EndpointSlice> {
  const condition = fc.constantFrom<Partial<SliceEndpoint> | null>(
    null,
    {},
    {},
    { ready: false, serving: false },
    { ready: false, terminating: true },
  );
  const endpoints = fc.tuple(
    ...POD_IPS.map((ip) =>
      condition.map((fields) =>
        fields === null ? [] : [testSliceEndpoint(ip, {
          nodeName: ip.startsWith("10.244.0.") ? "node-a" : "node-b",
          ...fields,
        })]
      )
    ),
  );
  return endpoints.map((lists) =>
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      ports: [testSlicePort({ name: "http" }), testSlicePort({ name: "dns", port: 5353, protocol: "UDP" })],
      endpoints: lists.flat(),
    })
  );
}

/** Any cluster of up to four Services; some have no slice, some slices no Service. */
export const ARBITRARY_CLUSTER: fc.Arbitrary<readonly ApiObject[]> = fc.tuple(
  ...NAMES.map((name, index) =>
    fc.tuple(
      fc.option(arbitraryService(name, index), { nil: null, freq: 4 }),
      fc.option(arbitrarySlice(name), { nil: null, freq: 4 }),
    )
  ),
).map((pairs) => pairs.flat().filter((object): object is Service | EndpointSlice => object !== null));

const keyOf = (object: ApiObject): string => `${object.kind} ${object.name}`;

/** Offers the tracker the changes from one cluster to another. */
export function offerChanges(
  tracker: ChangeTracker,
  before: readonly ApiObject[],
  after: readonly ApiObject[],
): void {
  const old = new Map(before.map((object) => [keyOf(object), object]));
  for (const object of after) {
    const previous = old.get(keyOf(object));
    old.delete(keyOf(object));
    if (object.kind === "Service") tracker.updateService(previous as Service | undefined, object);
    else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
  }
  for (const object of old.values()) {
    if (object.kind === "Service") tracker.updateService(object, undefined);
    else if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, true);
  }
}
