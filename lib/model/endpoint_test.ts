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

interface Case {
  readonly name: string;
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
  readonly cluster: string;
  readonly local: string;
  readonly allReachable: string;
  readonly hasAny: boolean;
  readonly hasInternal?: boolean;
  readonly hasExternal?: boolean;
}

const VECTORS: readonly Case[] = [
  {
    name: "1: both ready endpoints",
    port: clusterIP,
    endpoints: [at("a", "here", "R"), at("b", "away", "R")],
    cluster: "a,b",
    local: "",
    allReachable: "a,b",
    hasAny: true,
  },
  {
    name: "2: a draining one if nothing is ready",
    port: clusterIP,
    endpoints: [at("a", "here", "ST"), at("b", "away", "no")],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
  {
    name: "3: the one for this zone",
    port: clusterIP,
    endpoints: [at("a", "away", "R", ["z1"]), at("b", "away", "R", ["z2"])],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
  {
    name: "4: all, because one has no hint",
    port: clusterIP,
    endpoints: [at("a", "away", "R", ["z1"]), at("b", "away", "R")],
    cluster: "a,b",
    local: "",
    allReachable: "a,b",
    hasAny: true,
  },
  {
    name: "5: all, because no hint is for this zone",
    port: clusterIP,
    endpoints: [at("a", "away", "R", ["z2"]), at("b", "away", "R", ["z3"])],
    cluster: "a,b",
    local: "",
    allReachable: "a,b",
    hasAny: true,
  },
  {
    name: "6: hints of endpoints that are not ready do not count",
    port: clusterIP,
    endpoints: [at("a", "away", "R", ["z2"]), at("b", "away", "no", ["z1"]), at("c", "away", "ST", ["z1"])],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
  {
    name: "7: the one for this node",
    port: clusterIP,
    endpoints: [at("a", "here", "R", ["z1"], ["node-a"]), at("b", "away", "R", ["z1"], ["node-b"])],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
  {
    name: "8: node hints for other nodes fall to the zone",
    port: clusterIP,
    endpoints: [at("a", "away", "R", ["z1"], ["node-c"]), at("b", "away", "R", ["z2"], ["node-b"])],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
  {
    name: "9: external policy Local keeps the draining local one",
    port: nodePortLocal,
    endpoints: [at("a", "here", "ST"), at("b", "away", "R")],
    cluster: "b",
    local: "a",
    allReachable: "a,b",
    hasAny: true,
    hasInternal: true,
    hasExternal: true,
  },
  {
    name: "10: external policy Local without a local one drops external traffic only",
    port: nodePortLocal,
    endpoints: [at("b", "away", "R")],
    cluster: "b",
    local: "",
    allReachable: "b",
    hasAny: true,
    hasInternal: true,
    hasExternal: false,
  },
  {
    name: "11: internal policy Local without a local one drops",
    port: internalLocal,
    endpoints: [at("b", "away", "R")],
    cluster: "",
    local: "",
    allReachable: "",
    hasAny: true,
    hasInternal: false,
  },
  {
    name: "12: internal Local, external Cluster",
    port: lbInternalLocal,
    endpoints: [at("b", "away", "R")],
    cluster: "b",
    local: "",
    allReachable: "b",
    hasAny: true,
    hasInternal: false,
    hasExternal: true,
  },
  {
    name: "13: external Local means nothing without an external address of the family",
    port: unreachableLocal,
    endpoints: [at("a", "here", "R"), at("b", "away", "R")],
    cluster: "a,b",
    local: "",
    allReachable: "a,b",
    hasAny: true,
    hasInternal: true,
  },
  {
    name: "14: nothing at all",
    port: nodePortLocal,
    endpoints: [],
    cluster: "",
    local: "",
    allReachable: "",
    hasAny: false,
    hasInternal: false,
    hasExternal: false,
  },
  {
    name: "17: hints do not matter to policy Local",
    port: internalLocal,
    endpoints: [at("a", "here", "R", ["z2"], ["node-b"]), at("b", "away", "R", ["z2"])],
    cluster: "",
    local: "a",
    allReachable: "a",
    hasAny: true,
    hasInternal: true,
  },
  {
    name: "18: the local one is reachable though hints leave it out of the cluster set",
    port: nodePortLocal,
    endpoints: [at("a", "here", "R", ["z2"]), at("b", "away", "R", ["z1"])],
    cluster: "b",
    local: "a",
    allReachable: "a,b",
    hasAny: true,
    hasExternal: true,
  },
];

const SITUATIONS: readonly Case[] = [
  {
    name: "only endpoints that neither are ready nor serve",
    port: nodePortLocal,
    endpoints: [at("a", "here", "no"), at("b", "away", "no")],
    cluster: "",
    local: "",
    allReachable: "",
    hasAny: false,
    hasInternal: false,
    hasExternal: false,
  },
  {
    name: "local ready beats local draining",
    port: nodePortLocal,
    endpoints: [at("a", "here", "R"), at("b", "here", "ST"), at("c", "away", "R")],
    cluster: "a,c",
    local: "a",
    allReachable: "a,c",
    hasAny: true,
  },
  {
    name: "everything is draining",
    port: nodePortLocal,
    endpoints: [at("a", "away", "ST"), at("b", "here", "ST")],
    cluster: "a,b",
    local: "b",
    allReachable: "a,b",
    hasAny: true,
  },
  {
    name: "internal Local with only a remote draining one",
    port: internalLocal,
    endpoints: [at("a", "away", "ST")],
    cluster: "",
    local: "",
    allReachable: "",
    hasAny: true,
    hasInternal: false,
  },
  {
    name: "internal Local, local draining",
    port: internalLocal,
    endpoints: [at("a", "here", "ST"), at("b", "away", "R")],
    cluster: "",
    local: "a",
    allReachable: "a",
    hasAny: true,
    hasInternal: true,
  },
  {
    name: "draining endpoints are taken from all zones",
    port: clusterIP,
    endpoints: [at("a", "away", "ST", ["z1"]), at("b", "away", "ST", ["z2"])],
    cluster: "a,b",
    local: "",
    allReachable: "a,b",
    hasAny: true,
  },
  {
    name: "a pod that is ready though terminating (publishNotReadyAddresses) counts as ready",
    port: clusterIP,
    endpoints: [testEndpoint("a", { key: "a", terminating: true }), at("b", "away", "ST")],
    cluster: "a",
    local: "",
    allReachable: "a",
    hasAny: true,
  },
];

const keys = (endpoints: readonly Endpoint[]): string => endpoints.map((endpoint) => endpoint.key).join(",");

const TITLED = [
  ...VECTORS.map((one) => ({ ...one, title: `vector ${one.name}` })),
  ...SITUATIONS.map((one) => ({ ...one, title: `endpoints in use: ${one.name}` })),
];
for (const { title, port, endpoints, cluster, local, allReachable, hasAny, ...derived } of TITLED) {
  Deno.test(title, pure, () => {
    const got = categorizeEndpoints(endpoints, port, NODE_A);
    assertEquals([keys(got.cluster), keys(got.local), keys(got.allReachable), got.hasAny], [
      cluster,
      local,
      allReachable,
      hasAny,
    ]);
    if (derived.hasInternal !== undefined) assertEquals(hasInternalEndpoints(port, got), derived.hasInternal);
    if (derived.hasExternal !== undefined) assertEquals(hasExternalEndpoints(port, got), derived.hasExternal);
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
      // A set mixes ready and draining endpoints never.
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
