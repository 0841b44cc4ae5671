import { assert, assertEquals } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import { FakeConntrack } from "../../tests/support/fake_conntrack.ts";
import {
  type FlowGroup,
  type FlowRules,
  groupFlows,
  isStale,
  NO_UDP_TARGETS,
  planDeletions,
  type UdpTargets,
} from "./stale_flows.ts";

const NODE_IPS = new Set(["192.0.2.10", "127.0.0.1"]);

function targets(
  frontends: Record<string, readonly string[]>,
  nodePorts: Record<number, readonly string[]> = {},
): UdpTargets {
  return {
    frontends: new Map(Object.entries(frontends).map(([key, keys]) => [key, new Set(keys)])),
    nodePorts: new Map(Object.entries(nodePorts).map(([key, keys]) => [Number(key), new Set(keys)])),
  };
}

function rules(now: UdpTargets, former = NO_UDP_TARGETS): FlowRules {
  return { targets: now, former, isNodeAddress: (ip) => NODE_IPS.has(ip) };
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
  ["straight to an address nobody has", "10.244.9.9:53", "10.244.9.9:53", false],
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

Deno.test("deletions with most flows come first, and none means none", { permissions: "none" }, async () => {
  const fake = new FakeConntrack();
  fake.add("10.244.0.5:1", "10.96.0.10:53");
  fake.add("10.244.0.5:2", "10.96.0.10:53", "10.244.9.9:53");
  fake.add("10.244.0.5:3", "10.96.0.10:53", "10.244.9.9:53");
  assertEquals(await plan(fake, rules(DNS)), [
    "-p udp -f ipv4 --reply-src 10.244.9.9 --reply-port-src 53 (2)",
    "-p udp -f ipv4 --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.96.0.10 --reply-port-src 53 (1)",
  ]);
  assertEquals(planDeletions("IPv4", [], rules(DNS)), []);
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
        // What is left is what a second look would leave.
        assertEquals(planDeletions("IPv4", await groupsOf(before), wanted), []);
      },
    ),
    { numRuns: 300 },
  );
});
