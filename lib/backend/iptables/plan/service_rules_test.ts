import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseIp } from "../../../model/ip.ts";
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import { serviceChains } from "./chains.ts";
import { formatProbability, planService, type ServiceRulesContext } from "./service_rules.ts";
import {
  ETP_LOCAL,
  IPTABLES_RULE_CASES,
  LB,
  NODE_PORT,
  REMOTE,
} from "../../../../tests/support/iptables_rule_cases.ts";

const CONTEXT: ServiceRulesContext = {
  node: { name: "node-a", zone: "" },
  masqueradeAll: false,
  detector: { kind: "cidr", cidr: "10.244.0.0/16" },
  nodeIp: parseIp("192.0.2.10"),
  large: false,
  countsLocalhostNodePorts: false,
};

/** All rules of one port, its chains without their hash, endpoint chains by their address. */
function rulesOf(
  port: Partial<ServicePort>,
  endpoints: readonly Endpoint[],
  changes: Partial<ServiceRulesContext> = {},
): string[] {
  const servicePort = testServicePort(port);
  const planned = planService([servicePort], new Map([[servicePort.key, endpoints]]), {
    ...CONTEXT,
    ...changes,
  });
  const hash = serviceChains(servicePort).cluster.slice("KUBE-SVC-".length);
  let text = [
    ...planned.dispatch.map(({ table, chain, rule }) => `${table} -A ${chain} ${rule}`),
    ...planned.chains.map((chain) => `nat :${chain}`),
    ...planned.rules.map((rule) => `nat ${rule}`),
  ].join("\n").replaceAll(`-${hash}`, "");
  for (const [, chain, ip] of text.matchAll(/-A (KUBE-SEP-\w+) .*--to-destination ([^:\n]+):/g)) {
    text = text.replaceAll(chain!, `KUBE-SEP-${ip}`);
  }
  const counts = planned.ruleCounts;
  assertEquals(counts.filter + counts.nat, planned.dispatch.length + planned.rules.length);
  return text.split("\n");
}

for (const { rule, port, endpoints, context, has = [], not = [] } of IPTABLES_RULE_CASES) {
  Deno.test(`rule ${rule}`, { permissions: "none" }, () => {
    const rules = rulesOf(port, endpoints, context);
    for (const wanted of has) {
      assertEquals(rules.filter((found) => found === wanted), [wanted], `in\n${rules.join("\n")}\n`);
    }
    // Wanted rules stand in the order of the case within each chain.
    const positions = new Map<string, number>();
    for (const wanted of has) {
      const [, , chain] = wanted.split(" ");
      const position = rules.indexOf(wanted);
      assert(position > (positions.get(chain ?? wanted) ?? -1), `order of ${wanted}`);
      positions.set(chain ?? wanted, position);
    }
    for (const fragment of not) assertEquals(rules.filter((found) => found.includes(fragment)), []);
  });
}

Deno.test("a draining local endpoint: cluster's endpoints first, then it", { permissions: "none" }, () => {
  const draining = testEndpoint("10.244.0.1", { isLocal: true, ready: false, terminating: true });
  const chains = rulesOf({ ...NODE_PORT, ...ETP_LOCAL }, [draining, REMOTE]).filter((rule) =>
    rule.startsWith("nat :")
  );
  assertEquals(chains, [
    "nat :KUBE-EXT",
    "nat :KUBE-SVC",
    "nat :KUBE-SVL",
    "nat :KUBE-SEP-10.244.1.1",
    "nat :KUBE-SEP-10.244.0.1",
  ]);
});

Deno.test("an IPv6 endpoint is written in brackets where a port follows", { permissions: "none" }, () => {
  const endpoint = testEndpoint("fd00::1", { key: "[fd00::1]:8080" });
  const port = testServicePort({ clusterIP: "fd00:96::1" });
  const { rules } = planService([port], new Map([[port.key, [endpoint]]]), CONTEXT);
  assert(rules.some((rule) => rule.endsWith("-s fd00::1 -j KUBE-MARK-MASQ")));
  assert(rules.some((rule) => rule.endsWith("--to-destination [fd00::1]:8080")));
});

Deno.test("a source range that is none is refused, by name", { permissions: "none" }, () => {
  assertThrows(
    () => rulesOf({ ...LB, loadBalancerSourceRanges: ["everywhere"] }, [REMOTE]),
    RangeError,
    `Service port "shop/web" must be a CIDR: got "everywhere"`,
  );
});

for (
  const [count, text] of [
    [2, "0.5000000000"],
    [3, "0.3333333333"],
    [4, "0.2500000000"],
    [5, "0.2000000000"],
    [6, "0.1666666667"],
    [7, "0.1428571429"],
    [8, "0.1250000000"],
    [9, "0.1111111111"],
    [10, "0.1000000000"],
    [2047, "0.0004885198"],
    [2048, "0.0004882812"],
    [2049, "0.0004880429"],
  ] as const
) {
  Deno.test(`probability of one in ${count}`, { permissions: "none" }, () => {
    assertEquals(formatProbability(count), text);
  });
}
