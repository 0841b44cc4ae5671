import fc from "../../../../tests/support/fast_check.ts";
import { assertEquals, assertThrows } from "@std/assert";
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
import { RestoredTables } from "../../../../tests/support/fake_iptables.ts";
import { renderPlan } from "../../iptables/plan/plan.ts";
import type { IptablesPlan } from "../../iptables/plan/ruleset.ts";
import { fullSync } from "../../iptables/store/full_sync.ts";
import { CHAINS, JUMPS, jumpsOf } from "./chains.ts";
import { adoptedPorts, planRules, rulesOf } from "./port_rules.ts";
import { planUserspace, type UserspaceOptions } from "./plan.ts";

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
  return rulesOf(plan?.rules ?? [], (id) => 40_000 + ports.get(id)!)
    .map(({ table, chain, rule }) =>
      `${table} ${chain} ${rule.replace(/-m comment --comment shop\/web -p tcp -m tcp (?:--dport )?/, "")}`
    );
}

Deno.test("no client reaches a portal by its port, where the node's iptables has what that takes", {
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

Deno.test(
  "SCTP is not served, which is reported; other ports of the Service are",
  { permissions: PURE },
  () => {
    const state = exampleState("IPv4", [
      testService({ ports: [testPort({ name: "a", protocol: "SCTP" }), testPort({ name: "b", port: 81 })] }),
    ]);
    const plan = planUserspace(state, new Set(["shop/web", "shop/gone"]), OPTIONS);
    assertEquals(plan.get("shop/web")?.unserved, ["shop/web:a: mode userspace cannot forward SCTP"]);
    assertEquals(plan.get("shop/web")?.portals.map(({ text }) => text), ["shop/web:b"]);
    assertEquals(plan.get("shop/gone"), null);
    assertThrows(() => planUserspace(state, "all", { ...OPTIONS, family: "IPv6" }), RangeError);
  },
);

/** The rules of a plan, each portal with a port of its own. */
function planned(
  state: Parameters<typeof planUserspace>[0],
  portOf?: ReadonlyMap<string, number>,
): IptablesPlan {
  let last = 40_000;
  const plan = planUserspace(state, "all", OPTIONS);
  const ids = [...plan.values()].flatMap((service) => service?.portals.map(({ id }) => id) ?? []);
  const ports = portOf ?? new Map(ids.map((id) => [id, ++last]));
  return { ...planRules(plan, (id) => ports.get(id), OPTIONS.has), all: true };
}

/** Chain → its rules; those of a Service keep their order in nat, and Services stand in any. */
function rulesIn(tables: RestoredTables): Record<string, readonly string[]> {
  return Object.fromEntries((["filter", "nat"] as const).flatMap((table) =>
    CHAINS[table].flatMap((chain) => {
      const rules = tables.chains(table).get(chain) ?? [];
      const services = Map.groupBy(rules, (rule) => / --comment (\S+)/.exec(rule)?.[1] ?? "");
      return [...services].map(([service, own]) => [
        `${table} ${chain} ${service}`,
        table === "nat" ? own : own.toSorted(),
      ]);
    })
  ));
}

function loaded(plan: IptablesPlan): RestoredTables {
  const tables = new RestoredTables();
  tables.restore(renderPlan(plan));
  return tables;
}

Deno.test(
  "a next process reads every portal's port back from the rules, and any change leads to the rules of a fresh start",
  { permissions: PURE },
  () => {
    fc.assert(
      fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (before, after) => {
        const [state, next] = [exampleState("IPv4", before), exampleState("IPv4", after)];
        const [old, now] = [planned(state), planned(next)];
        const plan = planUserspace(state, "all", OPTIONS);
        const rules = [...plan.values()].flatMap((service) => service?.rules ?? []);
        const adopted = adoptedPorts(rules, parseIptablesSave(renderPlan(old)));
        assertEquals([...adopted.keys()].sort(), [...new Set(rules.map(({ portal }) => portal))].sort());
        const held = { tables: parseIptablesSave(renderPlan(old)), unreadable: new Set<string>() };
        const { transaction, store } = fullSync(planned(state, adopted), held, { family: "IPv4" });
        const { chains, rules: written, sharedChains } = transaction.edits.nat;
        assertEquals([chains, written, sharedChains], [[], [], []]);

        const gone = [...old.services.keys()].filter((name) => !now.services.has(name));
        const services = new Map([...now.services, ...gone.map((name) => [name, null] as const)]);
        const tables = loaded(old);
        for (const block of store.change({ ...now, services }).transaction.blocks(Infinity)) {
          tables.restore(block);
        }
        assertEquals(rulesIn(tables), rulesIn(loaded(now)));
      }),
      { numRuns: 40 },
    );
  },
);
