import { assert, assertEquals, assertFalse } from "@std/assert";
import { type EndpointsByPort, EndpointSliceCache } from "./endpoint_slices.ts";
import { ChangeTracker } from "./change_tracker.ts";
import { servicePortKey } from "./names.ts";
import type { EndpointSlice, IpFamily, SlicePort } from "./objects.ts";
import type { Endpoint, ServicePort } from "./state.ts";
import {
  testService,
  testServicePort,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

/** A cache for node `node-a` and what it reported. */
function newCache(family: IpFamily = "IPv4"): { cache: EndpointSliceCache; problems: string[] } {
  const problems: string[] = [];
  const cache = new EndpointSliceCache({
    family,
    nodeName: "node-a",
    report: (problem) => problems.push(problem),
  });
  return { cache, problems };
}

/** The endpoints of Service `shop/web` after the given slices arrived. */
function merged(slices: readonly EndpointSlice[], family: IpFamily = "IPv4"): {
  endpoints: Record<string, string[]>;
  problems: string[];
} {
  const { cache, problems } = newCache(family);
  for (const slice of slices) cache.update(slice, false);
  return { endpoints: keysByPort(checkout(cache).get("shop/web") ?? new Map()), problems };
}

const PORT_NAMES = ["", "a", "b", "c", "x", "y", "http", "dns", "metrics", "web"];

/** The Services whose slices changed, with the endpoints of every port that a test names. */
function checkout(cache: EndpointSliceCache): ReadonlyMap<string, EndpointsByPort> {
  return new Map([...cache.checkout().keys()].map((service) => {
    return [service, cache.endpointsOf(service, portsOf(service))];
  }));
}

function portsOf(service: string): readonly ServicePort[] {
  return PORT_NAMES.flatMap((name) =>
    (["TCP", "UDP", "SCTP"] as const).map((protocol) =>
      testServicePort({ key: servicePortKey(service, name, protocol), portName: name, protocol })
    )
  );
}

function keysByPort(endpoints: EndpointsByPort): Record<string, string[]> {
  return Object.fromEntries([...endpoints].map(([key, list]) => [key, list.map((endpoint) => endpoint.key)]));
}

function onlyEndpoint(slices: readonly EndpointSlice[]): Endpoint {
  const { cache } = newCache();
  for (const slice of slices) cache.update(slice, false);
  const endpoints = [...checkout(cache).get("shop/web")?.values() ?? []].flat();
  assertEquals(endpoints.length, 1);
  return endpoints[0] as Endpoint;
}

Deno.test(
  "every endpoint of every port of every slice is kept, sorted by the bytes of address and port",
  pure,
  () => {
    const { endpoints, problems } = merged([
      testSlice({
        name: "web-1",
        ports: [
          testSlicePort({ name: "http", port: 8080 }),
          testSlicePort({ name: "dns", port: 53, protocol: "UDP" }),
        ],
        endpoints: [testSliceEndpoint("10.0.0.9"), testSliceEndpoint("10.0.0.10")],
      }),
      testSlice({
        name: "web-2",
        ports: [testSlicePort({ name: "http", port: 9090 })],
        endpoints: [testSliceEndpoint("10.0.0.9"), testSliceEndpoint("10.0.0.2")],
      }),
    ]);
    assertEquals(endpoints, {
      "shop/web:http/TCP": ["10.0.0.10:8080", "10.0.0.2:9090", "10.0.0.9:8080", "10.0.0.9:9090"],
      "shop/web:dns/UDP": ["10.0.0.10:53", "10.0.0.9:53"],
    });
    assertEquals(problems, []);
  },
);

Deno.test("IPv6 endpoints are written in brackets and sorted as text", pure, () => {
  const { endpoints } = merged([
    testSlice({
      addressType: "IPv6",
      ports: [testSlicePort({ port: 80 })],
      endpoints: [
        testSliceEndpoint("fd00:1::1"),
        testSliceEndpoint("FD00:1:1:0::2"),
        testSliceEndpoint("fd00:1:1::1"),
      ],
    }),
  ], "IPv6");
  assertEquals(endpoints, { "shop/web/TCP": ["[fd00:1:1::1]:80", "[fd00:1:1::2]:80", "[fd00:1::1]:80"] });
});

Deno.test(
  "unusable ports are reported and skipped, so are endpoints that no decoder has seen; the others stay",
  pure,
  () => {
    const slice = testSlice({
      ports: [
        testSlicePort({ name: null, port: 1 }),
        testSlicePort({ name: "none", port: null }),
        testSlicePort({ name: "zero", port: 0 }),
        testSlicePort({ name: "", port: 80 }),
      ],
      endpoints: [
        testSliceEndpoint(""),
        testSliceEndpoint("10.0.0.2"),
        testSliceEndpoint("fd00::1"),
        testSliceEndpoint("pod-1"),
        testSliceEndpoint("010.0.0.8"),
      ],
    });
    const { endpoints, problems } = merged([slice]);
    assertEquals(endpoints, { "shop/web/TCP": ["10.0.0.2:80", "10.0.0.8:80"] });
    assertEquals(problems, [
      "EndpointSlice shop/web-1: ports[0] has no name; it is skipped",
      "EndpointSlice shop/web-1: ports[1] has no port number; it is skipped",
      "EndpointSlice shop/web-1: ports[2] has no port number; it is skipped",
    ]);
  },
);

Deno.test(
  "slices that cannot be used are ignored with a reason, those of the other family without",
  pure,
  () => {
    const table: readonly [Partial<EndpointSlice>, string[]][] = [
      [{ addressType: "IPv6" }, []],
      [{ addressType: "FQDN" }, [
        'EndpointSlice shop/web-1: addressType "FQDN" is not supported; it is ignored',
      ]],
      [{ serviceName: "" }, [
        "EndpointSlice shop/web-1: has no label kubernetes.io/service-name; it is ignored",
      ]],
    ];
    for (const [fields, expected] of table) {
      const { cache, problems } = newCache();
      assertFalse(cache.update(testSlice({ ...fields, endpoints: [testSliceEndpoint("10.0.0.1")] }), false));
      assertEquals([fields, problems], [fields, expected]);
      assertEquals(checkout(cache).size, 0);
    }
  },
);

Deno.test("vector 15: of equal endpoints in two slices the one that is not terminating wins", pure, () => {
  const draining = testSliceEndpoint("10.0.0.1", { nodeName: "node-a", ready: false, terminating: true });
  const ready = testSliceEndpoint("10.0.0.1", { nodeName: "node-a" });
  const s1 = testSlice({ name: "s1", endpoints: [draining] });
  const s2 = testSlice({ name: "s2", endpoints: [ready] });
  assert(onlyEndpoint([s1, s2]).ready);
  assert(onlyEndpoint([s2, s1]).ready);
  assert(onlyEndpoint([{ ...s1, name: "s3" }, s2]).ready);
});

Deno.test(
  "of equal endpoints: not terminating, then local, then the last by slice name and place",
  pure,
  () => {
    const one = (fields: Parameters<typeof testSliceEndpoint>[1]) => testSliceEndpoint("10.0.0.1", fields);
    const local = one({ nodeName: "node-a", zoneHints: ["local"] });
    const remote = one({ nodeName: "node-b", zoneHints: ["remote"] });
    const third = one({ nodeName: "node-c", zoneHints: ["third"] });
    const drainingLocal = one({ nodeName: "node-a", terminating: true, zoneHints: ["draining"] });
    const drainingRemote = one({ nodeName: "node-b", terminating: true, zoneHints: ["draining remote"] });
    const table: readonly [ReturnType<typeof one>[], string][] = [
      [[local, remote], "local"],
      [[remote, local], "local"],
      [[remote, third], "third"],
      [[third, remote], "remote"],
      [[drainingLocal, remote], "remote"],
      [[remote, drainingLocal], "remote"],
      [[drainingLocal, drainingRemote], "draining"],
      [[drainingRemote, drainingLocal], "draining"],
      [[remote, local, third, drainingLocal], "local"],
    ];
    for (const [endpoints, winner] of table) {
      const inOneSlice = onlyEndpoint([testSlice({ endpoints })]);
      assertEquals(inOneSlice.zoneHints, [winner]);
      const slices = endpoints.map((endpoint, index) =>
        testSlice({ name: `s${index}`, endpoints: [endpoint] })
      );
      assertEquals(onlyEndpoint(slices).zoneHints, [winner]);
      assertEquals(onlyEndpoint([...slices].reverse()).zoneHints, [winner]);
    }
  },
);

Deno.test("one address with two ports is two endpoints, one port listed twice is one", pure, () => {
  const endpoints = [testSliceEndpoint("10.0.0.1")];
  assertEquals(
    merged([testSlice({ ports: [testSlicePort({ port: 81 }), testSlicePort({ port: 80 })], endpoints })])
      .endpoints,
    { "shop/web/TCP": ["10.0.0.1:80", "10.0.0.1:81"] },
  );
  assertEquals(merged([testSlice({ ports: [testSlicePort(), testSlicePort()], endpoints })]).endpoints, {
    "shop/web/TCP": ["10.0.0.1:8080"],
  });
});

Deno.test("an update counts only if it changes what the proxy reads", pure, () => {
  const base = testSlice({
    ports: [testSlicePort({ name: "a", port: 80 }), testSlicePort({ name: "b", port: 90 })],
    endpoints: [testSliceEndpoint("10.0.0.1"), testSliceEndpoint("10.0.0.2", { nodeName: "node-a" })],
  });
  const [first, second] = base.endpoints;
  assert(first !== undefined && second !== undefined);
  const same: readonly [string, EndpointSlice][] = [
    ["the same object", base],
    ["an equal object", structuredClone(base)],
    ["another trigger time", { ...base, lastChangeTriggerTimeMs: 5 }],
    ["another order of ports", { ...base, ports: [...base.ports].reverse() }],
    ["another order of endpoints", { ...base, endpoints: [second, first] }],
  ];
  const changed: readonly [string, EndpointSlice][] = [
    ["port number", {
      ...base,
      ports: [testSlicePort({ name: "a", port: 81 }), testSlicePort({ name: "b", port: 90 })],
    }],
    ["port name", {
      ...base,
      ports: [testSlicePort({ name: "c", port: 80 }), testSlicePort({ name: "b", port: 90 })],
    }],
    ["port gone", { ...base, ports: base.ports.slice(1) }],
    ["protocol", { ...base, ports: base.ports.map((port) => ({ ...port, protocol: "UDP" as const })) }],
    ["endpoint gone", { ...base, endpoints: [first] }],
    ["endpoint added", { ...base, endpoints: [...base.endpoints, testSliceEndpoint("10.0.0.3")] }],
    ["address", { ...base, endpoints: [{ ...first, address: "10.0.0.3" }, second] }],
    ["node", { ...base, endpoints: [{ ...first, nodeName: "node-a" }, second] }],
    ["ready", { ...base, endpoints: [{ ...first, ready: false }, second] }],
    ["serving", { ...base, endpoints: [{ ...first, serving: false }, second] }],
    ["terminating", { ...base, endpoints: [{ ...first, terminating: true }, second] }],
    ["zone hints", { ...base, endpoints: [{ ...first, zoneHints: ["z1"] }, second] }],
    ["node hints", { ...base, endpoints: [{ ...first, nodeHints: ["node-a"] }, second] }],
  ];
  for (const applied of [false, true]) {
    for (const [what, slice] of [...same, ...changed]) {
      const { cache } = newCache();
      assert(cache.update(base, false));
      if (applied) checkout(cache);
      const expected = changed.some(([name]) => name === what);
      assertEquals([what, applied, cache.update(slice, false)], [what, applied, expected]);
    }
  }
});

Deno.test("each update answers for itself, against what is pending before what is applied", pure, () => {
  const { cache } = newCache();
  const one = testSlice({ endpoints: [testSliceEndpoint("10.0.0.1")] });
  const two = testSlice({ endpoints: [testSliceEndpoint("10.0.0.2")] });
  assertFalse(cache.update(one, true), "removing an unknown slice");
  assert(cache.update(one, false));
  assertFalse(cache.update(one, false), "pending already");
  assert(cache.update(two, false));
  assert(cache.update(one, false), "differs from what is pending");
  checkout(cache);
  assertFalse(cache.update(one, false), "applied already");
  assert(cache.update(one, true));
  assertFalse(cache.update(one, true), "removal pending already");
  assertEquals(checkout(cache).get("shop/web")?.size, 0);
  assertEquals(checkout(cache).size, 0);
  assertFalse(cache.update(one, true), "removed already");
});

Deno.test("a deletion event removes the slice even if it names another Service", pure, () => {
  const { cache } = newCache();
  cache.update(testSlice({ endpoints: [testSliceEndpoint("10.0.0.1")] }), false);
  checkout(cache);
  assert(cache.update(testSlice({ serviceName: "api" }), true));
  assertEquals(checkout(cache).get("shop/web")?.size, 0);
});

Deno.test("slices of one name in two namespaces are two slices", pure, () => {
  const { cache } = newCache();
  cache.update(testSlice({ endpoints: [testSliceEndpoint("10.0.0.1")] }), false);
  cache.update(testSlice({ namespace: "lab", endpoints: [testSliceEndpoint("10.0.0.2")] }), false);
  assertEquals([...checkout(cache).keys()].sort(), ["lab/web", "shop/web"]);
  cache.update(testSlice({ namespace: "lab" }), true);
  assertEquals([...checkout(cache).keys()], ["lab/web"]);
});

Deno.test("an equal slice takes the place of the former one, which is not needed any more", pure, () => {
  const { cache } = newCache();
  const web = (name: string) => testSlice({ name, endpoints: [testSliceEndpoint("10.1.0.1")] });
  for (const isApplied of [false, true]) {
    const { proxy: former, revoke } = Proxy.revocable(web(`web-${isApplied}`), {});
    cache.update(former, false);
    if (isApplied) checkout(cache);
    assertEquals(cache.update(web(`web-${isApplied}`), false), false);
    // From here on, reading the former slice throws.
    revoke();
    cache.update(
      testSlice({ name: `other-${isApplied}`, endpoints: [testSliceEndpoint("10.1.0.2")] }),
      false,
    );
    assertEquals(keysByPort(checkout(cache).get("shop/web") ?? new Map()), {
      "shop/web/TCP": ["10.1.0.1:8080", "10.1.0.2:8080"],
    });
  }
});

Deno.test(
  "ports and endpoints in another order are no change, whatever they lack",
  { permissions: "none" },
  () => {
    const ports: readonly (readonly SlicePort[])[] = [
      [testSlicePort({ name: "b" }), testSlicePort({ name: "a" })],
      [testSlicePort({ name: "b" }), testSlicePort({ name: "a" }), testSlicePort({ name: "c" })],
      [testSlicePort({ port: 90 }), testSlicePort({ port: 80 })],
      [testSlicePort({ name: "a", port: 90 }), testSlicePort({ name: "b", port: 80 })],
      [testSlicePort({ name: "x", port: null }), testSlicePort({ name: "y" })],
      [testSlicePort({ name: null }), testSlicePort({ name: "b" }), testSlicePort({ name: "a" })],
      [testSlicePort({ protocol: "UDP" }), testSlicePort({ protocol: "TCP" })],
    ];
    const endpoints = [
      testSliceEndpoint("10.0.0.2"),
      testSliceEndpoint(""),
      testSliceEndpoint("10.0.0.1"),
    ];
    for (const some of ports) {
      const { cache } = newCache();
      cache.update(testSlice({ ports: some, endpoints }), false);
      for (const first of some.keys()) {
        const turned = [...some.slice(first), ...some.slice(0, first)];
        for (const others of [turned, [...turned].reverse()]) {
          const slice = testSlice({ ports: others, endpoints: [...endpoints].reverse() });
          assertEquals(cache.update(slice, false), false, JSON.stringify(others));
        }
      }
    }
  },
);

Deno.test("endpoints of a slice without a usable port are no problem of a Service", pure, () => {
  const { cache, problems } = newCache();
  cache.update(
    testSlice({ ports: [], endpoints: [testSliceEndpoint("127.0.0.1"), testSliceEndpoint("x")] }),
    false,
  );
  const unreachable = new Map<string, string>();
  assertEquals([checkout(cache).size, problems], [1, []]);
  cache.endpointsOf("shop/web", [testServicePort()], unreachable);
  assertEquals(unreachable.size, 0);
});

Deno.test("problems need no listener", pure, () => {
  const cache = new EndpointSliceCache({ family: "IPv4", nodeName: "node-a" });
  assertEquals(cache.update(testSlice({ addressType: "FQDN" }), false), false);
  const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
  assertEquals(tracker.updateService(undefined, testService({ externalIPs: ["x"] })), true);
});

Deno.test(
  "a Service's slices count before its v1 Endpoints, which count again once the last of their family is gone",
  pure,
  () => {
    const { cache } = newCache();
    const slice = (name: string, ip: string, serviceName = "web", addressType = "IPv4"): EndpointSlice =>
      testSlice({
        name,
        serviceName,
        addressType,
        ports: [testSlicePort({ name: "" })],
        endpoints: [testSliceEndpoint(ip)],
      });
    const found = (service = "shop/web"): string[] => {
      const all = [...checkout(cache).get(service)?.values() ?? []].flat().map(({ ip }) => ip);
      assertEquals(
        cache.listed(service, portsOf(service)).values().reduce((sum, count) => sum + count, 0),
        all.length,
      );
      return all;
    };
    const first = slice("web-1", "10.0.0.3");
    cache.update(slice("endpoints/web/IPv4", "10.0.0.1"), false);
    cache.update(slice("endpoints/web/IPv4/1", "10.0.0.2"), false);
    cache.update(slice("web-names", "a.example", "web", "FQDN"), false);
    cache.update(slice("web-6", "fd00::1", "web", "IPv6"), false);
    assertEquals(found(), ["10.0.0.1", "10.0.0.2"]);
    cache.update(first, false);
    assertEquals(found(), ["10.0.0.3"]);
    cache.update(slice("web-2", "10.0.0.4"), false);
    assertEquals(found(), ["10.0.0.3", "10.0.0.4"]);
    cache.update(slice("web-2", "10.0.0.4"), true);
    // Slice web-1 moves to Service api, whose v1 Endpoints it hides.
    cache.update(slice("endpoints/api/IPv4", "10.0.1.1", "api"), false);
    cache.update(slice("web-1", "10.0.0.3", "api"), false);
    const changed = checkout(cache);
    const ips = (service: string) => [...changed.get(service)?.values() ?? []].flat().map(({ ip }) => ip);
    assertEquals([ips("shop/web"), ips("shop/api")], [["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]]);
    cache.update(slice("endpoints/web/IPv4", "10.0.0.1"), true);
    assertEquals(found(), ["10.0.0.2"]);
  },
);

Deno.test("ports that no Service declares cost less than their keys would", pure, () => {
  const { cache } = newCache();
  const ports = Array.from({ length: 20_000 }, (_, at) => testSlicePort({ name: `p${at}`, port: at + 1 }));
  for (let at = 0; at < 5; at++) cache.update(testSlice({ name: `web-${at}`, ports, endpoints: [] }), false);
  cache.checkout();
  const declared = portsOf("shop/web");
  const least = (work: () => void): number =>
    Math.min(...Array.from({ length: 5 }, () => {
      const startMs = performance.now();
      work();
      return performance.now() - startMs;
    }));
  const looking = least(() => {
    cache.listed("shop/web", declared);
    cache.endpointsOf("shop/web", declared);
  });
  const naming = least(() => {
    const keys = new Set<string>();
    for (let at = 0; at < 10; at++) {
      for (const { name, protocol } of ports) keys.add(servicePortKey("shop/web", name ?? "", protocol));
    }
  });
  assert(looking < naming / 2, `${looking} ms, where the keys take ${naming} ms`);
});
