import fc from "../../../../tests/support/fast_check.ts";
import { assert, assertEquals } from "@std/assert";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleOptions, exampleTracker } from "../../../../tests/support/golden.ts";
import { RestoredTables } from "../../../../tests/support/fake_iptables.ts";
import { type Fate, fates } from "../../../../tests/support/rule_reachability.ts";
import type { ChangeTracker } from "../../../model/change_tracker.ts";
import type { ApiObject, Service } from "../../../model/objects.ts";
import type { Table } from "../../../netfilter/iptables_jumps.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../../tests/support/model_objects.ts";
import { planIptables, renderPlan } from "../plan/plan.ts";
import type { IptablesOptions, IptablesPlan } from "../plan/ruleset.ts";
import { fullSync, NOTHING_HELD } from "./full_sync.ts";
import type { IptablesStore } from "./store.ts";

/** The YAML parser behind the shared fixtures asks for these at its start. */
const PURE: Deno.PermissionOptions = { env: ["LOG_TOKENS", "LOG_STREAM"] };
const OPTIONS = exampleOptions("IPv4");
const DISPATCH_CHAINS: readonly (readonly [Table, string])[] = [
  ["nat", "KUBE-SERVICES"],
  ["nat", "KUBE-NODEPORTS"],
  ["filter", "KUBE-SERVICES"],
  ["filter", "KUBE-EXTERNAL-SERVICES"],
  ["filter", "KUBE-NODEPORTS"],
  ["filter", "KUBE-PROXY-FIREWALL"],
];

/** Chains with their rules; the order of chains, and of rules in dispatch chains before the tail, is free. */
function stateOf(tables: RestoredTables, tailLength: number): Record<string, readonly string[]> {
  const state: Record<string, readonly string[]> = {};
  for (const table of ["filter", "nat"] as const) {
    for (const chain of [...tables.chains(table).keys()].sort()) {
      const rules = tables.chains(table).get(chain)!;
      const isDispatch = DISPATCH_CHAINS.some(([t, c]) => t === table && c === chain);
      const tail = table === "nat" && chain === "KUBE-SERVICES" ? tailLength : 0;
      const head = rules.slice(0, rules.length - tail);
      state[`${table} ${chain}`] = isDispatch
        ? [...head.toSorted(), ...rules.slice(rules.length - tail)]
        : rules;
    }
  }
  return state;
}

function loaded(plan: IptablesPlan): RestoredTables {
  const tables = new RestoredTables();
  tables.restore(
    renderPlan(plan) + "*filter\n-A FORWARD -j KUBE-SERVICES\n-A INPUT -j KUBE-EXTERNAL-SERVICES\nCOMMIT\n" +
      "*nat\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n",
  );
  return tables;
}

function planAll(tracker: ChangeTracker, options: IptablesOptions = OPTIONS): IptablesPlan {
  return planIptables(tracker.checkout().state, "all", options);
}

function storeOf(plan: IptablesPlan): IptablesStore {
  return fullSync(plan, NOTHING_HELD, { family: "IPv4" }).store;
}

function assertHolds(tables: RestoredTables, store: IptablesStore, wanted: IptablesPlan): void {
  assertEquals(
    stateOf(tables, wanted.base.tail.nat.length),
    stateOf(loaded(wanted), wanted.base.tail.nat.length),
  );
  const fresh = storeOf(wanted);
  assertEquals(store.ruleCounts, fresh.ruleCounts);
  assertEquals(store.chainCount, fresh.chainCount);
  assert(store.change(wanted).transaction.isEmpty);
}

/** A Service that had an answer before and has one after must have one at every moment, and endpoints if it had them. */
function assertNoGap(before: Map<string, Fate>, now: Map<string, Fate>, after: Map<string, Fate>): void {
  for (const [match, { endpoints, hasVerdict }] of before) {
    const later = after.get(match);
    if (later === undefined) continue;
    const fate = now.get(match);
    const answered = (endpoints.size > 0 || hasVerdict) && (later.endpoints.size > 0 || later.hasVerdict);
    if (answered) assert(fate !== undefined && (fate.endpoints.size > 0 || fate.hasVerdict), `gap: ${match}`);
    if (endpoints.size > 0 && later.endpoints.size > 0) {
      assert(fate!.endpoints.size > 0, `not served: ${match}`);
    }
  }
}

for (const [how, mostChains] of [["", Infinity], [", chains one by one", 1]] as const) {
  Deno.test(`differences lead to the rules of a fresh start without a gap${how}`, {
    permissions: PURE,
  }, () => {
    fc.assert(
      fc.property(fc.array(ARBITRARY_CLUSTER, { minLength: 2, maxLength: 4 }), ([first, ...others]) => {
        const tracker = exampleTracker("IPv4", first!);
        const start = planAll(tracker);
        const tables = loaded(start);
        const store = storeOf(start);
        let before = first!;
        for (const after of others) {
          offerChanges(tracker, before, after);
          const { state, updatedServices } = tracker.checkout();
          const plan = planIptables(state, updatedServices, OPTIONS);
          const wanted = planIptables(state, "all", OPTIONS);
          const fatesBefore = fates(tables);
          const fatesAfter = fates(loaded(wanted));
          const { transaction, commit } = store.change(plan);
          for (const block of transaction.blocks(mostChains)) {
            tables.restore(block);
            assertNoGap(fatesBefore, fates(tables), fatesAfter);
          }
          commit();
          assertHolds(tables, store, wanted);
          before = after;
        }
      }),
      { numRuns: 100 },
    );
  });
}

Deno.test("very many chains that come or go are written in portions", { permissions: PURE }, () => {
  const [none, many] = [0, 25].map((count) =>
    planAll(exampleTracker("IPv4", [
      testService(),
      testSlice({
        endpoints: Array.from({ length: count }, (_, at) => testSliceEndpoint(`10.244.0.${at + 1}`)),
      }),
    ]))
  );
  const portionsOf = (wanted: IptablesPlan, committed: IptablesPlan): number[] =>
    [...storeOf(committed).change(wanted).transaction.blocks(10)]
      .map((block) => block.match(/^:KUBE-SEP-/gm)?.length ?? 0)
      .filter((count) => count > 0);
  assertEquals(portionsOf(many!, none!), [10, 10, 5]);
  // The chain that chose among them goes first.
  assertEquals(portionsOf(none!, many!), [9, 10, 6]);
});

const WEB = testService({ ports: [testPort({ name: "http" })] });
const FRONT = testService({
  name: "front",
  clusterIP: "10.96.0.11",
  type: "NodePort",
  ports: [testPort({ name: "http", nodePort: 30080 })],
});
const sliceOf = (service: Service, ...ips: string[]): ApiObject =>
  testSlice({
    name: `${service.name}-1`,
    serviceName: service.name,
    ports: [testSlicePort({ name: "http" })],
    endpoints: ips.map((ip) => testSliceEndpoint(ip)),
  });

function diffText(before: readonly ApiObject[], after: readonly ApiObject[], options = OPTIONS): string[] {
  const store = storeOf(planAll(exampleTracker("IPv4", before)));
  const tracker = exampleTracker("IPv4", before);
  tracker.checkout();
  offerChanges(tracker, before, after);
  const { state, updatedServices } = tracker.checkout();
  const { transaction } = store.change(planIptables(state, updatedServices, options));
  return [...transaction.blocks(Infinity)].join("").split("\n").slice(0, -1)
    .map((line) => line.replace(/KUBE-(SVC|SEP|EXT)-[A-Z2-7]{16}/g, "KUBE-$1"));
}

const SVC_RULE = `-m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d 10.96.0.10 --dport 80`;
const REJECT_RULE =
  `-m comment --comment "shop/web:http has no endpoints" -m tcp -p tcp -d 10.96.0.10 --dport 80 -j REJECT`;

Deno.test("a replaced endpoint rewrites the chain that chooses and no other", { permissions: PURE }, () => {
  const lines = diffText([WEB, sliceOf(WEB, "10.0.0.1", "10.0.0.2")], [
    WEB,
    sliceOf(WEB, "10.0.0.1", "10.0.0.3"),
  ]);
  assertEquals(lines, [
    "*nat",
    ":KUBE-SVC - [0:0]",
    ":KUBE-SEP - [0:0]",
    ":KUBE-SEP - [0:0]",
    `-A KUBE-SVC ${SVC_RULE} ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`,
    `-A KUBE-SVC -m comment --comment "shop/web:http -> 10.0.0.1:8080" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP`,
    `-A KUBE-SVC -m comment --comment "shop/web:http -> 10.0.0.3:8080" -j KUBE-SEP`,
    "-A KUBE-SEP -m comment --comment shop/web:http -s 10.0.0.3 -j KUBE-MARK-MASQ",
    "-A KUBE-SEP -m comment --comment shop/web:http -m tcp -p tcp -j DNAT --to-destination 10.0.0.3:8080",
    "-X KUBE-SEP",
    "COMMIT",
  ]);
});

Deno.test("the first endpoint: nat serves before filter stops refusing", { permissions: PURE }, () => {
  const lines = diffText([WEB], [WEB, sliceOf(WEB, "10.0.0.1")]);
  assertEquals(lines.filter((line) => !/^(:|-A KUBE-S(VC|EP))/.test(line)), [
    "*nat",
    `-I KUBE-SERVICES ${SVC_RULE} -j KUBE-SVC`,
    "COMMIT",
    "*filter",
    `-D KUBE-SERVICES ${REJECT_RULE}`,
    "COMMIT",
  ]);
});

Deno.test("the last endpoint: filter refuses before nat stops serving", { permissions: PURE }, () => {
  assertEquals(diffText([WEB, sliceOf(WEB, "10.0.0.1")], [WEB, sliceOf(WEB)]), [
    "*filter",
    `-A KUBE-SERVICES ${REJECT_RULE}`,
    "COMMIT",
    "*nat",
    ":KUBE-SVC - [0:0]",
    ":KUBE-SEP - [0:0]",
    `-D KUBE-SERVICES ${SVC_RULE} -j KUBE-SVC`,
    "-X KUBE-SVC",
    "-X KUBE-SEP",
    "COMMIT",
  ]);
});

Deno.test("one gains and one loses its endpoints: filter is written on both sides of nat", {
  permissions: PURE,
}, () => {
  const lines = diffText([WEB, FRONT, sliceOf(FRONT, "10.0.0.2")], [WEB, FRONT, sliceOf(WEB, "10.0.0.1")]);
  assertEquals(lines.filter((line) => line.startsWith("*")), ["*filter", "*nat", "*filter"]);
});

Deno.test("a Service without endpoints appears in filter alone", { permissions: PURE }, () => {
  assertEquals(diffText([], [WEB]), ["*filter", `-A KUBE-SERVICES ${REJECT_RULE}`, "COMMIT"]);
});

Deno.test(
  "a verdict in filter alone changes in one transaction, with what stands for other ports left alone",
  {
    permissions: PURE,
  },
  () => {
    const withPorts = (https: number): ApiObject => ({
      ...WEB,
      ports: [testPort({ name: "http" }), testPort({ name: "https", port: https })],
    });
    const rule = (port: number): string =>
      REJECT_RULE.replace("web:http", "web:https").replace(" 80 ", ` ${port} `);
    assertEquals(diffText([withPorts(443)], [withPorts(8443)]), [
      "*filter",
      `-A KUBE-SERVICES ${rule(8443)}`,
      `-D KUBE-SERVICES ${rule(443)}`,
      "COMMIT",
    ]);
  },
);

Deno.test("nothing changed: nothing is written", { permissions: PURE }, () => {
  const objects = [WEB, FRONT, sliceOf(FRONT, "10.0.0.2")];
  assertEquals(diffText(objects, objects), []);
});

Deno.test("base rules: only what changed is written", { permissions: PURE }, () => {
  const tail =
    `-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"`;
  const byAddress = exampleOptions("IPv4", {
    nodePortAddresses: { matchAll: false, containsIPv4Loopback: false, cidrs: [] },
    nodePortIps: ["192.0.2.1", "192.0.2.2"],
  });
  // KUBE-FIREWALL keeps its rule: the chain is kubelet's too.
  assertEquals(diffText([WEB], [WEB], byAddress), [
    "*nat",
    `-D KUBE-SERVICES ${tail} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`,
    `-A KUBE-SERVICES ${tail} -d 192.0.2.1 -j KUBE-NODEPORTS`,
    `-A KUBE-SERVICES ${tail} -d 192.0.2.2 -j KUBE-NODEPORTS`,
    "COMMIT",
  ]);
  assertEquals(diffText([WEB], [WEB], exampleOptions("IPv4", { dropInvalid: false })), [
    "*filter",
    ":KUBE-FORWARD - [0:0]",
    `-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x00004000/0x00004000 -j ACCEPT`,
    `-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
    "COMMIT",
  ]);
  const otherMark = diffText([WEB], [WEB], exampleOptions("IPv4", { masqueradeMark: 0x100000 }));
  assertEquals(otherMark.filter((line) => /^[*:]/.test(line)), [
    "*filter",
    ":KUBE-FORWARD - [0:0]",
    "*nat",
    ":KUBE-POSTROUTING - [0:0]",
    ":KUBE-MARK-MASQ - [0:0]",
  ]);
});

Deno.test("an address that is external IP and load-balancer IP keeps its rules in order", {
  permissions: PURE,
}, () => {
  const lb = { ip: "203.0.113.9", ipMode: "VIP" };
  const service = { ...FRONT, type: "LoadBalancer" as const, loadBalancerSourceRanges: ["192.0.2.0/24"] };
  const slice = sliceOf(FRONT, "10.0.0.1");
  const before = [{ ...service, externalIPs: [lb.ip] }, slice];
  const after = [{ ...service, externalIPs: [lb.ip], loadBalancerIngress: [lb] }, slice];
  const start = planAll(exampleTracker("IPv4", before));
  const plan = planAll(exampleTracker("IPv4", after));
  const tables = loaded(start);
  tables.restore([...storeOf(start).change(plan).transaction.blocks(Infinity)].join(""));
  const kinds = tables.chains("nat").get("KUBE-SERVICES")!.filter((rule) => rule.includes("-d 203.0.113.9"))
    .map((rule) => /(external|loadbalancer) IP/.exec(rule)?.[1]);
  assertEquals(kinds, ["external", "loadbalancer"]);
});
