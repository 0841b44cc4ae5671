import { assertEquals } from "@std/assert";
import { testService, testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import type { ApiObject } from "../../model/objects.ts";
import { identityOf } from "../../source/source.ts";
import { type ObjectSelection, selectionOf, selectionQuery, selectObjects } from "./select_objects.ts";

const NODE: ApiObject = {
  kind: "Node",
  name: "n1",
  labels: {},
  podCIDRs: [],
  addresses: [],
  taintKeys: [],
  deleting: false,
};

const OBJECTS: readonly ApiObject[] = [
  testService({
    namespace: "shop",
    name: "a",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1", "fd00:0::1"],
  }),
  testSlice({
    namespace: "shop",
    name: "a-x",
    serviceName: "a",
    endpoints: [testSliceEndpoint("10.244.0.1")],
  }),
  NODE,
  testSlice({
    namespace: "shop",
    name: "b-x",
    serviceName: "b",
    endpoints: [testSliceEndpoint("10.244.0.2")],
  }),
  testService({
    namespace: "shop",
    name: "b",
    clusterIP: "10.96.0.2",
    clusterIPs: ["10.96.0.2"],
    externalIPs: ["192.0.2.7"],
    loadBalancerIngress: [{ ip: "198.51.100.1", ipMode: "VIP" }],
    healthCheckNodePort: 31_000,
    ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 30_080 }],
  }),
  testService({ namespace: "other", name: "a", clusterIP: "10.96.0.3", clusterIPs: ["10.96.0.3"] }),
  testSlice({ namespace: "shop", name: "lost", serviceName: "gone" }),
];

Deno.test("of the objects those are reported that make up the Services that are meant", () => {
  const a = ["Service shop/a", "EndpointSlice shop/a-x", "Node n1"];
  const b = ["Node n1", "EndpointSlice shop/b-x", "Service shop/b"];
  const cases: [ObjectSelection, string[]][] = [
    [{ services: ["shop/a"] }, a],
    [{ services: ["shop/none"] }, ["Node n1"]],
    [{ services: ["shop/gone"] }, ["Node n1", "EndpointSlice shop/lost"]],
    [{ addresses: ["10.96.0.1"] }, a],
    [{ addresses: ["fd00::1"] }, a],
    [{ addresses: ["192.0.2.7"] }, b],
    [{ addresses: ["198.51.100.1"] }, b],
    [{ nodePorts: [30_080] }, b],
    [{ nodePorts: [31_000] }, b],
    // Most Services have none of these ports.
    [{ nodePorts: [0] }, ["Node n1"]],
    [{ endpoints: ["10.244.0.2"] }, b],
    [{ addresses: ["10.96.0.3"], nodePorts: [30_080] }, [...b, "Service other/a"]],
  ];
  for (const [selection, identities] of cases) {
    const selected = [...selectObjects(() => OBJECTS, selection)].map(identityOf);
    assertEquals(selected, identities, JSON.stringify(selection));
    const read = selectionOf(new URLSearchParams(selectionQuery(selection)));
    assertEquals([...selectObjects(() => OBJECTS, read ?? {})].map(identityOf), identities);
  }
});

Deno.test("a query that selects nothing means everything", () => {
  assertEquals(selectionQuery({}), "");
  assertEquals(selectionOf(new URLSearchParams("")), null);
  assertEquals(selectionOf(new URLSearchParams("?x=1")), null);
});
