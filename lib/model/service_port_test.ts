import { assert, assertEquals, assertFalse } from "@std/assert";
import type { IpFamily, Service } from "./objects.ts";
import {
  isExternallyAccessible,
  sameServicePorts,
  servicePorts,
  usesClusterEndpoints,
  usesLocalEndpoints,
} from "./service_port.ts";
import type { ServicePort } from "./state.ts";
import { testPort, testService, testServicePort } from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

/** The only port of the Service, and the problems reported on the way. */
function onlyPort(service: Service, family: IpFamily = "IPv4"): { port: ServicePort; problems: string[] } {
  const problems: string[] = [];
  const ports = servicePorts(service, family, (problem) => problems.push(problem));
  assertEquals(ports.length, 1);
  const [port] = ports;
  assert(port !== undefined);
  return { port, problems };
}

Deno.test("a plain Service has one port with everything at rest", pure, () => {
  assertEquals(servicePorts(testService(), "IPv4"), [testServicePort()]);
});

Deno.test("Services the proxy has nothing to do for have no ports", pure, () => {
  const table: readonly [string, Partial<Service>][] = [
    ["no cluster IP", { clusterIP: "", clusterIPs: [] }],
    ["headless", { clusterIP: "None", clusterIPs: ["None"] }],
    ["headless by the singular field alone", { clusterIP: "None", clusterIPs: ["10.96.0.10"] }],
    ["ExternalName", { type: "ExternalName" }],
    ["other family", { clusterIP: "fd00::1", clusterIPs: ["fd00::1"], ipFamilies: ["IPv6"] }],
    ["no ports", { ports: [] }],
  ];
  for (const [what, fields] of table) {
    const problems: string[] = [];
    assertEquals([what, servicePorts(testService(fields), "IPv4", (problem) => problems.push(problem))], [
      what,
      [],
    ]);
    assertEquals(problems, [], what);
  }
});

Deno.test("each family takes the cluster IP at its own index", pure, () => {
  const table: readonly [string, Partial<Service>, string | null, string | null][] = [
    [
      "IPv4 first",
      { clusterIPs: ["10.96.0.1", "fd00::1"], ipFamilies: ["IPv4", "IPv6"] },
      "10.96.0.1",
      "fd00::1",
    ],
    [
      "IPv6 first",
      { clusterIPs: ["fd00::1", "10.96.0.1"], ipFamilies: ["IPv6", "IPv4"] },
      "10.96.0.1",
      "fd00::1",
    ],
    ["second not yet given", { clusterIPs: ["10.96.0.1"], ipFamilies: ["IPv4", "IPv6"] }, "10.96.0.1", null],
    ["old API server, IPv4", { clusterIP: "10.96.0.1", clusterIPs: [], ipFamilies: [] }, "10.96.0.1", null],
    ["old API server, IPv6", { clusterIP: "fd00::1", clusterIPs: [], ipFamilies: [] }, null, "fd00::1"],
    [
      "odd spelling",
      { clusterIPs: ["010.096.0.1", "FD00:0::1"], ipFamilies: ["IPv4", "IPv6"] },
      "10.96.0.1",
      "fd00::1",
    ],
  ];
  for (const [what, fields, v4, v6] of table) {
    const problems: string[] = [];
    const clusterIP = (family: IpFamily): string | null =>
      servicePorts(testService(fields), family, (problem) => problems.push(problem))[0]?.clusterIP ?? null;
    assertEquals([what, clusterIP("IPv4"), clusterIP("IPv6")], [what, v4, v6]);
    assertEquals(problems, [], what);
  }
});

Deno.test(
  "a loopback cluster IP would take what the node says to itself: it is not served",
  pure,
  () => {
    const table: readonly [IpFamily, string][] = [["IPv4", "127.0.0.1"], ["IPv4", "127.9.9.9"], [
      "IPv6",
      "::1",
    ]];
    for (const [family, text] of table) {
      for (const ipFamilies of [[family], []]) {
        const service = testService({ clusterIP: text, clusterIPs: [text], ipFamilies });
        const invalid: string[] = [];
        const tell = (destination: string, reason: string): number =>
          invalid.push(`${destination}: ${reason}`);
        assertEquals(servicePorts(service, family, () => {}, tell), []);
        assertEquals(invalid, [`cluster IP ${text}: it is a loopback address`]);
      }
    }
  },
);

Deno.test(
  "a cluster IP that is no address, or of another family than it claims, leaves the Service out",
  pure,
  () => {
    const table: readonly Partial<Service>[] = [
      { clusterIP: "10.96", clusterIPs: [], ipFamilies: [] },
      { clusterIP: "10.96.0.1", clusterIPs: ["ten"] },
      { clusterIP: "10.96.0.1", clusterIPs: ["fd00::1"] },
    ];
    for (const fields of table) assertEquals(servicePorts(testService(fields), "IPv4"), []);
  },
);

Deno.test("addresses and ranges are split between the families, in order", pure, () => {
  const service = testService({
    type: "LoadBalancer",
    clusterIP: "10.96.0.10",
    clusterIPs: ["10.96.0.10", "fd00:96::10"],
    ipFamilies: ["IPv4", "IPv6"],
    externalIPs: ["192.0.2.9", "2001:db8::9", "", "192.0.2.010", "  ", "::ffff:192.0.2.11"],
    loadBalancerIngress: [
      { ip: "203.0.113.2", ipMode: "VIP" },
      { ip: "2001:db8:1::1", ipMode: "VIP" },
      { ip: "203.0.113.1", ipMode: "VIP" },
    ],
    loadBalancerSourceRanges: ["10.1.2.3/8", " 2001:db8:5::5/48\t", "", "192.0.2.0/24 "],
  });
  const v4 = onlyPort(service, "IPv4");
  assertEquals(v4.problems, []);
  assertEquals(v4.port.externalIPs, ["192.0.2.9", "192.0.2.10", "192.0.2.11"]);
  assertEquals(v4.port.loadBalancerVIPs, ["203.0.113.2", "203.0.113.1"]);
  assertEquals(v4.port.loadBalancerSourceRanges, ["10.0.0.0/8", "192.0.2.0/24"]);
  const v6 = onlyPort(service, "IPv6");
  assertEquals(v6.port.clusterIP, "fd00:96::10");
  assertEquals(v6.port.externalIPs, ["2001:db8::9"]);
  assertEquals(v6.port.loadBalancerVIPs, ["2001:db8:1::1"]);
  assertEquals(v6.port.loadBalancerSourceRanges, ["2001:db8:5::/48"]);
});

Deno.test("what does not parse is reported once with its field and skipped", pure, () => {
  const { port, problems } = onlyPort(testService({
    type: "LoadBalancer",
    externalIPs: ["192.0.2.1", "192.0.2.300", "fe80::1%eth0"],
    loadBalancerIngress: [{ ip: "lb.example", ipMode: "VIP" }, { ip: "203.0.113.1", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["10.0.0.0", "10.0.0.0/8"],
    ports: [testPort({ name: "a" })],
  }));
  assertEquals(port.externalIPs, ["192.0.2.1"]);
  assertEquals(port.loadBalancerVIPs, ["203.0.113.1"]);
  assertEquals(port.loadBalancerSourceRanges, ["10.0.0.0/8"]);
  assertEquals(problems, [
    'Service shop/web: spec.externalIPs has "192.0.2.300", which is not an IP address; it is skipped',
    'Service shop/web: spec.externalIPs has "fe80::1%eth0", which is not an IP address; it is skipped',
    'Service shop/web: status.loadBalancer.ingress has "lb.example", which is not an IP address; it is skipped',
    'Service shop/web: spec.loadBalancerSourceRanges has "10.0.0.0", which is not a CIDR; it is skipped',
  ]);
});

Deno.test("source ranges of the other family only restrict nothing in this one", pure, () => {
  const service = testService({
    type: "LoadBalancer",
    loadBalancerIngress: [{ ip: "203.0.113.1", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["2001:db8::/32"],
  });
  assertEquals(onlyPort(service).port.loadBalancerSourceRanges, []);
});

Deno.test("a source range of length 0 lifts all restrictions of its family and no other", pure, () => {
  const table: readonly [string[], string[], string[]][] = [
    [["10.0.0.0/8", "0.0.0.0/0"], [], []],
    [["10.0.0.0/0", "10.0.0.0/8"], [], []],
    [["10.0.0.0/8", "::/0"], ["10.0.0.0/8"], []],
    [["0.0.0.0/0", "fd00::/8"], [], ["fd00::/8"]],
  ];
  for (const [ranges, v4, v6] of table) {
    const service = testService({
      type: "LoadBalancer",
      clusterIPs: ["10.96.0.10", "fd00:96::10"],
      ipFamilies: ["IPv4", "IPv6"],
      loadBalancerSourceRanges: ranges,
    });
    assertEquals(onlyPort(service, "IPv4").port.loadBalancerSourceRanges, v4);
    assertEquals(onlyPort(service, "IPv6").port.loadBalancerSourceRanges, v6);
  }
});

Deno.test("load-balancer addresses that are not VIPs leave no trace", pure, () => {
  const { port, problems } = onlyPort(testService({
    type: "LoadBalancer",
    loadBalancerIngress: [
      { ip: "203.0.113.1", ipMode: "Proxy" },
      { ip: "203.0.113.2", ipMode: "VIP" },
      { ip: "203.0.113.3", ipMode: "Other" },
      { ip: "", ipMode: "VIP" },
    ],
  }));
  assertEquals(port.loadBalancerVIPs, ["203.0.113.2"]);
  assertEquals(problems, []);
});

Deno.test("ClientIP affinity carries its timeout, None carries 0", pure, () => {
  const timeout = (fields: Partial<Service>): number =>
    onlyPort(testService(fields)).port.stickyMaxAgeSeconds;
  assertEquals(timeout({ sessionAffinity: "None", affinityTimeoutSeconds: 300 }), 0);
  assertEquals(timeout({ sessionAffinity: "ClientIP", affinityTimeoutSeconds: 300 }), 300);
  assertEquals(timeout({ sessionAffinity: "ClientIP" }), 10800);
});

Deno.test("external policy Local counts only for Services that can be reached from outside", pure, () => {
  const table: readonly [string, Partial<Service>, boolean][] = [
    ["ClusterIP", {}, false],
    ["ClusterIP with external IP", { externalIPs: ["192.0.2.1"] }, true],
    ["ClusterIP with an external IP of the other family", { externalIPs: ["2001:db8::1"] }, true],
    ["NodePort", { type: "NodePort" }, true],
    ["LoadBalancer", { type: "LoadBalancer", healthCheckNodePort: 30000 }, true],
  ];
  for (const [what, fields, expected] of table) {
    const local = onlyPort(testService({ ...fields, externalTrafficPolicy: "Local" })).port;
    assertEquals([what, local.externalPolicyLocal], [what, expected]);
    assertFalse(onlyPort(testService(fields)).port.externalPolicyLocal, what);
  }
  assert(onlyPort(testService({ internalTrafficPolicy: "Local" })).port.internalPolicyLocal);
});

Deno.test("a health check node port needs type LoadBalancer and external policy Local", pure, () => {
  const table: readonly [Partial<Service>, number, number][] = [
    [{ type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 31000 }, 31000, 0],
    [{ type: "LoadBalancer", externalTrafficPolicy: "Cluster", healthCheckNodePort: 31000 }, 0, 0],
    [{ type: "NodePort", externalTrafficPolicy: "Local", healthCheckNodePort: 31000 }, 0, 0],
    [{ externalIPs: ["192.0.2.1"], externalTrafficPolicy: "Local", healthCheckNodePort: 31000 }, 0, 0],
    [{ type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 0 }, 0, 1],
  ];
  for (const [fields, expected, problemCount] of table) {
    const { port, problems } = onlyPort(testService(fields));
    assertEquals([fields, port.healthCheckNodePort, problems.length], [fields, expected, problemCount]);
  }
});

Deno.test("each entry of spec.ports becomes a port of its own, in order", pure, () => {
  const ports = servicePorts(
    testService({
      type: "NodePort",
      ports: [
        testPort({ name: "dns-tcp", port: 53, nodePort: 30053 }),
        testPort({ name: "dns", port: 53, protocol: "UDP", nodePort: 30053 }),
        testPort({ name: "alarm", port: 99, protocol: "SCTP" }),
      ],
    }),
    "IPv4",
  );
  assertEquals(
    ports.map(({ key, text, clusterIP, port, nodePort, protocol }) => [
      key,
      text,
      clusterIP,
      port,
      nodePort,
      protocol,
    ]),
    [
      ["shop/web:dns-tcp/TCP", "shop/web:dns-tcp", "10.96.0.10", 53, 30053, "TCP"],
      ["shop/web:dns/UDP", "shop/web:dns", "10.96.0.10", 53, 30053, "UDP"],
      ["shop/web:alarm/SCTP", "shop/web:alarm", "10.96.0.10", 99, 0, "SCTP"],
    ],
  );
});

Deno.test("of two ports with one name and protocol the last is used and it is said", pure, () => {
  const { port, problems } = onlyPort(
    testService({ ports: [testPort({ name: "a", port: 1 }), testPort({ name: "a", port: 2 })] }),
  );
  assertEquals(port.port, 2);
  assertEquals(problems, [
    'Service shop/web: spec.ports has several ports named "a" with protocol TCP; the last is used',
  ]);
});

Deno.test(
  "which endpoint sets a port needs follows from its policies and addresses of this family",
  pure,
  () => {
    const external: readonly Partial<ServicePort>[] = [
      { nodePort: 30000 },
      { loadBalancerVIPs: ["203.0.113.1"] },
      { externalIPs: ["192.0.2.1"] },
    ];
    const table: readonly [boolean, boolean, boolean, boolean, boolean][] = [
      // internal Local, external Local, accessible → cluster, local
      [false, false, false, true, false],
      [false, false, true, true, false],
      [false, true, false, true, false],
      [false, true, true, true, true],
      [true, false, false, false, true],
      [true, false, true, true, true],
      [true, true, false, false, true],
      [true, true, true, true, true],
    ];
    for (const [internalPolicyLocal, externalPolicyLocal, accessible, cluster, local] of table) {
      for (const fields of accessible ? external : [{}]) {
        const port = testServicePort({ internalPolicyLocal, externalPolicyLocal, ...fields });
        assertEquals(
          [port, isExternallyAccessible(port), usesClusterEndpoints(port), usesLocalEndpoints(port)],
          [port, accessible, cluster, local],
        );
      }
    }
  },
);

Deno.test("two lists of ports differ if any field that rules are made of differs", pure, () => {
  const same = (fields: Partial<ServicePort>): boolean =>
    sameServicePorts([testServicePort()], [testServicePort(fields)]);
  assert(same({}));
  const different: readonly Partial<ServicePort>[] = [
    { key: "shop/web/UDP" },
    { createdAtSeconds: 1 },
    { clusterIP: "10.96.0.11" },
    { port: 81 },
    { nodePort: 30000 },
    { externalIPs: ["192.0.2.1"] },
    { loadBalancerVIPs: ["203.0.113.1"] },
    { loadBalancerSourceRanges: ["10.0.0.0/8"] },
    { stickyMaxAgeSeconds: 10 },
    { externalPolicyLocal: true },
    { internalPolicyLocal: true },
    { healthCheckNodePort: 31000 },
    { ipvs: { scheduler: "lc", graceful: true } },
    { ipvs: { scheduler: "", graceful: false } },
  ];
  for (const fields of different) assertEquals([fields, same(fields)], [fields, false]);
  // Namespace, name, port name, protocol and text are all part of the key.
  const covered = new Set([
    ...different.flatMap((fields) => Object.keys(fields)),
    "namespacedName",
    "text",
    "portName",
    "protocol",
  ]);
  assertEquals(Object.keys(testServicePort()).filter((field) => !covered.has(field)), []);
  assertFalse(sameServicePorts([testServicePort()], []));
  assertFalse(sameServicePorts([], [testServicePort()]));
  const other = testServicePort({ key: "shop/web:b/TCP" });
  assertFalse(sameServicePorts([testServicePort(), other], [other, testServicePort()]));
});

Deno.test("ports of different names or protocols are no duplicates", pure, () => {
  const problems: string[] = [];
  const ports = ["a", "b"].flatMap((name) => [testPort({ name }), testPort({ name, protocol: "UDP" })]);
  const service = testService({ ports: [...ports, testPort({ name: "a", port: 81 })] });
  assertEquals(
    servicePorts(service, "IPv4", (problem) => problems.push(problem)).map(({ key, port }) =>
      `${key} ${port}`
    ),
    ["shop/web:a/TCP 81", "shop/web:a/UDP 80", "shop/web:b/TCP 80", "shop/web:b/UDP 80"],
  );
  assertEquals(problems.length, 1);
});
