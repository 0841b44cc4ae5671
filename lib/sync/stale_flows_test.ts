import { assert, assertEquals } from "@std/assert";
import { FakeConntrack } from "../../tests/support/fake_conntrack.ts";
import {
  type FlowGroup,
  type FlowRules,
  groupFlows,
  isStale,
  NO_UDP_TARGETS,
  planDeletions,
  type UdpTargets,
  udpTargets,
} from "./stale_flows.ts";
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

import fc from "../../tests/support/fast_check.ts";

const NODE_IPS = new Set(["192.0.2.10", "127.0.0.1"]);

function targets(
  frontends: Record<string, readonly string[]>,
  nodePorts: Record<number, readonly string[]> = {},
): UdpTargets {
  const ports = Object.entries(nodePorts).map(([port, keys]) => [`:${port}`, keys] as const);
  return new Map([...Object.entries(frontends), ...ports].map(([key, keys]) => [key, new Set(keys)]));
}

function rules(now: UdpTargets, former = NO_UDP_TARGETS): FlowRules {
  return { targets: now, former, nodePortIps: NODE_IPS };
}

async function groupsOf(fake: FakeConntrack, family = "ipv4"): Promise<readonly FlowGroup[]> {
  return groupFlows((await fake.run(["conntrack", "-L", "-p", "udp", "-f", family])).stdout);
}

const DNS = targets({ "10.96.0.10:53": ["10.244.1.3:53"], "10.96.0.11:53": [] }, {
  30053: ["10.244.1.3:53"],
});
const FORMER = targets({ "10.96.0.9:53": ["10.244.1.3:53"] }, { 30054: ["10.244.1.3:53"] });
const CLIENT = "10.244.0.5:4000";

const CASES: readonly [
  name: string,
  destination: string,
  replySource: string,
  stale: boolean,
  zone?: string,
][] = [
  ["to a live endpoint", "10.96.0.10:53", "10.244.1.3:53", false],
  ["to an endpoint that is gone", "10.96.0.10:53", "10.244.9.9:53", true],
  ["to a live endpoint's former port", "10.96.0.10:53", "10.244.1.3:5353", true],
  ["never translated", "10.96.0.10:53", "10.96.0.10:53", true],
  ["to another port of the cluster IP", "10.96.0.10:54", "10.96.0.10:54", false],
  ["to an endpoint that is gone, of a Service without any", "10.96.0.11:53", "10.244.9.9:53", true],
  ["never translated, to a Service without endpoints", "10.96.0.11:53", "10.96.0.11:53", true],
  ["node port, to a live endpoint", "192.0.2.10:30053", "10.244.1.3:53", false],
  ["node port, to an endpoint that is gone", "192.0.2.10:30053", "10.244.9.9:53", true],
  ["node port, never translated", "192.0.2.10:30053", "192.0.2.10:30053", true],
  ["node port on loopback, to an endpoint that is gone", "127.0.0.1:30053", "10.244.9.9:53", true],
  ["another host's port of the same number", "198.51.100.7:30053", "198.51.100.7:30053", false],
  ["another host's port of the same number, translated", "198.51.100.7:30053", "10.0.0.1:30053", false],
  ["former frontend, to its former endpoint", "10.96.0.9:53", "10.244.1.3:53", true],
  ["former frontend, somewhere else", "10.96.0.9:53", "10.244.9.9:53", false],
  ["former frontend, never translated", "10.96.0.9:53", "10.96.0.9:53", false],
  ["former node port, to its former endpoint", "192.0.2.10:30054", "10.244.1.3:53", true],
  ["former node port of another host", "198.51.100.7:30054", "10.244.1.3:53", false],
  ["straight to an endpoint", "10.244.1.3:53", "10.244.1.3:53", false],
  ["straight to an unknown address", "10.244.9.9:53", "10.244.9.9:53", false],
  ["in another zone, never translated", "10.96.0.10:53", "10.96.0.10:53", false, "5"],
  ["in another zone, to an endpoint that is gone", "10.96.0.10:53", "10.244.9.9:53", true, "5"],
];

Deno.test("flows are stale that go where no flow would go now", { permissions: "none" }, async () => {
  for (const [name, destination, replySource, stale, zone] of CASES) {
    const fake = new FakeConntrack();
    fake.add(CLIENT, destination, replySource, zone === undefined ? {} : { zone });
    const groups = await groupsOf(fake);
    assertEquals(groups.map((group) => isStale(group, rules(DNS, FORMER))), [stale], name);
  }
});

Deno.test("IPv6 flows are judged by the same addresses", { permissions: "none" }, async () => {
  const fake = new FakeConntrack();
  fake.add("[fd00::5]:4000", "[fd00:96::a]:53", "[fd00:244::3]:53");
  fake.add("[fd00::6]:4000", "[fd00:96::a]:53", "[fd00:244::4]:53");
  const groups = await groupsOf(fake, "ipv6");
  const dns = rules(targets({ "[fd00:96::a]:53": ["[fd00:244::3]:53"] }));
  assertEquals(groups.map((group) => isStale(group, dns)), [false, true]);
  assertEquals(planDeletions("IPv6", groups, dns).map(({ options }) => options.join(" ")), [
    "-p udp -f ipv6 --reply-src fd00:244::4 --reply-port-src 53",
  ]);
});

async function plan(fake: FakeConntrack, wanted: FlowRules): Promise<string[]> {
  const deletions = planDeletions("IPv4", await groupsOf(fake), wanted);
  return deletions.map(({ options, flows }) => `${options.join(" ")} (${flows})`);
}

Deno.test("all flows to an endpoint that is gone are one deletion", { permissions: "none" }, async () => {
  const fake = new FakeConntrack();
  for (let i = 0; i < 5; i++) fake.add(`10.244.0.5:${4000 + i}`, "10.96.0.10:53", "10.244.9.9:53");
  fake.add("10.244.0.5:5000", "192.0.2.10:30053", "10.244.9.9:53");
  fake.add("10.244.0.5:6000", "10.96.0.10:53", "10.244.1.3:53");
  assertEquals(await plan(fake, rules(DNS)), [
    "-p udp -f ipv4 --reply-src 10.244.9.9 --reply-port-src 53 (6)",
  ]);
});

Deno.test("a deletion names the destination where its endpoint still gets other flows", {
  permissions: "none",
}, async () => {
  const fake = new FakeConntrack();
  // Removed from one Service, still used by another.
  fake.add("10.244.0.5:4000", "10.96.0.11:53", "10.244.1.3:53");
  assertEquals(await plan(fake, rules(DNS)), [
    "-p udp -f ipv4 --orig-dst 10.96.0.11 --orig-port-dst 53 --reply-src 10.244.1.3 --reply-port-src 53 (1)",
  ]);
  const asked = new FakeConntrack();
  // Gone from the Service, but a client talks to it without one.
  asked.add("10.244.0.5:4000", "10.96.0.10:53", "10.244.9.9:53");
  asked.add("10.244.0.6:4000", "10.244.9.9:53");
  assertEquals(await plan(asked, rules(DNS)), [
    "-p udp -f ipv4 --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.9.9 --reply-port-src 53 (1)",
  ]);
});

const address = (ips: readonly string[], ports: readonly number[]): fc.Arbitrary<string> =>
  fc.tuple(fc.constantFrom(...ips), fc.constantFrom(...ports)).map(([ip, port]) => `${ip}:${port}`);
const endpoint = address(["10.244.1.3", "10.244.1.4", "10.244.9.9"], [53, 5353]);
const frontend = address(["10.96.0.10", "192.0.2.10", "203.0.113.1"], [53, 30053]);
const someTargets = fc.record({
  frontends: fc.dictionary(frontend, fc.array(endpoint, { maxLength: 3 }), { maxKeys: 3 }),
  nodePorts: fc.array(endpoint, { maxLength: 2 }),
}).map(({ frontends, nodePorts }) => targets(frontends, nodePorts.length === 0 ? {} : { 30053: nodePorts }));
const someFlow = fc.record({
  port: fc.integer({ min: 1000, max: 1500 }),
  to: fc.oneof(frontend, endpoint),
  reply: fc.option(endpoint),
  zone: fc.constantFrom({}, {}, {}, { zone: "5" }, { origZone: "7" }, { replyZone: "7" }),
});

Deno.test("deletions remove every stale flow of a dump and no other", { permissions: "none" }, async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(someFlow, { maxLength: 20 }),
      someTargets,
      someTargets,
      async (flows, now, former) => {
        const wanted = rules(now, former);
        const [before, expected] = [new FakeConntrack(), new FakeConntrack()];
        for (const { port, to, reply, zone } of flows) {
          const flow = [`10.0.0.1:${port}`, to, reply ?? to, zone] as const;
          before.add(...flow);
          const alone = new FakeConntrack();
          alone.add(...flow);
          const [group] = await groupsOf(alone);
          assert(group !== undefined);
          if (!isStale(group, wanted)) expected.add(...flow);
        }
        const found = before.flows.length - expected.flows.length;
        const deletions = planDeletions("IPv4", await groupsOf(before), wanted);
        assertEquals(deletions.reduce((total, { flows }) => total + flows, 0), found);
        const stdin = deletions.map(({ options }) => `-D ${options.join(" ")}\n`).join("");
        await before.run(["conntrack", "--load-file", "-"], { stdin });
        assertEquals(before.flows, expected.flows);
        // A second look at the remaining flows finds nothing to delete.
        assertEquals(planDeletions("IPv4", await groupsOf(before), wanted), []);
      },
    ),
    { numRuns: 300 },
  );
});

const UDP = testPort({ protocol: "UDP", port: 53 });

function targetsOf(service: Partial<Service>, endpoints: readonly SliceEndpoint[]): Record<string, string[]> {
  const tracker = new ChangeTracker({ family: "IPv4", node: NODE_A });
  tracker.updateService(undefined, testService({ ports: [UDP], ...service }));
  const ports = [testSlicePort({ protocol: "UDP", port: 5353 }), testSlicePort({ port: 8080 })];
  tracker.updateEndpointSlice(testSlice({ ports, endpoints }), false);
  return plain(udpTargets(tracker.checkout().state));
}

function plain(targets: UdpTargets): Record<string, string[]> {
  return Object.fromEntries([...targets].map(([key, keys]) => [key, [...keys]]));
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
    assertEquals(targetsOf({}, endpoints), { "10.96.0.10:53": keys }, name);
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
  assertEquals(targetsOf(service, [testSliceEndpoint(A)]), {
    "10.96.0.10:53": keys,
    "192.0.2.7:53": keys,
    "192.0.2.8:53": keys,
    ":30053": keys,
  });
});

Deno.test("traffic policies do not narrow where live flows may lead", { permissions: "none" }, () => {
  const service = { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" } as const;
  assertEquals(targetsOf(service, [testSliceEndpoint(A, { nodeName: "elsewhere" })]), {
    "10.96.0.10:53": [`${A}:5353`],
  });
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

/** `destination <- replySource xFlows [zone]` */
function texts(groups: readonly FlowGroup[]): string[] {
  return groups.map(({ destination, replySource, flows, zone }) =>
    [`${destination} <- ${replySource} x${flows}`, ...zone].join(" ")
  );
}

// Lines of conntrack 1.4.7 on kernel 6.18, as they came.
const REPLIED =
  "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.1.3 dst=10.0.0.5 sport=53 dport=40000 mark=0 use=1";
const LINES: readonly [name: string, line: string, group: string][] = [
  ["answered", REPLIED, "10.96.0.10:53 <- 10.244.1.3:53 x1"],
  [
    "never answered, never translated",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40001 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=40001 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1",
  ],
  [
    "assured, with counters",
    "udp      17 119 src=10.244.0.2 dst=10.96.0.10 sport=4000 dport=53 packets=3 bytes=93 src=10.244.0.3 dst=10.244.0.2 sport=5353 dport=4000 packets=3 bytes=90 [ASSURED] mark=0 use=1",
    "10.96.0.10:53 <- 10.244.0.3:5353 x1",
  ],
  [
    "in a zone",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=2 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=2 mark=0 zone=5 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --zone 5",
  ],
  [
    "in a zone of its original direction",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=3 dport=53 zone-orig=7 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=3 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --orig-zone 7",
  ],
  [
    "in a zone of its reply direction",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=4 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=4 zone-reply=8 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --reply-zone 8",
  ],
  [
    "IPv6",
    "udp      17 299 src=fd00::6 dst=fd00:96::10 sport=40001 dport=53 [UNREPLIED] src=fd00:244::3 dst=fd00::6 sport=5353 dport=40001 mark=0 use=1",
    "[fd00:96::10]:53 <- [fd00:244::3]:5353 x1",
  ],
  [
    "with the names of layer 3 and 4 (-o extended)",
    "ipv4     2 udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.1.3 dst=10.0.0.5 sport=53 dport=40000 mark=0 use=1",
    "",
  ],
  [
    "of UDP-Lite",
    "udplite  136 299 src=10.0.0.6 dst=10.96.0.10 sport=40001 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.6 sport=53 dport=40001 mark=0 use=1",
    "",
  ],
  [
    "of TCP",
    "tcp      6 431999 ESTABLISHED src=192.0.2.2 dst=192.0.2.1 sport=22 dport=53 src=192.0.2.1 dst=192.0.2.2 sport=53 dport=22 [ASSURED] mark=0 use=1",
    "",
  ],
];

Deno.test("a line of conntrack tells destination, reply source and zone", { permissions: "none" }, () => {
  for (const [name, line, group] of LINES) {
    assertEquals(texts(groupFlows(`${line}\n`)), group === "" ? [] : [group], name);
  }
});

Deno.test("flows to the same destination, answered from the same address, are one group", {
  permissions: "none",
}, () => {
  const others = [
    REPLIED.replaceAll("40000", "40001"),
    REPLIED.replaceAll("10.0.0.5", "10.0.0.6"),
    REPLIED.replace("dport=53", "dport=54"),
    REPLIED.replace("src=10.244.1.3", "src=10.244.1.4"),
    REPLIED.replace("sport=53", "sport=5353"),
    REPLIED.replace("mark=0", "mark=0 zone=1"),
  ];
  assertEquals(texts(groupFlows([REPLIED, ...others].join("\n"))), [
    "10.96.0.10:53 <- 10.244.1.3:53 x3",
    "10.96.0.10:54 <- 10.244.1.3:53 x1",
    "10.96.0.10:53 <- 10.244.1.4:53 x1",
    "10.96.0.10:53 <- 10.244.1.3:5353 x1",
    "10.96.0.10:53 <- 10.244.1.3:53 x1 --zone 1",
  ]);
});

Deno.test("a dump that was cut off yields its complete lines", { permissions: "none" }, () => {
  const cut = REPLIED.slice(0, REPLIED.indexOf("dport=40000"));
  assertEquals(texts(groupFlows(`${REPLIED}\n${cut}`)), ["10.96.0.10:53 <- 10.244.1.3:53 x1"]);
  assertEquals(groupFlows(""), []);
});
