import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  ChangeTracker,
  decodeObject,
  matchingNodeIps,
  nodePortAddresses,
  planIptables,
  planNftables,
  renderNftablesPlan,
  renderPlan,
} from "../mod.ts";

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { namespace: "shop", name: "web" },
  spec: { clusterIP: "10.96.10.1", ports: [{ name: "http", port: 80 }] },
};
const SLICE = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ name: "http", port: 8080 }],
  endpoints: [{ addresses: ["10.244.0.11"] }],
};

Deno.test("the library's door suffices to go from objects to rules, without any permission", {
  permissions: "none",
}, () => {
  const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
  for (const raw of [SERVICE, SLICE]) {
    const { objects, rejections } = decodeObject(raw, "test", { manifest: true });
    assertEquals(rejections, []);
    for (const object of objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
  }
  const addresses = nodePortAddresses("IPv4", null);
  const { state } = tracker.checkout();
  const nftables = planNftables(state, "all", {
    family: "IPv4",
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "none" },
    nodePortAddresses: addresses,
    nodePortIps: [],
    nodeIp: "192.0.2.10",
    serviceCidrs: [],
    objectComments: true,
  });
  assertStringIncludes(renderNftablesPlan(nftables), "{ 10.96.10.1 . 80 . 0 : 10.244.0.11 . 8080 }\n");
  const plan = planIptables(state, "all", {
    family: "IPv4",
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "cidr", cidr: "10.244.0.0/16" },
    localhostNodePorts: true,
    nodePortAddresses: addresses,
    nodePortIps: matchingNodeIps(addresses, ["192.0.2.10"]),
    nodeIp: "192.0.2.10",
    randomFully: true,
    dropInvalid: true,
  });
  assertStringIncludes(renderPlan(plan), "-j DNAT --to-destination 10.244.0.11:8080\n");
});
