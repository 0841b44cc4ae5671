import { assertEquals, assertStrictEquals, assertThrows } from "@std/assert";
import type { EndpointSlice } from "../../model/objects.ts";
import {
  decodeEndpointSlice,
  DecodeError,
  decodeNode,
  decodeObject,
  decodeService,
  exclusionOf,
  foreignKind,
} from "./decode.ts";
import type { RawObject } from "./decode_values.ts";
import { pure, type Raw, rawService, rawSlice } from "../../../tests/support/decode_objects.ts";

pure("endpoint conditions and hints are read, null counting as absent", () => {
  const conditions: [Raw | null, [boolean, boolean, boolean]][] = [
    [null, [true, true, false]],
    [{}, [true, true, false]],
    [{ ready: null, serving: null, terminating: null }, [true, true, false]],
    [{ ready: false }, [false, true, false]],
    [{ ready: false, serving: true, terminating: true }, [false, true, true]],
    [{ ready: false, serving: false, terminating: false }, [false, false, false]],
  ];
  for (const [raw, wanted] of conditions) {
    const [endpoint] = decodeEndpointSlice(
      rawSlice({ endpoints: [{ addresses: ["10.0.0.1"], conditions: raw }] }),
    ).endpoints;
    assertEquals([endpoint?.ready, endpoint?.serving, endpoint?.terminating], wanted);
  }
  const hints = { forZones: [{ name: "z1" }, { name: "z2" }], forNodes: [{ name: "node-a" }] };
  const [endpoint] = decodeEndpointSlice(
    rawSlice({ endpoints: [{ addresses: ["10.0.0.1"], hints, nodeName: "node-b" }] }),
  ).endpoints;
  assertEquals(endpoint?.zoneHints, ["z1", "z2"]);
  assertEquals(endpoint?.nodeHints, ["node-a"]);
  assertEquals(endpoint?.nodeName, "node-b");
});

pure("absent lists of a slice are empty, as the API writes them", () => {
  const slice = decodeEndpointSlice(rawSlice({ endpoints: null, ports: null }));
  assertEquals([slice.endpoints, slice.ports], [[], []]);
});

pure("a slice without its Service's label has an empty service name", () => {
  assertEquals(decodeEndpointSlice(rawSlice({ metadata: { namespace: "a", name: "b" } })).serviceName, "");
});

pure("of an endpoint with several addresses the first one counts", () => {
  const endpoints = [{ addresses: ["10.0.0.2", "10.0.0.1"] }];
  assertEquals(decodeEndpointSlice(rawSlice({ endpoints })).endpoints.map(({ address }) => address), [
    "10.0.0.2",
  ]);
});

pure("a host-name slice passes, with whatever addresses it has", () => {
  const slice = decodeEndpointSlice(
    rawSlice({ addressType: "FQDN", endpoints: [{ addresses: ["web.example"] }] }),
  );
  assertEquals(slice.addressType, "FQDN");
});

pure("the trigger time is read if it is RFC 3339, and never refused", () => {
  const cases: [unknown, number | null][] = [
    ["2024-05-01T10:00:00Z", Date.UTC(2024, 4, 1, 10)],
    ["2024-05-01T10:00:00.123456789Z", Date.UTC(2024, 4, 1, 10, 0, 0, 123)],
    ["2024-05-01T10:00:00+02:00", Date.UTC(2024, 4, 1, 8)],
    ["2024-13-01T10:00:00Z", null],
    ["yesterday", null],
    ["5", null],
    [5, null],
    [undefined, null],
  ];
  for (const [text, wanted] of cases) {
    const metadata = {
      namespace: "shop",
      name: "web-1",
      annotations: { "endpoints.kubernetes.io/last-change-trigger-time": text },
    };
    assertEquals(decodeEndpointSlice(rawSlice({ metadata })).lastChangeTriggerTimeMs, wanted, String(text));
  }
});

pure("a Node is read, with podCIDR standing in for podCIDRs", () => {
  const node = decodeNode({
    metadata: { name: "node-a", labels: { "topology.kubernetes.io/zone": "z1" }, deletionTimestamp: "x" },
    spec: {
      podCIDR: "10.244.0.0/24",
      taints: [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }],
    },
    status: {
      addresses: [{ type: "InternalIP", address: "192.0.2.1" }, { type: "Hostname", address: "node-a" }],
    },
  });
  assertEquals(node, {
    kind: "Node",
    name: "node-a",
    labels: { "topology.kubernetes.io/zone": "z1" },
    podCIDRs: ["10.244.0.0/24"],
    addresses: [{ type: "InternalIP", address: "192.0.2.1" }, { type: "Hostname", address: "node-a" }],
    taintKeys: ["ToBeDeletedByClusterAutoscaler"],
    deleting: true,
  });
  const bare = decodeNode({
    metadata: { name: "b" },
    spec: { podCIDR: "10.0.0.0/8", podCIDRs: ["10.1.0.0/16"] },
  });
  assertEquals([bare.podCIDRs, bare.labels, bare.addresses, bare.taintKeys, bare.deleting], [
    ["10.1.0.0/16"],
    {},
    [],
    [],
    false,
  ]);
});

/** A field that no model knows yet. */
const FUTURE: Raw = { futureField: { deep: [1] } };

pure("what an API server lets through is not refused", () => {
  const odd: Raw[] = [
    rawService({ clusterIP: undefined, ports: undefined }),
    rawService({ clusterIP: "10.0.0.01" }),
    rawService({ ports: [{ port: 80 }, { port: 443 }] }),
    rawService({ externalIPs: ["not an address"], loadBalancerSourceRanges: ["x"] }),
    rawService({ type: "ExternalName", externalName: "x.example", clusterIP: undefined }),
    rawService({ ...FUTURE, trafficDistribution: "PreferClose" }),
    rawSlice({ ports: [{ port: 80 }], metadata: { namespace: "a", name: "b" } }),
  ];
  for (const raw of odd) assertEquals(decodeObject(raw, "x").rejections, [], JSON.stringify(raw));
});

pure("a written ExternalName Service needs neither address nor ports", () => {
  const raw = { metadata: { name: "web" }, spec: { type: "ExternalName", externalName: "x.example" } };
  assertEquals(decodeService(raw, { manifest: true }).type, "ExternalName");
});

pure("names are as long as the API allows, and no longer", () => {
  const named = (name: string): Raw => ({ metadata: { namespace: "shop", name }, addressType: "IPv4" });
  assertEquals(decodeEndpointSlice(named("a".repeat(253))).name.length, 253);
  assertThrows(() => decodeEndpointSlice(named("a".repeat(254))), DecodeError, "at most 253");
  const service = (name: string): Raw => ({ ...rawService(), metadata: { namespace: "shop", name } });
  assertEquals(decodeService(service("a".repeat(63))).name.length, 63);
  assertThrows(() => decodeService(service("a".repeat(64))), DecodeError, "at most 63");
});

pure("written objects get what an API server would fill in", () => {
  const service = decodeService({ ...rawService(), metadata: { name: "web" } }, { manifest: true });
  assertEquals(service.namespace, "default");
  const slice = decodeEndpointSlice(rawSlice({ ports: [{ port: 80 }] }), { manifest: true });
  assertEquals(slice.ports, [{ name: "", port: 80, protocol: "TCP" }]);
});

pure("lists give each item their kind, in order, and reject by item", () => {
  const bare = (raw: Raw): Raw => ({ metadata: raw["metadata"], spec: raw["spec"] });
  const { objects, rejections } = decodeObject({
    apiVersion: "v1",
    kind: "List",
    items: [
      rawSlice(),
      { apiVersion: "v1", kind: "ServiceList", items: [bare(rawService()), bare(rawService({ type: 7 }))] },
      { apiVersion: "v1", kind: "Pod", metadata: { namespace: "a", name: "b" } },
    ],
  }, "the list");
  assertEquals(objects.map(({ kind, name }) => `${kind} ${name}`), ["EndpointSlice web-1", "Service web"]);
  assertEquals(rejections, [
    {
      where: "the list",
      object: "Service shop/web",
      message:
        "items[1].items[1].spec.type: must be ClusterIP, NodePort, LoadBalancer or ExternalName, found 7",
    },
    {
      where: "the list",
      object: "Pod a/b",
      message:
        'items[2].kind: must be Service, EndpointSlice, Endpoints, Node, ServiceCIDR or a list of them, found "Pod"',
    },
  ]);
});

pure("a ServiceCIDR is its networks, canonical; what is none, or everything, is refused", () => {
  const decode = (spec: unknown, apiVersion = "networking.k8s.io/v1") =>
    decodeObject({ kind: "ServiceCIDR", apiVersion, metadata: { name: "kubernetes" }, spec }, "x");
  const cases: [spec: unknown, cidrs: string[]][] = [
    [{ cidrs: ["10.96.0.0/16", "FD00:10:96:0::/112"] }, ["10.96.0.0/16", "fd00:10:96::/112"]],
    [{ cidrs: ["10.96.3.4/16"] }, ["10.96.0.0/16"]],
    [{ cidrs: ["10.96.0.1/32"] }, ["10.96.0.1/32"]],
    [{ cidrs: [] }, []],
    [{}, []],
    [undefined, []],
  ];
  for (const [spec, cidrs] of cases) {
    assertEquals(decode(spec), {
      objects: [{ kind: "ServiceCIDR", name: "kubernetes", cidrs }],
      rejections: [],
    });
  }
  const refused: [spec: unknown, message: string][] = [
    [
      { cidrs: ["10.96.0.0/16", "10.97.0.0"] },
      'spec.cidrs[1]: must be a network such as 10.96.0.0/16, found "10.97.0.0"',
    ],
    [{ cidrs: ["0.0.0.0/0"] }, 'spec.cidrs[0]: must not be all addresses, found "0.0.0.0/0"'],
    [{ cidrs: ["::/0"] }, 'spec.cidrs[0]: must not be all addresses, found "::/0"'],
  ];
  for (const [spec, message] of refused) {
    assertEquals(decode(spec).rejections.map((one) => [one.object, one.message]), [[
      "ServiceCIDR kubernetes",
      message,
    ]]);
  }
  assertEquals(decode({ cidrs: ["10.96.0.0/16"] }, "v1").objects, []);
});

pure("a kind that is none of ours is foreign, unless it is nearly written like one", () => {
  const cases: [kind: unknown, apiVersion: unknown, foreign: boolean][] = [
    ["Deployment", "apps/v1", true],
    ["Deployment", undefined, true],
    ["ConfigMap", "v1", true],
    ["Pod", "v1", true],
    ["PodList", "v1", true],
    ["ServiceAccount", "v1", true],
    ["Role", "rbac.authorization.k8s.io/v1", true],
    ["Ingress", "networking.k8s.io/v1", true],
    ["IngressClass", "networking.k8s.io/v1", true],
    ["NetworkPolicy", "networking.k8s.io/v1", true],
    ["IPAddress", "networking.k8s.io/v1", true],
    ["ServiceCIDR", "networking.k8s.io/v1", false],
    ["ServiceCidrs", "networking.k8s.io/v1", false],
    ["Service", "serving.knative.dev/v1", false],
    ["Service", "v1", false],
    ["ServiceList", "v1", false],
    ["service", "v1", false],
    ["SERVICE", "apps/v1", false],
    ["Servce", "v1", false],
    ["Services", undefined, false],
    ["ServiceLst", "v1", false],
    ["EndpointSlic", "discovery.k8s.io/v1beta1", false],
    ["Endpoint", "v1", false],
    ["deployment", "apps/v1", false],
    ["De ployment", "apps/v1", false],
    ["", "v1", false],
    [5, "v1", false],
    [undefined, "v1", false],
  ];
  for (const [kind, apiVersion, foreign] of cases) {
    assertEquals(foreignKind({ kind, apiVersion }), foreign ? kind : undefined, `${kind} ${apiVersion}`);
  }
});

pure("lists nested without end are refused, not followed", () => {
  let raw: unknown = rawService();
  for (let depth = 0; depth < 20_000; depth++) raw = { apiVersion: "v1", kind: "List", items: [raw] };
  const { objects, rejections } = decodeObject(raw, "x");
  assertEquals([objects.length, rejections.length], [0, 1]);
});

pure("selection follows kube-proxy's selectors; an empty label counts as present", () => {
  const labelled = (raw: Raw, labels: Raw): RawObject => ({
    ...raw,
    metadata: { ...raw["metadata"] as Raw, labels },
  });
  const cases: [RawObject, string, boolean][] = [
    [rawService(), "Service", true],
    [rawService({ clusterIP: "None" }), "Service", false],
    [labelled(rawService(), { "service.kubernetes.io/service-proxy-name": "" }), "Service", false],
    [labelled(rawService(), { "service.kubernetes.io/headless": "" }), "Service", true],
    [rawSlice(), "EndpointSlice", true],
    [labelled(rawSlice(), { "service.kubernetes.io/headless": "" }), "EndpointSlice", false],
    [labelled(rawSlice(), { "service.kubernetes.io/service-proxy-name": "x" }), "EndpointSlice", true],
    [labelled(rawSlice(), { "service.kubernetes.io/headless": "" }), "Endpoints", false],
  ];
  for (const [raw, kind, wanted] of cases) {
    assertEquals(exclusionOf(raw, kind) === null, wanted, JSON.stringify(raw));
  }
});

pure("empty lists are shared by all objects", () => {
  const [one, other]: EndpointSlice[] = [decodeEndpointSlice(rawSlice()), decodeEndpointSlice(rawSlice())];
  assertStrictEquals(one?.endpoints[0]?.zoneHints, other?.endpoints[0]?.zoneHints);
});
