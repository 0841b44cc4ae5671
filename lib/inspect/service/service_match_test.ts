import { assertEquals } from "@std/assert";
import {
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../tests/support/model_objects.ts";
import type { ApiObject, EndpointSlice } from "../../model/objects.ts";
import type { ServicePort } from "../../model/state.ts";
import { stateOf, stateOfObjects } from "../desired/desired.ts";
import { endpointLack, unplacedNotes } from "./service_match.ts";

const NONE = { permissions: "none" } as const;
const SERVICE = testService({ clusterIP: "10.96.0.1" });
const TWO = [testSliceEndpoint("10.244.0.1"), testSliceEndpoint("10.244.0.2")];

function portOf(objects: readonly ApiObject[]): ServicePort {
  const state = stateOf(stateOfObjects(objects, "node-a", () => {}), "IPv4");
  const port = state.services.get("shop/web")?.[0];
  if (port === undefined) throw new RangeError("no port");
  // These reasons are given for ports without endpoints.
  assertEquals(state.endpoints.get("shop/web")?.get(port.key) ?? [], []);
  return port;
}

const SLICES: readonly (readonly [slices: readonly EndpointSlice[], lack: string])[] = [
  [[], "no EndpointSlice has the label kubernetes.io/service-name=web"],
  [
    [testSlice({ serviceName: "other", endpoints: TWO })],
    "no EndpointSlice has the label kubernetes.io/service-name=web",
  ],
  [
    [testSlice({ namespace: "test", endpoints: TWO })],
    "no EndpointSlice has the label kubernetes.io/service-name=web",
  ],
  [
    [testSlice({ addressType: "IPv6", endpoints: [testSliceEndpoint("fd00::1")] })],
    "its EndpointSlices are of IPv6 only",
  ],
  [
    [testSlice({ addressType: "FQDN" }), testSlice({ name: "web-2", addressType: "IPv6" })],
    "its EndpointSlices are of FQDN and IPv6 only",
  ],
  [[testSlice()], "EndpointSlice web-1 is empty"],
  [[testSlice(), testSlice({ name: "web-2" })], "EndpointSlices web-1, web-2 are empty"],
  [[testSlice({ name: "endpoints/web/IPv4" })], "Endpoints web is empty"],
  [
    [testSlice({ ports: [testSlicePort({ name: "metrics" })], endpoints: TWO })],
    "EndpointSlice web-1 has 2 endpoints and no port without a name (ports: metrics)",
  ],
  [
    [testSlice({ ports: [], endpoints: TWO })],
    "EndpointSlice web-1 has 2 endpoints and no port without a name (ports: none)",
  ],
  [
    [testSlice({ ports: [testSlicePort({ protocol: "UDP" })], endpoints: TWO })],
    "the port without a name of EndpointSlice web-1 is not TCP",
  ],
  [
    [testSlice({ ports: [testSlicePort({ port: null })], endpoints: TWO })],
    "none of the 2 endpoints of EndpointSlice web-1 has a usable address and port",
  ],
];

Deno.test("why a port has no endpoints follows from the EndpointSlices", NONE, () => {
  for (const [slices, lack] of SLICES) {
    const objects = [SERVICE, ...slices];
    assertEquals(endpointLack(portOf(objects), "IPv4", objects), lack);
  }
});

Deno.test("under policy Local, addresses without a node are reported", NONE, () => {
  const slice = testSlice({ endpoints: [...TWO, testSliceEndpoint("10.244.0.3", { nodeName: "node-a" })] });
  const port = portOf([SERVICE]);
  assertEquals(unplacedNotes(port, [SERVICE, slice]), []);
  assertEquals(unplacedNotes({ ...port, externalPolicyLocal: true }, [SERVICE, slice]), [
    "No node is named for 10.244.0.1, 10.244.0.2 in shop/web's EndpointSlices: policy Local leaves out what is on no known node",
  ]);
  const unused = testSlice({ name: "endpoints/web/IPv4", endpoints: [testSliceEndpoint("10.244.0.4")] });
  const placed = testSlice({ endpoints: [testSliceEndpoint("10.244.0.3", { nodeName: "node-a" })] });
  assertEquals(unplacedNotes({ ...port, externalPolicyLocal: true }, [SERVICE, placed, unused]), []);
});
