/** How each field of a Service is decoded. */
import { assertEquals, assertThrows } from "@std/assert";
import type { Service } from "../../model/objects.ts";
import { decodeEndpointSlice, DecodeError, decodeService } from "./decode.ts";
import { pure, type Raw, rawService, rawSlice } from "../../../tests/support/decode_objects.ts";

pure("a Service gets every default", () => {
  assertEquals(decodeService(rawService()), {
    kind: "Service",
    namespace: "shop",
    name: "web",
    uid: "u1",
    createdAtSeconds: null,
    type: "ClusterIP",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1"],
    ipFamilies: [],
    ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0 }],
    externalIPs: [],
    loadBalancerSourceRanges: [],
    loadBalancerIngress: [],
    sessionAffinity: "None",
    affinityTimeoutSeconds: 10800,
    externalTrafficPolicy: "Cluster",
    internalTrafficPolicy: "Cluster",
    healthCheckNodePort: 0,
  });
});

pure("of a Service's annotations those stay that the proxy reads", () => {
  const service = rawService();
  const annotated = (annotations: unknown): Service =>
    decodeService({ ...service, metadata: { ...service["metadata"] as Raw, annotations } });
  const asked = { "kproxy.io/ipvs-scheduler": "lc", "kproxy.io/ipvs-graceful-termination": "false" };
  assertEquals(annotated({ ...asked, "example.com/note": "x".repeat(1000) }).annotations, asked);
  assertEquals("annotations" in annotated({ "example.com/note": "x" }), false);
  assertEquals("annotations" in annotated(undefined), false);
  assertThrows(() => annotated({ "kproxy.io/ipvs-scheduler": 1 }), DecodeError, "metadata.annotations");
});

type ServiceCase = [title: string, spec: Raw, field: keyof Service, wanted: unknown];

const SERVICE_CASES: ServiceCase[] = [
  ["type", { type: "LoadBalancer" }, "type", "LoadBalancer"],
  ["empty type", { type: "" }, "type", "ClusterIP"],
  ["null type", { type: null }, "type", "ClusterIP"],
  ["no cluster IP", { clusterIP: undefined }, "clusterIP", ""],
  ["headless", { clusterIP: "None" }, "clusterIP", "None"],
  ["cluster IP from the list", { clusterIP: undefined, clusterIPs: ["10.0.0.1"] }, "clusterIP", "10.0.0.1"],
  ["cluster IPs as written", { clusterIP: "10.0.0.01", clusterIPs: ["10.0.0.01"] }, "clusterIPs", [
    "10.0.0.01",
  ]],
  [
    "families of several cluster IPs",
    { clusterIP: "fd00::1", clusterIPs: ["fd00::1", "10.0.0.1"] },
    "ipFamilies",
    ["IPv6", "IPv4"],
  ],
  ["families as written", { ipFamilies: ["IPv4"] }, "ipFamilies", ["IPv4"]],
  [
    "families of a headless Service",
    { clusterIP: "None", clusterIPs: ["None"], ipFamilies: ["IPv4", "IPv6"] },
    "ipFamilies",
    ["IPv4", "IPv6"],
  ],
  [
    "ports in order",
    {
      ports: [{ name: "b", port: 2, protocol: "SCTP", nodePort: 30002 }, {
        name: "a",
        port: 1,
        protocol: "",
      }],
    },
    "ports",
    [{ name: "b", protocol: "SCTP", port: 2, nodePort: 30002 }, {
      name: "a",
      protocol: "TCP",
      port: 1,
      nodePort: 0,
    }],
  ],
  ["null ports", { ports: null }, "ports", []],
  ["external IPs as written, even bad ones", { externalIPs: ["010.0.0.1", " "] }, "externalIPs", [
    "010.0.0.1",
    " ",
  ]],
  [
    "source ranges as written",
    { loadBalancerSourceRanges: [" 10.0.0.0/8 "] },
    "loadBalancerSourceRanges",
    [" 10.0.0.0/8 "],
  ],
  ["affinity", { sessionAffinity: "ClientIP" }, "sessionAffinity", "ClientIP"],
  [
    "affinity timeout",
    { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } } },
    "affinityTimeoutSeconds",
    5,
  ],
  [
    "affinity without a timeout",
    { sessionAffinityConfig: { clientIP: null } },
    "affinityTimeoutSeconds",
    10800,
  ],
  ["external policy", { externalTrafficPolicy: "Local" }, "externalTrafficPolicy", "Local"],
  ["internal policy", { internalTrafficPolicy: "Local" }, "internalTrafficPolicy", "Local"],
  ["health check node port", { healthCheckNodePort: 32000 }, "healthCheckNodePort", 32000],
];

for (const [title, spec, field, wanted] of SERVICE_CASES) {
  pure(
    `Service field: ${title}`,
    () => assertEquals<unknown>(decodeService(rawService(spec))[field], wanted),
  );
}

pure("load balancer ingress keeps entries with an IP and their mode", () => {
  const ingress = [{ hostname: "lb.example" }, { ip: "192.0.2.1" }, { ip: "192.0.2.2", ipMode: "Proxy" }];
  assertEquals(decodeService(rawService({}, { loadBalancer: { ingress } })).loadBalancerIngress, [
    { ip: "192.0.2.1", ipMode: "VIP" },
    { ip: "192.0.2.2", ipMode: "Proxy" },
  ]);
});

pure("an EndpointSlice gets every default", () => {
  const slice = decodeEndpointSlice(rawSlice({ ports: [{}, { name: "", port: 0 }] }));
  assertEquals(slice, {
    kind: "EndpointSlice",
    namespace: "shop",
    name: "web-1",
    addressType: "IPv4",
    serviceName: "web",
    ports: [{ name: null, port: null, protocol: "TCP" }, { name: "", port: null, protocol: "TCP" }],
    endpoints: [{
      address: "10.0.0.1",
      nodeName: "",
      ready: true,
      serving: true,
      terminating: false,
      zoneHints: [],
      nodeHints: [],
    }],
    lastChangeTriggerTimeMs: null,
  });
});
