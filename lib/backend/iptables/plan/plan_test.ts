/** What options and odd objects do to a plan; whole texts and packets of ordinary ones are in tests/golden and tests/flows. */
import fc from "../../../../tests/support/fast_check.ts";
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleOptions, exampleState, exampleTracker } from "../../../../tests/support/golden.ts";
import { parseIp } from "../../../model/ip.ts";
import { nodePortAddresses } from "../../../model/node.ts";
import type { EndpointSlice } from "../../../model/objects.ts";
import {
  testEndpoint,
  testPort,
  testService,
  testServicePort,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import { formatMark } from "../../planning.ts";
import { fullSync, NOTHING_HELD } from "../store/full_sync.ts";
import { planBaseRules, usesLocalhostNodePorts } from "./base_rules.ts";
import { isServiceChain } from "./chains.ts";
import { planIptables, renderPlan } from "./plan.ts";
import type { IptablesOptions } from "./ruleset.ts";
import { formatProbability, planService } from "./service_rules.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };
const OPTIONS = exampleOptions("IPv4");

Deno.test(
  "the plan depends on the objects, not on the order or the way they came",
  { permissions: PURE },
  () => {
    const clusterAndOrder = ARBITRARY_CLUSTER.chain((cluster) =>
      fc.tuple(
        fc.constant(cluster),
        fc.shuffledSubarray([...cluster], { minLength: cluster.length }),
        ARBITRARY_CLUSTER,
      )
    );
    fc.assert(
      fc.property(clusterAndOrder, ([cluster, shuffled, detour]) => {
        const wanted = renderPlan(planIptables(exampleState("IPv4", cluster), "all", OPTIONS));
        assertEquals(renderPlan(planIptables(exampleState("IPv4", shuffled), "all", OPTIONS)), wanted);
        const tracker = exampleTracker("IPv4", detour);
        tracker.checkout();
        offerChanges(tracker, detour, cluster);
        assertEquals(renderPlan(planIptables(tracker.checkout().state, "all", OPTIONS)), wanted);
      }),
      { numRuns: 60 },
    );
  },
);

Deno.test("rules are counted as they are written", { permissions: PURE }, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, (cluster) => {
      const plan = planIptables(exampleState("IPv4", cluster), "all", OPTIONS);
      const [filter, nat] = renderPlan(plan).split("*nat").map((text) => text.match(/^-A /gm)?.length ?? 0);
      const { store } = fullSync(plan, NOTHING_HELD, { family: "IPv4" });
      assertEquals(store.ruleCounts, { filter: filter!, nat: nat! });
    }),
    { numRuns: 30 },
  );
});

Deno.test(
  "a plan of some Services has only those, and null for one that is gone",
  { permissions: PURE },
  () => {
    const state = exampleState("IPv4", [
      testService(),
      testService({ name: "cart", clusterIP: "10.96.0.11" }),
    ]);
    const plan = planIptables(state, new Set(["shop/web", "shop/gone"]), OPTIONS);
    assertEquals([...plan.services.keys()], ["shop/gone", "shop/web"]);
    assertEquals(plan.services.get("shop/gone"), null);
    assert(plan.services.get("shop/web") !== null);
    assert(!plan.all);
    assertThrows(() => fullSync(plan, NOTHING_HELD, { family: "IPv4" }), TypeError, "all Services");
  },
);

const sliceOf = (count: number): EndpointSlice =>
  testSlice({
    endpoints: Array.from(
      { length: count },
      (_, index) =>
        testSliceEndpoint(`10.1.${index >> 8}.${index & 255}`, { ready: index === 0, serving: index === 0 }),
    ),
  });

for (const [count, comments] of [[1000, true], [1001, false]] as const) {
  Deno.test(`${count} endpoints, ready or not: ${comments ? "" : "no "}comments on the endpoint rules`, {
    permissions: PURE,
  }, () => {
    const state = exampleState("IPv4", [testService({ ports: [testPort()] }), sliceOf(count)]);
    const text = renderPlan(planIptables(state, "all", OPTIONS));
    assertEquals(text.includes(`"shop/web -> 10.1.0.0:8080"`), comments);
    assert(text.includes(`"shop/web cluster IP"`));
  });
}

Deno.test("options of the other family are refused", { permissions: PURE }, () => {
  assertThrows(() => planIptables(exampleState("IPv6", []), "all", OPTIONS), RangeError, "one family");
});

function options(changes: Partial<IptablesOptions> = {}): IptablesOptions {
  const family = changes.family ?? "IPv4";
  return {
    family,
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "none" },
    localhostNodePorts: true,
    nodePortAddresses: nodePortAddresses(family, null),
    nodePortIps: [],
    nodeIp: family === "IPv4" ? "192.0.2.10" : "2001:db8::10",
    dropInvalid: true,
    nfacct: false,
    ...changes,
  };
}

const TAIL =
  `-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"`;
const LAN4 = nodePortAddresses("IPv4", ["192.0.2.0/24"]);
const LAN6 = nodePortAddresses("IPv6", ["2001:db8::/64"]);
const LOOPBACK4 = nodePortAddresses("IPv4", ["127.0.0.0/8", "192.0.2.0/24"]);

for (
  const [name, changes, tail] of [
    ["all, IPv4, localhost", {}, [`${TAIL} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`]],
    ["all by a zero CIDR", { nodePortAddresses: nodePortAddresses("IPv4", ["0.0.0.0/0"]) }, [
      `${TAIL} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`,
    ]],
    ["all, IPv4, no localhost", { localhostNodePorts: false }, [
      `${TAIL} -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS`,
    ]],
    ["all, IPv6", { family: "IPv6" as const }, [
      `${TAIL} -m addrtype --dst-type LOCAL ! -d ::1/128 -j KUBE-NODEPORTS`,
    ]],
    ["networks: a rule per address", { nodePortAddresses: LAN4, nodePortIps: ["192.0.2.1", "192.0.2.7"] }, [
      `${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`,
      `${TAIL} -d 192.0.2.7 -j KUBE-NODEPORTS`,
    ]],
    ["networks without an address here", { nodePortAddresses: LAN4 }, []],
    ["loopback listed: kept where localhost node ports work", {
      nodePortAddresses: LOOPBACK4,
      nodePortIps: ["127.0.0.1", "192.0.2.1"],
    }, [`${TAIL} -d 127.0.0.1 -j KUBE-NODEPORTS`, `${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`]],
    ["loopback listed, localhost node ports off: left out", {
      localhostNodePorts: false,
      nodePortAddresses: LOOPBACK4,
      nodePortIps: ["127.0.0.1", "192.0.2.1"],
    }, [`${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`]],
    ["IPv6 loopback: always left out", {
      family: "IPv6" as const,
      nodePortAddresses: LAN6,
      nodePortIps: ["::1", "2001:db8::1"],
    }, [`${TAIL} -d 2001:db8::1 -j KUBE-NODEPORTS`]],
  ] as const
) {
  Deno.test(`node-port tail: ${name}`, { permissions: "none" }, () => {
    assertEquals(planBaseRules(options(changes)).tail.nat, [...tail]);
  });
}

Deno.test("a node-port address of the other family is refused", { permissions: "none" }, () => {
  const wrong = options({ nodePortAddresses: LAN4, nodePortIps: ["2001:db8::1"] });
  assertThrows(() => planBaseRules(wrong), RangeError, "2001:db8::1");
});

for (
  const [name, changes, uses] of [
    ["IPv4 by default", {}, true],
    ["switched off", { localhostNodePorts: false }, false],
    ["IPv6", { family: "IPv6" as const }, false],
    ["only LAN addresses", { nodePortAddresses: LAN4 }, false],
    ["loopback among the addresses", { nodePortAddresses: LOOPBACK4 }, true],
  ] as const
) {
  Deno.test(`localhost node ports: ${name}`, { permissions: "none" }, () => {
    assertEquals(usesLocalhostNodePorts(options(changes)), uses);
    const { chains, head } = planBaseRules(options(changes));
    assertEquals(head.filter.length, uses ? 1 : 0);
    assertEquals(chains.filter.includes("KUBE-FIREWALL"), uses);
  });
}

Deno.test("static rules follow the options", { permissions: PURE }, () => {
  const rules = (changes: Partial<IptablesOptions>): string => {
    const { head, tail } = planBaseRules(options(changes));
    return [...head.nat, ...tail.filter].join("\n");
  };
  assert(rules({ masqueradeMark: 1 << 20 }).includes("-m mark ! --mark 0x00100000/0x00100000 -j RETURN"));
  assert(rules({}).includes("INVALID") && !rules({ dropInvalid: false }).includes("INVALID"));
});

Deno.test("a source range that is none is refused, by name", { permissions: PURE }, () => {
  const port = testServicePort({
    loadBalancerVIPs: ["203.0.113.1"],
    loadBalancerSourceRanges: ["everywhere"],
  });
  const endpoints = new Map([[port.key, [testEndpoint("10.244.1.1")]]]);
  const context = {
    node: { name: "node-a", zone: "" },
    masqueradeAll: false,
    detector: { kind: "none" as const },
    nodeIp: parseIp("192.0.2.10"),
    large: false,
    countsLocalhostNodePorts: false,
  };
  assertThrows(
    () => planService([port], endpoints, context),
    RangeError,
    `Service port "shop/web" must be a CIDR: got "everywhere"`,
  );
});

Deno.test("a mark is one bit of 32", { permissions: PURE }, () => {
  assertEquals([formatMark(1), formatMark(2 ** 31)], ["0x00000001", "0x80000000"]);
  for (const mark of [0, -1, 3, 0.5, 2 ** 32, NaN]) {
    assertThrows(() => formatMark(mark), RangeError, "one bit");
  }
});

Deno.test("probabilities are written as kube-proxy writes them", { permissions: PURE }, () => {
  const texts = { 3: "0.3333333333", 2047: "0.0004885198", 2048: "0.0004882812", 2049: "0.0004880429" };
  for (const [count, text] of Object.entries(texts)) assertEquals(formatProbability(Number(count)), text);
});

Deno.test("chains of Services are known by their names", { permissions: PURE }, () => {
  const names = ["KUBE-XLB-A", "KUBE-FW-A", "KUBE-FIREWALL", "KUBE-SERVICES", "CILIUM-KUBE-SVC-A"];
  assertEquals(names.filter(isServiceChain), ["KUBE-XLB-A", "KUBE-FW-A"]);
});

Deno.test("a Service that is gone has no text in a plan", { permissions: PURE }, () => {
  const plan = planIptables(exampleState("IPv4", [testService()]), "all", OPTIONS);
  const withGone = { ...plan, services: new Map([["shop/gone", null], ...plan.services]) };
  assertEquals(renderPlan(withGone), renderPlan(plan));
});
