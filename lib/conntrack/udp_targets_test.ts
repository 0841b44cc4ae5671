import { assertEquals } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { Service, SliceEndpoint } from "../model/objects.ts";
import {
  NODE_A,
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";
import { isEmpty, NO_UDP_TARGETS, type UdpTargets, udpTargets, unionOfTargets } from "./stale_flows.ts";

const UDP = testPort({ protocol: "UDP", port: 53 });

function targets(service: Partial<Service>, endpoints: readonly SliceEndpoint[]): Record<string, string[]> {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  tracker.updateService(undefined, testService({ ports: [UDP], ...service }));
  const ports = [testSlicePort({ protocol: "UDP", port: 5353 }), testSlicePort({ port: 8080 })];
  tracker.updateEndpointSlice(testSlice({ ports, endpoints }), false);
  return plain(udpTargets(tracker.checkout().state));
}

function plain({ frontends, nodePorts }: UdpTargets): Record<string, string[]> {
  return Object.fromEntries([...frontends, ...nodePorts].map(([key, keys]) => [key, [...keys]]));
}

const [A, B, C] = ["10.244.1.3", "10.244.1.4", "10.244.1.5"] as const;

const ENDPOINTS: readonly [name: string, endpoints: readonly SliceEndpoint[], keys: string[]][] = [
  ["ready ones", [testSliceEndpoint(A), testSliceEndpoint(B)], [`${A}:5353`, `${B}:5353`]],
  [
    "terminating ones that still serve, also beside ready ones",
    [testSliceEndpoint(A), testSliceEndpoint(B, { ready: false, serving: true, terminating: true })],
    [`${A}:5353`, `${B}:5353`],
  ],
  [
    "ready ones that do not serve (publishNotReadyAddresses)",
    [testSliceEndpoint(A), testSliceEndpoint(B, { ready: true, serving: false })],
    [`${A}:5353`, `${B}:5353`],
  ],
  [
    "not ones that are out of service beside others",
    [
      testSliceEndpoint(A),
      testSliceEndpoint(B, { ready: false, serving: false }),
      testSliceEndpoint(C, { ready: false, serving: false, terminating: true }),
    ],
    [`${A}:5353`],
  ],
  [
    "without any in service, all that are listed",
    [
      testSliceEndpoint(A, { ready: false, serving: false }),
      testSliceEndpoint(B, { ready: false, serving: false, terminating: true }),
    ],
    [`${A}:5353`, `${B}:5353`],
  ],
  ["none", [], []],
];

Deno.test("flows may lead to endpoints that are ready or serving", { permissions: "none" }, () => {
  for (const [name, endpoints, keys] of ENDPOINTS) {
    assertEquals(targets({}, endpoints), { "10.96.0.10:53": keys }, name);
  }
});

Deno.test("every address of a UDP port is a frontend, its node port a node port", {
  permissions: "none",
}, () => {
  const service: Partial<Service> = {
    type: "LoadBalancer",
    ports: [{ ...UDP, nodePort: 30053 }, testPort({ nodePort: 30080 })],
    externalIPs: ["192.0.2.7"],
    loadBalancerIngress: [{ ip: "192.0.2.8", ipMode: "VIP" }, { ip: "192.0.2.9", ipMode: "Proxy" }],
  };
  const keys = [`${A}:5353`];
  assertEquals(targets(service, [testSliceEndpoint(A)]), {
    "10.96.0.10:53": keys,
    "192.0.2.7:53": keys,
    "192.0.2.8:53": keys,
    "30053": keys,
  });
});

Deno.test("traffic policies do not narrow where live flows may lead", { permissions: "none" }, () => {
  const service = { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" } as const;
  assertEquals(targets(service, [testSliceEndpoint(A, { nodeName: "elsewhere" })]), {
    "10.96.0.10:53": [`${A}:5353`],
  });
});

Deno.test("other protocols are nothing to look for", { permissions: "none" }, () => {
  assertEquals(targets({ ports: [testPort(), testPort({ protocol: "SCTP", name: "s" })] }, []), {});
  assertEquals(isEmpty(NO_UDP_TARGETS), true);
  assertEquals(isEmpty({ frontends: new Map(), nodePorts: new Map([[30053, new Set()]]) }), false);
});

Deno.test("of Services that want one address only the endpoints of the one that has it count", {
  permissions: "none",
}, () => {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  for (const [name, ip] of [["web", A], ["other", B]] as const) {
    const clusterIP = name === "web" ? "10.96.0.10" : "10.96.0.11";
    tracker.updateService(
      undefined,
      testService({ name, clusterIP, ports: [UDP], externalIPs: ["192.0.2.7"] }),
    );
    const ports = [testSlicePort({ protocol: "UDP", port: 5353 })];
    const endpoints = [testSliceEndpoint(ip)];
    tracker.updateEndpointSlice(testSlice({ name: `${name}-1`, serviceName: name, ports, endpoints }), false);
  }
  assertEquals(plain(udpTargets(tracker.checkout().state)), {
    "10.96.0.10:53": [`${A}:5353`],
    "10.96.0.11:53": [`${B}:5353`],
    "192.0.2.7:53": [`${B}:5353`],
  });
});

Deno.test("the union of targets says what either says and changes neither", { permissions: "none" }, () => {
  const one = { frontends: new Map([["a:1", new Set(["x"])]]), nodePorts: new Map([[1, new Set(["x"])]]) };
  const other = {
    frontends: new Map([["a:1", new Set(["y"])], ["b:1", new Set<string>()]]),
    nodePorts: new Map(),
  };
  assertEquals(plain(unionOfTargets(one, other)), { "a:1": ["x", "y"], "b:1": [], "1": ["x"] });
  assertEquals(plain(one), { "a:1": ["x"], "1": ["x"] });
});
