/** What options and odd objects do to a plan; whole texts and packets of ordinary ones are in tests/golden and tests/flows. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { applyDefaults } from "../../../config/defaults.ts";
import type { FieldValue } from "../../../config/setting.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { exampleState } from "../../../../tests/support/golden.ts";
import { exampleNftablesOptions } from "../../../../tests/support/golden_nftables.ts";
import {
  testEndpoint,
  testNode,
  testPort,
  testService,
  testServicePort,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import {
  chain,
  elements,
  EXTERNAL,
  lists,
  LOCAL,
  plan,
  REMOTE,
} from "../../../../tests/support/nftables_service_rules.ts";
import { planBaseRules } from "./base_rules.ts";
import { elementComment, endpointNames, hashedName } from "./chains.ts";
import { configuredNftables, networksOfFamily, planNftables } from "./plan.ts";
import { assignSlots } from "../store/store.ts";
import type { NftablesOptions } from "./ruleset.ts";

const NONE = { permissions: "none" } as const;
const OPTIONS = exampleNftablesOptions("IPv4");

Deno.test("at a start the API server comes first, then DNS, then the others by name", NONE, () => {
  const service = (namespace: string, name: string, port: number) =>
    testService({ namespace, name, clusterIP: `10.96.0.${name.length}`, ports: [testPort({ port })] });
  const state = exampleState("IPv4", [
    service("zoo", "zebra", 80),
    service("kube-system", "kube-dns", 53),
    service("default", "kubernetes", 443),
    service("apps", "bind", 53),
    service("apps", "ant", 80),
  ]);
  assertEquals([...planNftables(state, "all", OPTIONS).services.keys()], [
    "default/kubernetes",
    "apps/bind",
    "kube-system/kube-dns",
    "apps/ant",
    "zoo/zebra",
  ]);
});

Deno.test("only what changed is planned, by name; what is gone is gone", NONE, () => {
  const state = exampleState("IPv4", [
    testService({ name: "a", clusterIP: "10.96.0.1" }),
    testService({ name: "b", clusterIP: "10.96.0.2" }),
    testService({ name: "c", clusterIP: "10.96.0.3" }),
    testSlice({ name: "a-1", serviceName: "a", endpoints: [testSliceEndpoint("10.244.1.1")] }),
  ]);
  const changed = new Set(["shop/x", "shop/b", "shop/a"]);
  const plan = planNftables(state, changed, OPTIONS);
  assertEquals(plan.all, false);
  assertEquals([...plan.services].map(([name, rules]) => [name, rules === null]), [
    ["shop/a", false],
    ["shop/b", false],
    ["shop/x", true],
  ]);
  assertEquals([...plan.sharedChains.keys()], ["tcp-1"]);
});

Deno.test("state and options must be of one family", NONE, () => {
  assertThrows(
    () => planNftables(exampleState("IPv6", []), "all", OPTIONS),
    RangeError,
    "got IPv6 and IPv4",
  );
});

Deno.test("destinations are counted if that is wanted", NONE, () => {
  const state = exampleState("IPv4", [testService({ name: "a" })]);
  for (const changes of [{}, { trafficCounters: false }, { trafficCounters: true }]) {
    const plan = planNftables(state, "all", { ...OPTIONS, ...changes });
    const counted = plan.services.get("shop/a")?.elements.filter(({ container }) =>
      container.includes("traffic")
    );
    assertEquals(counted?.length, changes.trafficCounters === true ? 2 : 0);
    assertEquals(plan.base.containers.length, changes.trafficCounters === true ? 25 : 21);
    const counting = plan.base.chains.filter(({ rules }) => rules.at(-1)?.endsWith("jump traffic") === true);
    assertEquals(
      counting.map(({ name }) => name),
      changes.trafficCounters === true ? ["filter-input", "filter-forward", "filter-output"] : [],
    );
  }
});

const NODE = testNode({ addresses: [{ type: "InternalIP", address: "192.0.2.10" }] });

function configured(values: Record<string, FieldValue> = {}): ReturnType<typeof configuredNftables> {
  return configuredNftables(applyDefaults(new Map(Object.entries(values))), "IPv4", NODE);
}

Deno.test("node ports are served on the primary address, also when the mode was chosen from auto", {
  permissions: "none",
}, () => {
  for (const mode of ["nftables", "auto"]) {
    const { nodePortAddresses } = configured({ mode }).options;
    assertEquals(nodePortAddresses.cidrs.map(({ text }) => text), ["192.0.2.10/32"], mode);
  }
  const { nodePortAddresses } = configured({ nodePortAddresses: ["198.51.100.0/24"] }).options;
  assertEquals(nodePortAddresses.cidrs.map(({ text }) => text), ["198.51.100.0/24"]);
});

Deno.test("mark and masqueradeAll are those of the nftables section", { permissions: "none" }, () => {
  const { options } = configured({
    "nftables.masqueradeBit": 3,
    "nftables.masqueradeAll": true,
    "iptables.masqueradeBit": 5,
    clusterCIDR: "10.244.0.0/16",
  });
  assertEquals([options.masqueradeMark, options.masqueradeAll], [8, true]);
  assertEquals(options.detector, { kind: "cidr", cidr: "10.244.0.0/16" });
});

Deno.test("networks are told apart by family, and single addresses written as nft prints them", {
  permissions: "none",
}, () => {
  const networks = ["10.96.0.0/16", "10.97.0.1/32", "fd00:10:96::/112", "fd00::1/128"];
  assertEquals(networksOfFamily(networks, "IPv4"), ["10.96.0.0/16", "10.97.0.1"]);
  assertEquals(networksOfFamily(networks, "IPv6"), ["fd00:10:96::/112", "fd00::1"]);
});

function rules(
  chain: string,
  changes: Partial<NftablesOptions> = {},
  family: IpFamily = "IPv4",
): readonly string[] {
  const base = planBaseRules(exampleNftablesOptions(family, changes));
  const found = base.chains.find(({ name }) => name === chain);
  if (found === undefined) throw new RangeError(`No chain ${chain}`);
  return found.rules;
}

const MASQUERADE_OUTSIDE = ' comment "masquerade clusterIP traffic from outside cluster"';
const TO_SERVICE = "ip daddr . meta l4proto . th dport vmap @service-ips";
const TO_NODE_PORT = "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports";

for (
  const [what, changes, expected] of [
    ["by network", {}, [
      `ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["by interface", { detector: { kind: "interface", name: "cni0" } }, [
      `ip daddr @cluster-ips iifname != "cni0" meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["by prefix of interfaces", { detector: { kind: "interfacePrefix", prefix: "veth" } }, [
      `ip daddr @cluster-ips iifname != "veth*" meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["not detected", { detector: { kind: "none" } }, [TO_SERVICE, TO_NODE_PORT]],
    ["all masqueraded, whether detected or not", { masqueradeAll: true, detector: { kind: "none" } }, [
      'ip daddr @cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade all clusterIP traffic"',
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["another mark", { masqueradeMark: 1 }, [
      `ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00000001${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
  ] as readonly [string, Partial<NftablesOptions>, readonly string[]][]
) {
  Deno.test(
    `services, local traffic ${what}`,
    NONE,
    () => assertEquals(rules("services", changes), expected),
  );
}

Deno.test("node ports on all addresses leave out loopback", NONE, () => {
  const all = {
    nodePortAddresses: { matchAll: true, containsIPv4Loopback: true, cidrs: [] },
    nodePortIps: [],
  };
  const match = "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap";
  assertEquals(rules("services", all).at(-1), `${match} @service-nodeports`);
  assertEquals(rules("nodeport-endpoints-check", all), [`${match} @no-endpoint-nodeports`]);
  assertEquals(
    rules("services", all, "IPv6").at(-1),
    "fib daddr type local ip6 daddr != ::1 meta l4proto . th dport vmap @service-nodeports",
  );
  assertEquals(
    planBaseRules(exampleNftablesOptions("IPv4", { ...all, nodePortIps: ["192.0.2.1"] })).elements,
    [],
  );
});

Deno.test("node ports on own addresses leave out loopback", NONE, () => {
  const options = exampleNftablesOptions("IPv4", {
    nodePortIps: ["127.0.0.1", "192.0.2.10", "198.51.100.1"],
  });
  assertEquals(planBaseRules(options).elements, [
    { container: "nodeport-ips", key: "192.0.2.10", value: "" },
    { container: "nodeport-ips", key: "198.51.100.1", value: "" },
  ]);
});

Deno.test("comments are written only where they are taken", NONE, () => {
  const plain = planBaseRules(exampleNftablesOptions("IPv4", { objectComments: false }));
  assertEquals([plain.comment, ...plain.containers.map(({ comment }) => comment)].join(""), "");
});

Deno.test("an address of the other family is refused", NONE, () => {
  for (const ip of ["fd00::1", "x"]) {
    const options = exampleNftablesOptions("IPv4", { nodePortIps: [ip] });
    assertThrows(() => planBaseRules(options), RangeError, "must be an IPv4 address");
  }
});

Deno.test("without a detector pods are not distinguished from the world", NONE, () => {
  const port = testServicePort({ ...EXTERNAL, externalPolicyLocal: true });
  const planned = plan([port], [LOCAL, REMOTE], { detector: { kind: "none" } });
  assertEquals(chain(planned, "external-tcp-2-1")?.length, 3);
  assertEquals(chain(planned, "external-tcp-2-1")?.[0]?.startsWith("fib saddr type local meta mark"), true);
});

Deno.test("lists of own endpoints are made only where a policy and an endpoint want them", NONE, () => {
  const kinds = (
    port: Parameters<typeof testServicePort>[0],
    endpoints: Parameters<typeof plan>[1],
  ): string[] => {
    const planned = plan([testServicePort(port)], endpoints);
    return [...lists(planned), ...planned.rules.chains.map(({ name }) => name)]
      .map((text) => text.split(/ |-[A-Z0-9]{8}-/)[0]!);
  };
  const local = { ...EXTERNAL, externalPolicyLocal: true };
  assertEquals(kinds(local, [LOCAL]).filter((kind) => kind.startsWith("local-")).length, 3);
  assertEquals(kinds(local, [REMOTE]).filter((kind) => kind.startsWith("local-")), []);
  assertEquals(kinds(EXTERNAL, [LOCAL]).filter((kind) => kind.startsWith("local-")), []);
  const sticky = { stickyMaxAgeSeconds: 10 };
  assertEquals(kinds({ ...sticky, internalPolicyLocal: true }, [LOCAL]), ["endpoint", "local"]);
  assertEquals(kinds(sticky, [LOCAL, REMOTE]), ["endpoint", "endpoint", "service"]);
});

Deno.test("an address that is external IP and load-balancer IP at once is one destination", NONE, () => {
  const port = testServicePort({
    externalIPs: ["203.0.113.9", "203.0.113.9"],
    loadBalancerVIPs: ["203.0.113.9"],
    loadBalancerSourceRanges: ["198.18.0.0/15"],
  });
  const planned = plan([port], [REMOTE]);
  assertEquals(elements(planned).map((line) => line.split(" ")[0]), [
    "service-ips",
    "firewall-ips",
    "service-ips",
  ]);
  assertEquals(lists(planned).length, 2);
});

Deno.test(
  "of two ports of one Service with the same number, and of its own IPs, the first has it",
  NONE,
  () => {
    const planned = plan([
      testServicePort({
        key: "shop/web:a/TCP",
        text: "shop/web:a",
        externalIPs: ["10.96.0.10"],
        nodePort: 30080,
      }),
      testServicePort({ key: "shop/web:b/TCP", text: "shop/web:b", nodePort: 30080 }),
    ], [REMOTE]);
    assertEquals(elements(planned), [
      "service-ips 10.96.0.10 . tcp . 80 : goto tcp-1",
      "service-nodeports tcp . 30080 : goto nodeport-masq-tcp-1",
    ]);
    assertEquals(planned.rules.elements.map(({ comment }) => comment), ["shop/web:a", "shop/web:a"]);
    assertEquals(planned.rules.lists.length, 1);
  },
);

Deno.test("counters: one for each destination and way, with or without endpoints", NONE, () => {
  for (const endpoints of [[REMOTE], []]) {
    const planned = plan([testServicePort({ nodePort: 30080 })], endpoints, { trafficCounters: true });
    assertEquals(elements(planned).filter((line) => line.includes("traffic")), [
      "service-traffic-in 10.96.0.10 . tcp . 80 : ",
      "service-traffic-out 10.96.0.10 . tcp . 80 : ",
      "nodeport-traffic-in tcp . 30080 : ",
      "nodeport-traffic-out tcp . 30080 : ",
    ]);
  }
  assertEquals(elements(plan([testServicePort()], [REMOTE], { trafficCounters: false })).length, 1);
});

Deno.test("more endpoints than numgen counts are left out", NONE, () => {
  const many = Array.from(
    { length: 65537 },
    (_, index) => testEndpoint(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`),
  );
  const planned = plan([testServicePort()], many);
  assertEquals(planned.rules.lists[0]?.endpoints.length, 65536);
  assertEquals([...planned.shared.byName.keys()], ["tcp-65536"]);
});

Deno.test(
  "a source range with the node in it lets packets back that have the load balancer's address",
  NONE,
  () => {
    const port = testServicePort({
      loadBalancerVIPs: ["203.0.113.40", "203.0.113.41"],
      loadBalancerSourceRanges: ["192.0.2.0/24"],
    });
    assertEquals(plan([port], [REMOTE]).rules.chains[0]?.rules, [
      "ip saddr 192.0.2.0/24 return",
      "ip saddr 203.0.113.40 return",
      "ip saddr 203.0.113.41 return",
      "drop",
    ]);
    assertEquals(plan([port], [REMOTE], { nodeIp: "198.51.100.99" }).rules.chains[0]?.rules.length, 2);
  },
);

Deno.test("source ranges without load-balancer addresses change nothing", NONE, () => {
  const planned = plan([testServicePort({ loadBalancerSourceRanges: ["192.0.2.0/24"] })], [REMOTE]);
  assertEquals([planned.rules.chains, planned.rules.elements.length], [[], 1]);
});

Deno.test("a source range that is no CIDR is refused", NONE, () => {
  const port = testServicePort({ ...EXTERNAL, loadBalancerSourceRanges: ["x"] });
  assertThrows(() => plan([port], []), RangeError, 'must be a CIDR: got "x"');
});

Deno.test("names stay below what nft takes, and apart from each other", NONE, () => {
  assertEquals(hashedName("x".repeat(231)).length, 240);
  assert(!hashedName("x".repeat(231)).endsWith("..."));
  const long = hashedName("x".repeat(232));
  assertEquals([long.length, long.slice(-4)], [240, "x..."]);
  assert(long !== hashedName("x".repeat(233)));
  const odd = testServicePort({ namespacedName: "n".repeat(200), portName: "p".repeat(200) });
  const names = endpointNames(odd, testEndpoint("fd00::1"));
  for (const name of [names.chain, names.affinitySet]) assert(name.length <= 255, name);
});

Deno.test("what nft would not read does not get into names", NONE, () => {
  const name = hashedName('a b{"c\nd;é/x_y.z-1');
  assertEquals(name.slice(9), "a_b__c_d__/x_y.z-1");
  assert(name !== hashedName("a_b__c_d__/x_y.z-1"));
});

for (
  const [what, text, comment] of [
    ["short", "shop/web:http", "shop/web:http"],
    ["of 128 bytes", "x".repeat(128), "x".repeat(128)],
    ["of 129 bytes", "x".repeat(129), "x".repeat(128)],
    ["of 191 bytes", "x".repeat(191), "x".repeat(128)],
    ["cut at a whole character", "x".repeat(126) + "éé", "x".repeat(126) + "é"],
    ["cut before a character", "x".repeat(127) + "éé", "x".repeat(127)],
    ["cut before one of four bytes", "x".repeat(126) + "😀", "x".repeat(126)],
    ["with what would end it", 'a"b\\c\nd', "a?b?c?d"],
  ] as const
) {
  Deno.test(`comment ${what}`, NONE, () => assertEquals(elementComment(text), comment));
}

const split = (text: string): string[] => text === "" ? [] : text.split("");

for (
  const [what, before, wanted, slots] of [
    ["from nothing", "", "abc", "abc"],
    ["nothing changes", "cab", "abc", "cab"],
    ["one is replaced", "abc", "abd", "abd"],
    ["one is replaced in the middle", "abc", "acd", "adc"],
    ["the first goes: the last takes its place", "abc", "bc", "cb"],
    ["the last goes", "abc", "ab", "ab"],
    ["one comes", "ba", "abc", "bac"],
    ["all are replaced", "abc", "xyz", "xyz"],
    ["all go", "abc", "", ""],
    ["two go, one comes", "abcd", "bcx", "xbc"],
    ["of the same two times, the first stays", "aab", "abc", "acb"],
  ] as const
) {
  Deno.test(`slots: ${what}`, NONE, () => {
    assertEquals(assignSlots(split(before), split(wanted)).join(""), slots);
  });
}

Deno.test("slots: holes are filled", NONE, () => {
  assertEquals(assignSlots([undefined, "b", undefined], ["a", "b", "c"]), ["a", "b", "c"]);
});

Deno.test("slots: the same endpoint twice is refused", NONE, () => {
  assertThrows(() => assignSlots(["c"], ["a", "a"]), RangeError, "must differ");
});
