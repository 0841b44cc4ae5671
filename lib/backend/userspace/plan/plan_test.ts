import { assertEquals, assertThrows } from "@std/assert";
import fc from "../../../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleState } from "../../../../tests/support/golden.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import type { Service } from "../../../model/objects.ts";
import { parseIptablesSave } from "../../../netfilter/iptables_save.ts";
import { jumpsByChain } from "../../../netfilter/iptables_jumps.ts";
import { adoptedPorts } from "../diff/held_rules.ts";
import { changeTexts, type RulesByService, rulesOf, TABLES, tableText } from "../diff/rules.ts";
import { JUMPS, jumpsOf } from "./chains.ts";
import { planUserspace, type UserspaceOptions } from "./plan.ts";
import type { PortalRule } from "./ruleset.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };

const OPTIONS: UserspaceOptions = {
  family: "IPv4",
  listenIp: null,
  nodeIp: "192.0.2.10",
  nodePortIps: null,
  detector: { kind: "cidr", cidr: "10.244.0.0/16" },
  has: { dnat: true, physdev: true, firewall: true },
};

/** The rules of one Service whose portals have these ports. */
function rules(service: Partial<Service>, options: Partial<UserspaceOptions> = {}): string[] {
  return allRules(service, options).filter((rule) => !rule.includes("FIREWALL"));
}

function allRules(service: Partial<Service>, options: Partial<UserspaceOptions> = {}): string[] {
  const state = exampleState("IPv4", [
    testService(service),
    testSlice({
      endpoints: [
        testSliceEndpoint("10.244.1.2", { nodeName: "node-a" }),
        testSliceEndpoint("10.244.2.2", { nodeName: "node-b" }),
      ],
    }),
  ]);
  const plan = planUserspace(state, "all", { ...OPTIONS, ...options }).get("shop/web");
  const ports = new Map(plan?.portals.map(({ id, endpoints }) => [id, endpoints.length]) ?? []);
  // The port tells how many endpoints are behind it.
  return rulesOf(plan?.doorways ?? [], (id) => 40_000 + ports.get(id)!)
    .map(({ table, chain, rule }) =>
      `${table} ${chain} ${rule.replace(/-m comment --comment shop\/web -p tcp -m tcp (?:--dport )?/, "")}`
    );
}

Deno.test("nobody reaches a portal by its port, where the node's iptables has what that takes", {
  permissions: PURE,
}, () => {
  const firewall = (service: Partial<Service>, options: Partial<UserspaceOptions> = {}): string[] =>
    allRules(service, options).filter((rule) => rule.includes("FIREWALL"));
  assertEquals(firewall({}), ["filter KUBE-PORTALS-FIREWALL 40002 -j REJECT"]);
  assertEquals(
    firewall({ type: "NodePort", ports: [testPort({ nodePort: 30_080 })], externalTrafficPolicy: "Local" }),
    [
      "filter KUBE-PORTALS-FIREWALL 40002 -j REJECT",
      "filter KUBE-PORTALS-FIREWALL 40001 -j REJECT",
    ],
  );
  assertEquals(firewall({}, { listenIp: "192.0.2.99" }), [
    "filter KUBE-PORTALS-FIREWALL -d 192.0.2.99/32 --dport 40002 -j REJECT",
  ], "another program may have the port of another address");
  assertEquals(firewall({}, { has: { dnat: true, physdev: true, firewall: false } }), []);
  assertEquals(
    JUMPS.at(-1)?.target,
    "KUBE-PORTALS-FIREWALL",
    "it stands first in INPUT, before others accept",
  );
  assertEquals(
    jumpsOf({ firewall: false }).map(({ target }) => target).includes("KUBE-PORTALS-FIREWALL"),
    false,
  );
});

Deno.test("a cluster IP is redirected, and the node's own packets are led to its address", {
  permissions: PURE,
}, () => {
  assertEquals(rules({}), [
    "nat KUBE-PORTALS-CONTAINER 80 -d 10.96.0.10/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-HOST 80 -d 10.96.0.10/32 -j DNAT --to-destination 192.0.2.10:40002",
  ]);
  assertEquals(rules({}, { listenIp: "192.0.2.99" }), [
    "nat KUBE-PORTALS-CONTAINER 80 -d 10.96.0.10/32 -j DNAT --to-destination 192.0.2.99:40002",
    "nat KUBE-PORTALS-HOST 80 -d 10.96.0.10/32 -j DNAT --to-destination 192.0.2.99:40002",
  ]);
  const without = rules({}, { has: { dnat: false, physdev: false, firewall: false } });
  assertEquals(without[1], "nat KUBE-PORTALS-HOST 80 -d 10.96.0.10/32 -j REDIRECT --to-ports 40002");
});

Deno.test("node ports, external and load-balancer IPs have ways of their own", { permissions: PURE }, () => {
  const service: Partial<Service> = {
    type: "LoadBalancer",
    ports: [testPort({ nodePort: 30_080 })],
    externalIPs: ["203.0.113.5"],
    loadBalancerIngress: [{ ip: "198.51.100.7", ipMode: "VIP" }],
    loadBalancerSourceRanges: ["203.0.113.0/24", "192.0.2.0/24"],
  };
  assertEquals(rules(service).slice(2), [
    "nat KUBE-PORTALS-CONTAINER 80 -d 203.0.113.5/32 -m physdev ! --physdev-is-in -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-CONTAINER 80 -d 203.0.113.5/32 -m addrtype --dst-type LOCAL -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-HOST 80 -d 203.0.113.5/32 -m addrtype --dst-type LOCAL -j DNAT --to-destination 192.0.2.10:40002",
    "nat KUBE-PORTALS-CONTAINER 80 -s 203.0.113.0/24 -d 198.51.100.7/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-CONTAINER 80 -s 192.0.2.0/24 -d 198.51.100.7/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-HOST 80 -d 198.51.100.7/32 -j DNAT --to-destination 192.0.2.10:40002",
    "nat KUBE-NODEPORT-CONTAINER 30080 -j REDIRECT --to-ports 40002",
    "nat KUBE-NODEPORT-HOST 30080 -j DNAT --to-destination 192.0.2.10:40002",
    "filter KUBE-NODEPORT-NON-LOCAL 40002 -m state --state NEW -j ACCEPT",
  ]);
  const some = rules(service, {
    nodePortIps: ["192.0.2.10"],
    has: { dnat: true, physdev: false, firewall: false },
  });
  assertEquals(some.filter((rule) => /203.0.113.5|NODEPORT/.test(rule)), [
    "nat KUBE-PORTALS-CONTAINER 80 -d 203.0.113.5/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-PORTALS-HOST 80 -d 203.0.113.5/32 -m addrtype --dst-type LOCAL -j DNAT --to-destination 192.0.2.10:40002",
    "nat KUBE-NODEPORT-CONTAINER 30080 -d 192.0.2.10/32 -j REDIRECT --to-ports 40002",
    "nat KUBE-NODEPORT-HOST 30080 -d 192.0.2.10/32 -j DNAT --to-destination 192.0.2.10:40002",
    "filter KUBE-NODEPORT-NON-LOCAL 40002 -m state --state NEW -j ACCEPT",
  ]);
  assertEquals(rules(service, { nodePortIps: [] }).filter((rule) => rule.includes("NODEPORT")), []);
});

Deno.test("policy Local leads to endpoints of this node, but not the node's own packets and its pods'", {
  permissions: PURE,
}, () => {
  const service: Partial<Service> = {
    type: "NodePort",
    ports: [testPort({ nodePort: 30_080 })],
    externalTrafficPolicy: "Local",
  };
  assertEquals(rules(service).slice(2), [
    "nat KUBE-NODEPORT-CONTAINER 30080 -s 10.244.0.0/16 -j REDIRECT --to-ports 40002",
    "nat KUBE-NODEPORT-CONTAINER 30080 -j REDIRECT --to-ports 40001",
    "nat KUBE-NODEPORT-HOST 30080 -j DNAT --to-destination 192.0.2.10:40002",
    "filter KUBE-NODEPORT-NON-LOCAL 40001 -m state --state NEW -j ACCEPT",
    "filter KUBE-NODEPORT-NON-LOCAL 40002 -m state --state NEW -j ACCEPT",
  ]);
  assertEquals(rules({ internalTrafficPolicy: "Local" }), [
    "nat KUBE-PORTALS-CONTAINER 80 -d 10.96.0.10/32 -j REDIRECT --to-ports 40001",
    "nat KUBE-PORTALS-HOST 80 -d 10.96.0.10/32 -j DNAT --to-destination 192.0.2.10:40001",
  ]);
  for (
    const [detector, source] of [
      [{ kind: "interface", name: "cni0" }, "-i cni0 "],
      [{ kind: "interfacePrefix", prefix: "veth" }, "-i veth+ "],
    ] as const
  ) {
    assertEquals(
      rules(service, { detector })[2],
      `nat KUBE-NODEPORT-CONTAINER 30080 ${source}-j REDIRECT --to-ports 40002`,
    );
  }
  assertEquals(rules(service, { detector: { kind: "none" } }).length, 6);
});

Deno.test("SCTP is not served, which is told; other ports of the Service are", { permissions: PURE }, () => {
  const state = exampleState("IPv4", [
    testService({ ports: [testPort({ name: "a", protocol: "SCTP" }), testPort({ name: "b", port: 81 })] }),
  ]);
  const plan = planUserspace(state, new Set(["shop/web", "shop/gone"]), OPTIONS);
  assertEquals(plan.get("shop/web")?.unserved, [
    { text: "shop/web:a", reason: "mode userspace cannot forward SCTP" },
  ]);
  assertEquals(plan.get("shop/web")?.portals.map(({ text }) => text), ["shop/web:b"]);
  assertEquals(plan.get("shop/gone"), null);
  assertThrows(() => planUserspace(state, "all", { ...OPTIONS, family: "IPv6" }), RangeError);
});

function fullText(services: RulesByService, builtin: Parameters<typeof tableText>[2]): string {
  return TABLES.map((table) => tableText(table, services, builtin, JUMPS)).join("");
}

/** Rules by Service, each portal with a port of its own. */
function written(state: Parameters<typeof planUserspace>[0]): Map<string, readonly PortalRule[]> {
  let last = 40_000;
  const plan = planUserspace(state, "all", OPTIONS);
  const ports = new Map<string, number>();
  for (const service of plan.values()) for (const { id } of service?.portals ?? []) ports.set(id, ++last);
  return new Map(
    [...plan].map(([name, service]) => [name, rulesOf(service?.doorways ?? [], (id) => ports.get(id))]),
  );
}

Deno.test(
  "a next life reads every portal's port back from the rules, and any change leads to the rules of a fresh start",
  { permissions: PURE },
  () => {
    // The jumps are there, so that only our own chains are written.
    const builtin = (table: "filter" | "nat") =>
      new Map(
        [...jumpsByChain(JUMPS, table)].map(([chain, jumps]) => [chain, jumps.map(({ args }) => args)]),
      );
    const none = { filter: builtin("filter"), nat: builtin("nat") };
    fc.assert(
      fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
        const [old, now] = [before, after].map((objects) => written(exampleState("IPv4", objects))) as [
          ReturnType<typeof written>,
          ReturnType<typeof written>,
        ];
        const plan = planUserspace(exampleState("IPv4", before), "all", OPTIONS);
        const doorways = [...plan.values()].flatMap((service) => service?.doorways ?? []);
        const adopted = adoptedPorts(doorways, parseIptablesSave(fullText(old, none)));
        const ids = new Set(doorways.map(({ portal }) => portal));
        assertEquals([...adopted.keys()].sort(), [...ids].sort());
        const again = new Map(
          [...plan].map((
            [name, service],
          ) => [name, rulesOf(service?.doorways ?? [], (id) => adopted.get(id))]),
        );
        const nothing = { filterBefore: null, nat: null, filterAfter: null };
        assertEquals(changeTexts(old, again), nothing);

        const { filterBefore, nat, filterAfter } = changeTexts(old, now);
        const changes = [filterBefore, nat, filterAfter].map((text) => text ?? "");
        const edited = sortedRules(applied(fullText(old, none), ...changes));
        assertEquals(edited, sortedRules(applied(fullText(now, none), "")));
      }),
      { numRuns: 40 },
    );
  },
);

/** `-A` and `-D` lines as iptables-restore takes them, by table and chain. */
function applied(...texts: string[]): string[] {
  const rules: string[] = [];
  let table = "";
  for (const line of texts.join("").split("\n")) {
    if (line.startsWith("*")) table = line;
    else if (line.startsWith("-A ")) rules.push(`${table} ${line.slice(3)}`);
    else if (line.startsWith("-D ")) {
      const at = rules.indexOf(`${table} ${line.slice(3)}`);
      if (at < 0) throw new Error(`Bad rule (does a matching rule exist in that chain?): ${line}`);
      rules.splice(at, 1);
    }
  }
  return rules;
}

const sortedRules = (rules: readonly string[]): readonly string[] => rules.toSorted();
