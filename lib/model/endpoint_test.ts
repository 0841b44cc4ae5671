import { assert, assertEquals, assertFalse } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import {
  categorizeEndpoints,
  hasExternalEndpoints,
  hasInternalEndpoints,
  makeEndpoint,
  sameEndpoints,
} from "./endpoint.ts";
import { usesLocalEndpoints } from "./service_port.ts";
import type { Endpoint, ServicePort } from "./state.ts";
import {
  NODE_A,
  testEndpoint,
  testServicePort,
  testSliceEndpoint,
} from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

type Where = "here" | "away";
type Health = "R" | "ST" | "no";

/** Endpoint `name`: on the own node or not; ready, serving and terminating, or neither; with zone and node hints. */
function at(
  name: string,
  where: Where,
  health: Health,
  zoneHints: string[] = [],
  nodeHints: string[] = [],
): Endpoint {
  return testEndpoint(name, {
    key: name,
    isLocal: where === "here",
    ready: health === "R",
    serving: health !== "no",
    terminating: health === "ST",
    zoneHints,
    nodeHints,
  });
}

const clusterIP = testServicePort();
const internalLocal = testServicePort({ internalPolicyLocal: true });
const nodePortLocal = testServicePort({ nodePort: 30080, externalPolicyLocal: true });
const lbInternalLocal = testServicePort({ loadBalancerVIPs: ["203.0.113.1"], internalPolicyLocal: true });
const unreachableLocal = testServicePort({ externalPolicyLocal: true });

/** Names of the endpoints under either policy; whether any endpoint is usable, and has internal and external traffic. */
type Expected = readonly [
  cluster: string,
  local: string,
  hasAny: boolean,
  hasInternal?: boolean | undefined,
  hasExternal?: boolean,
];

const CASES: readonly (readonly [title: string, ServicePort, readonly Endpoint[], Expected])[] = [
  ["vector 1: both ready endpoints", clusterIP, [at("a", "here", "R"), at("b", "away", "R")], [
    "a,b",
    "",
    true,
  ]],
  [
    "vector 2: a draining one if nothing is ready",
    clusterIP,
    [at("a", "here", "ST"), at("b", "away", "no")],
    ["a", "", true],
  ],
  [
    "vector 3: the one for this zone",
    clusterIP,
    [at("a", "away", "R", ["z1"]), at("b", "away", "R", ["z2"])],
    ["a", "", true],
  ],
  [
    "vector 4: all, because one has no hint",
    clusterIP,
    [at("a", "away", "R", ["z1"]), at("b", "away", "R")],
    ["a,b", "", true],
  ],
  ["vector 5: all, because no hint is for this zone", clusterIP, [
    at("a", "away", "R", ["z2"]),
    at("b", "away", "R", ["z3"]),
  ], ["a,b", "", true]],
  ["vector 6: hints of endpoints that are not ready do not count", clusterIP, [
    at("a", "away", "R", ["z2"]),
    at("b", "away", "no", ["z1"]),
    at("c", "away", "ST", ["z1"]),
  ], ["a", "", true]],
  ["vector 7: the one for this node", clusterIP, [
    at("a", "here", "R", ["z1"], ["node-a"]),
    at("b", "away", "R", ["z1"], ["node-b"]),
  ], ["a", "", true]],
  ["vector 8: node hints for other nodes fall to the zone", clusterIP, [
    at("a", "away", "R", ["z1"], ["node-c"]),
    at("b", "away", "R", ["z2"], ["node-b"]),
  ], ["a", "", true]],
  ["vector 9: external policy Local keeps the draining local one", nodePortLocal, [
    at("a", "here", "ST"),
    at("b", "away", "R"),
  ], ["b", "a", true, true, true]],
  ["vector 10: external policy Local without a local one drops external traffic only", nodePortLocal, [
    at("b", "away", "R"),
  ], ["b", "", true, true, false]],
  ["vector 11: internal policy Local without a local one drops", internalLocal, [at("b", "away", "R")], [
    "",
    "",
    true,
    false,
  ]],
  ["vector 12: internal Local, external Cluster", lbInternalLocal, [at("b", "away", "R")], [
    "b",
    "",
    true,
    false,
    true,
  ]],
  ["vector 13: external Local means nothing without an external address of the family", unreachableLocal, [
    at("a", "here", "R"),
    at("b", "away", "R"),
  ], ["a,b", "", true, true]],
  ["vector 14: nothing at all", nodePortLocal, [], ["", "", false, false, false]],
  ["vector 17: hints do not matter to policy Local", internalLocal, [
    at("a", "here", "R", ["z2"], ["node-b"]),
    at("b", "away", "R", ["z2"]),
  ], ["", "a", true, true]],
  ["vector 18: the local one is reachable though hints leave it out of the cluster set", nodePortLocal, [
    at("a", "here", "R", ["z2"]),
    at("b", "away", "R", ["z1"]),
  ], ["b", "a", true, undefined, true]],
  ["endpoints in use: only endpoints that neither are ready nor serve", nodePortLocal, [
    at("a", "here", "no"),
    at("b", "away", "no"),
  ], ["", "", false, false, false]],
  ["endpoints in use: local ready beats local draining", nodePortLocal, [
    at("a", "here", "R"),
    at("b", "here", "ST"),
    at("c", "away", "R"),
  ], ["a,c", "a", true]],
  [
    "endpoints in use: everything is draining",
    nodePortLocal,
    [at("a", "away", "ST"), at("b", "here", "ST")],
    ["a,b", "b", true],
  ],
  [
    "endpoints in use: internal Local with only a remote draining one",
    internalLocal,
    [at("a", "away", "ST")],
    ["", "", true, false],
  ],
  ["endpoints in use: internal Local, local draining", internalLocal, [
    at("a", "here", "ST"),
    at("b", "away", "R"),
  ], ["", "a", true, true]],
  ["endpoints in use: draining endpoints are taken from all zones", clusterIP, [
    at("a", "away", "ST", ["z1"]),
    at("b", "away", "ST", ["z2"]),
  ], ["a,b", "", true]],
  [
    "endpoints in use: a pod that is ready though terminating (publishNotReadyAddresses) counts as ready",
    clusterIP,
    [testEndpoint("a", { key: "a", terminating: true }), at("b", "away", "ST")],
    ["a", "", true],
  ],
];

const keys = (endpoints: readonly Endpoint[]): string => endpoints.map((endpoint) => endpoint.key).join(",");

for (const [title, port, endpoints, [cluster, local, hasAny, hasInternal, hasExternal]] of CASES) {
  Deno.test(title, pure, () => {
    const got = categorizeEndpoints(endpoints, port, NODE_A);
    assertEquals([keys(got.cluster), keys(got.local), got.hasAny], [cluster, local, hasAny]);
    if (hasInternal !== undefined) assertEquals(hasInternalEndpoints(port, got), hasInternal);
    if (hasExternal !== undefined) assertEquals(hasExternalEndpoints(port, got), hasExternal);
  });
}

Deno.test("vector 13: a port that cannot be reached from outside needs no local endpoints", pure, () => {
  assertFalse(usesLocalEndpoints(unreachableLocal));
});

Deno.test("the lists hold together for any endpoints and policies", pure, () => {
  const endpoint = fc.record({
    isLocal: fc.boolean(),
    ready: fc.boolean(),
    serving: fc.boolean(),
    terminating: fc.boolean(),
    zoneHints: fc.subarray(["z1", "z2"]),
    nodeHints: fc.subarray(["node-a", "node-b"]),
  });
  const policies = fc.record({
    internalPolicyLocal: fc.boolean(),
    externalPolicyLocal: fc.boolean(),
    nodePort: fc.constantFrom(0, 30000),
  });
  fc.assert(
    fc.property(fc.array(endpoint, { maxLength: 6 }), policies, (fields, policy) => {
      const endpoints = fields.map((field, index) => testEndpoint(`10.0.0.${index}`, field));
      const port = testServicePort(policy);
      const { cluster, local, allReachable, hasAny } = categorizeEndpoints(endpoints, port, NODE_A);
      const usable = (candidate: Endpoint): boolean =>
        candidate.ready || (candidate.serving && candidate.terminating);
      assertEquals(new Set(allReachable), new Set([...cluster, ...local]));
      assertEquals(allReachable, endpoints.filter((candidate) => allReachable.includes(candidate)));
      assert(allReachable.every(usable));
      assert(local.every((candidate) => candidate.isLocal));
      assertEquals(hasAny, endpoints.some(usable));
      // A set never mixes ready and draining endpoints.
      for (const list of [cluster, local]) {
        assert(list.every((candidate) => candidate.ready) || list.every((candidate) => !candidate.ready));
      }
      if (!policy.internalPolicyLocal) assertEquals(cluster.length > 0, hasAny);
    }),
    { numRuns: 2000 },
  );
});

Deno.test("an endpoint is local only if its node is named and is this one", pure, () => {
  const local = (nodeName: string, ownName: string): boolean =>
    makeEndpoint(testSliceEndpoint("10.0.0.1", { nodeName }), "10.0.0.1", 80, ownName).isLocal;
  assert(local("node-a", "node-a"));
  assertFalse(local("node-b", "node-a"));
  assertFalse(local("Node-A", "node-a"));
  assertFalse(local("", "node-a"));
  assertFalse(local("", ""));
  assertFalse(local("node-a", ""));
});

Deno.test("an endpoint is known by address and port", pure, () => {
  const source = testSliceEndpoint("unused", { zoneHints: ["z1"], nodeHints: ["node-b"], ready: false });
  assertEquals(makeEndpoint(source, "fd00::1", 80, "node-a"), {
    key: "[fd00::1]:80",
    ip: "fd00::1",
    port: 80,
    isLocal: false,
    ready: false,
    serving: true,
    terminating: false,
    zoneHints: ["z1"],
    nodeHints: ["node-b"],
  });
});

Deno.test("two lists of endpoints differ if any field differs", pure, () => {
  const base = testEndpoint("10.0.0.1");
  assert(sameEndpoints([base], [testEndpoint("10.0.0.1")]));
  const different: readonly Partial<Endpoint>[] = [
    { key: "10.0.0.2:8080" },
    { isLocal: true },
    { ready: false },
    { serving: false },
    { terminating: true },
    { zoneHints: ["z1"] },
    { nodeHints: ["node-a"] },
  ];
  for (const fields of different) {
    assertEquals([fields, sameEndpoints([base], [{ ...base, ...fields }])], [fields, false]);
  }
  assertFalse(sameEndpoints([base], []));
  assertFalse(sameEndpoints([], [base]));
});
