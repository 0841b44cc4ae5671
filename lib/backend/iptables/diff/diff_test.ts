import { assert, assertEquals } from "@std/assert";
import fc from "../../../../tests/support/fast_check.ts";
import { ARBITRARY_CLUSTER, offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { exampleOptions, exampleTracker } from "../../../../tests/support/golden.ts";
import { RestoreInterpreter } from "../../../../tests/support/restore_interpreter.ts";
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
import { CommittedRules } from "./committed.ts";
import { diffIptables } from "./diff.ts";
import { planIptables } from "../plan/plan.ts";
import { renderOperations, renderPlan, renderTransaction } from "../plan/render.ts";
import type { IptablesOptions, IptablesPlan } from "../plan/ruleset.ts";

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
function stateOf(tables: RestoreInterpreter, tailLength: number): Record<string, readonly string[]> {
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

function loaded(plan: IptablesPlan): RestoreInterpreter {
  const tables = new RestoreInterpreter();
  tables.restore(
    renderPlan(plan) + "*filter\n-A FORWARD -j KUBE-SERVICES\n-A INPUT -j KUBE-EXTERNAL-SERVICES\nCOMMIT\n" +
      "*nat\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n",
  );
  return tables;
}

function planAll(tracker: ChangeTracker, options: IptablesOptions = OPTIONS): IptablesPlan {
  return planIptables(tracker.checkout().state, "all", options);
}

function assertHolds(tables: RestoreInterpreter, committed: CommittedRules, wanted: IptablesPlan): void {
  assertEquals(
    stateOf(tables, wanted.base.tail.nat.length),
    stateOf(loaded(wanted), wanted.base.tail.nat.length),
  );
  const fresh = CommittedRules.of(wanted);
  assertEquals(committed.ruleCounts, fresh.ruleCounts);
  assertEquals([committed.chainCount, committed.dispatchRuleCount], [
    fresh.chainCount,
    fresh.dispatchRuleCount,
  ]);
  for (const [table, chain] of DISPATCH_CHAINS) {
    assertEquals(committed.dispatchCount(table, chain), tables.chains(table).get(chain)?.length, chain);
  }
  assertEquals(diffIptables(wanted, committed).transactions, []);
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

for (const [how, chainsPerTransaction] of [["", Infinity], [", chains one by one", 1]] as const) {
  Deno.test(`differences lead to the rules of a fresh start without a gap${how}`, {
    permissions: PURE,
  }, () => {
    fc.assert(
      fc.property(fc.array(ARBITRARY_CLUSTER, { minLength: 2, maxLength: 4 }), ([first, ...others]) => {
        const tracker = exampleTracker("IPv4", first!);
        const start = planAll(tracker);
        const tables = loaded(start);
        const committed = CommittedRules.of(start);
        let before = first!;
        for (const after of others) {
          offerChanges(tracker, before, after);
          const { state, updatedServices } = tracker.checkout();
          const plan = planIptables(state, updatedServices, OPTIONS);
          const wanted = planIptables(state, "all", OPTIONS);
          const fatesBefore = fates(tables);
          const fatesAfter = fates(loaded(wanted));
          for (const transaction of diffIptables(plan, committed, chainsPerTransaction).transactions) {
            tables.restore(renderTransaction(transaction));
            assertNoGap(fatesBefore, fates(tables), fatesAfter);
          }
          committed.apply(plan);
          assertHolds(tables, committed, wanted);
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
    diffIptables(wanted, CommittedRules.of(committed), 10).transactions
      .map(({ lines }) => lines.filter((line) => line.startsWith(":KUBE-SEP-")).length)
      .filter((count) => count > 0);
  assertEquals(portionsOf(many!, none!), [10, 10, 5]);
  assertEquals(portionsOf(none!, many!), [10, 10, 5]);
});

Deno.test("a plan of all Services removes those it no longer has", { permissions: PURE }, () => {
  fc.assert(
    fc.property(ARBITRARY_CLUSTER, ARBITRARY_CLUSTER, (first, second) => {
      const start = planAll(exampleTracker("IPv4", first));
      const wanted = planAll(exampleTracker("IPv4", second));
      const tables = loaded(start);
      const committed = CommittedRules.of(start);
      tables.restore(renderOperations(diffIptables(wanted, committed)) || "*nat\nCOMMIT\n");
      committed.apply(wanted);
      assertHolds(tables, committed, wanted);
    }),
    { numRuns: 100 },
  );
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
  const committed = CommittedRules.of(planAll(exampleTracker("IPv4", before)));
  const tracker = exampleTracker("IPv4", before);
  tracker.checkout();
  offerChanges(tracker, before, after);
  const { state, updatedServices } = tracker.checkout();
  return renderOperations(diffIptables(planIptables(state, updatedServices, options), committed)).split("\n")
    .slice(0, -1)
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

Deno.test(
  "the end of KUBE-SERVICES and what stands before it: what is printed of it is known until it changes",
  {
    permissions: PURE,
  },
  () => {
    const objects = [WEB, sliceOf(WEB, "10.0.0.1")];
    const plan = planAll(exampleTracker("IPv4", objects));
    const committed = CommittedRules.of(plan);
    const look = (print: number) => committed.lookAtDispatch("nat", "KUBE-SERVICES", print);
    assertEquals([look(10), look(10), look(11)], ["new", "known", "damaged"]);
    // A sync that changes nothing of it: another print of the same rules is still somebody's doing.
    committed.apply(plan);
    assertEquals([look(10), look(11)], ["known", "damaged"]);
    const nodePortAddresses = { matchAll: false, containsIPv4Loopback: false, cidrs: [] };
    const others = exampleOptions("IPv4", { nodePortAddresses, nodePortIps: ["192.0.2.1"] });
    committed.apply(planAll(exampleTracker("IPv4", objects), others));
    assertEquals([look(12), look(12)], ["new", "known"]);
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
  tables.restore(renderOperations(diffIptables(plan, CommittedRules.of(start))));
  const kinds = tables.chains("nat").get("KUBE-SERVICES")!.filter((rule) => rule.includes("-d 203.0.113.9"))
    .map((rule) => /(external|loadbalancer) IP/.exec(rule)?.[1]);
  assertEquals(kinds, ["external", "loadbalancer"]);
});
