import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseIp } from "../../../model/ip.ts";
import type { Endpoint, ServicePort } from "../../../model/state.ts";
import { testEndpoint, testServicePort } from "../../../../tests/support/model_objects.ts";
import { serviceChains } from "./chains.ts";
import { formatProbability, planService, type ServiceRulesContext } from "./service_rules.ts";

const CONTEXT: ServiceRulesContext = {
  node: { name: "node-a", zone: "" },
  masqueradeAll: false,
  detector: { kind: "cidr", cidr: "10.244.0.0/16" },
  nodeIp: parseIp("192.0.2.10"),
  large: false,
};
const LOCAL = testEndpoint("10.244.0.1", { isLocal: true });
const REMOTE = testEndpoint("10.244.1.1");
const EXTERNAL_IP = { externalIPs: ["198.51.100.7"] };
const LB = { loadBalancerVIPs: ["203.0.113.1", "203.0.113.2"] };
const NODE_PORT = { nodePort: 30080 };
const RANGES = { loadBalancerSourceRanges: ["198.18.0.0/15"] };
const ETP_LOCAL = { externalPolicyLocal: true };
const ITP_LOCAL = { internalPolicyLocal: true };

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

const to = (ip: string): string => `-m tcp -p tcp -d ${ip} --dport 80`;
const NONE = `-m comment --comment "shop/web has no endpoints"`;
const NONE_LOCAL = `-m comment --comment "shop/web has no local endpoints"`;

/** Each case: rules that must be there and fragments that must not be in any rule. */
const CASES: readonly {
  readonly rule: string;
  readonly port: Partial<ServicePort>;
  readonly endpoints: readonly Endpoint[];
  readonly context?: Partial<ServiceRulesContext>;
  readonly has?: readonly string[];
  readonly not?: readonly string[];
}[] = [
  {
    rule: "1: cluster IP to the cluster policy",
    port: {},
    endpoints: [REMOTE],
    has: [
      `nat -A KUBE-SERVICES -m comment --comment "shop/web cluster IP" ${to("10.96.0.10")} -j KUBE-SVC`,
      "nat :KUBE-SVC",
    ],
    not: ["filter"],
  },
  {
    rule: "1: cluster IP to the local policy",
    port: ITP_LOCAL,
    endpoints: [LOCAL, REMOTE],
    has: [`nat -A KUBE-SERVICES -m comment --comment "shop/web cluster IP" ${to("10.96.0.10")} -j KUBE-SVL`],
    not: [":KUBE-SVC", "10.244.1.1"],
  },
  {
    rule: "2: no endpoints, cluster IP refused",
    port: {},
    endpoints: [],
    has: [`filter -A KUBE-SERVICES ${NONE} ${to("10.96.0.10")} -j REJECT`],
    not: ["nat"],
  },
  {
    rule: "2: no local endpoints, cluster IP dropped",
    port: ITP_LOCAL,
    endpoints: [REMOTE],
    has: [`filter -A KUBE-SERVICES ${NONE_LOCAL} ${to("10.96.0.10")} -j DROP`],
    not: ["nat"],
  },
  {
    rule: "3: external IP",
    port: EXTERNAL_IP,
    endpoints: [REMOTE],
    has: [
      `nat -A KUBE-SERVICES -m comment --comment "shop/web external IP" ${to("198.51.100.7")} -j KUBE-EXT`,
    ],
    not: ["filter"],
  },
  {
    rule: "4: external IP without endpoints refused",
    port: EXTERNAL_IP,
    endpoints: [],
    has: [`filter -A KUBE-EXTERNAL-SERVICES ${NONE} ${to("198.51.100.7")} -j REJECT`],
    not: ["nat"],
  },
  {
    rule: "3 and 4: external IP without local endpoints serves pods and drops the rest",
    port: { ...EXTERNAL_IP, ...ETP_LOCAL },
    endpoints: [REMOTE],
    has: [
      `nat -A KUBE-SERVICES -m comment --comment "shop/web external IP" ${to("198.51.100.7")} -j KUBE-EXT`,
      `filter -A KUBE-EXTERNAL-SERVICES ${NONE_LOCAL} ${to("198.51.100.7")} -j DROP`,
    ],
    not: ["KUBE-SVL"],
  },
  {
    rule: "5: every load-balancer IP, without ranges",
    port: LB,
    endpoints: [REMOTE],
    has: LB.loadBalancerVIPs.map((ip) =>
      `nat -A KUBE-SERVICES -m comment --comment "shop/web loadbalancer IP" ${to(ip)} -j KUBE-EXT`
    ),
    not: ["KUBE-FW", "filter"],
  },
  {
    rule: "5 and 6: with ranges, to the firewall, whose rest is dropped",
    port: { ...LB, ...RANGES },
    endpoints: [REMOTE],
    has: LB.loadBalancerVIPs.flatMap((ip) => [
      `nat -A KUBE-SERVICES -m comment --comment "shop/web loadbalancer IP" ${to(ip)} -j KUBE-FW`,
      `filter -A KUBE-PROXY-FIREWALL -m comment --comment "shop/web traffic not accepted by KUBE-FW" ${
        to(ip)
      } -j DROP`,
    ]),
  },
  {
    rule: "6: no firewall without endpoints",
    port: { ...LB, ...RANGES },
    endpoints: [],
    not: ["KUBE-PROXY-FIREWALL", "KUBE-FW"],
  },
  {
    rule: "6: no firewall without a load-balancer IP",
    port: { ...EXTERNAL_IP, ...RANGES },
    endpoints: [REMOTE],
    not: ["KUBE-PROXY-FIREWALL", "KUBE-FW"],
  },
  {
    rule: "7: load-balancer IPs without endpoints refused",
    port: LB,
    endpoints: [],
    has: LB.loadBalancerVIPs.map((ip) => `filter -A KUBE-EXTERNAL-SERVICES ${NONE} ${to(ip)} -j REJECT`),
    not: ["nat"],
  },
  {
    rule: "7: load-balancer IPs without local endpoints dropped",
    port: { ...LB, ...ETP_LOCAL },
    endpoints: [REMOTE],
    has: LB.loadBalancerVIPs.map((ip) => `filter -A KUBE-EXTERNAL-SERVICES ${NONE_LOCAL} ${to(ip)} -j DROP`),
  },
  {
    rule: "8: node port",
    port: NODE_PORT,
    endpoints: [REMOTE],
    has: ["nat -A KUBE-NODEPORTS -m comment --comment shop/web -m tcp -p tcp --dport 30080 -j KUBE-EXT"],
    not: ["filter"],
  },
  {
    rule: "9: node port without endpoints refused",
    port: NODE_PORT,
    endpoints: [],
    has: [
      `filter -A KUBE-EXTERNAL-SERVICES ${NONE} -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j REJECT`,
    ],
    not: ["nat"],
  },
  {
    rule: "8 and 9: node port without local endpoints",
    port: { ...NODE_PORT, ...ETP_LOCAL },
    endpoints: [REMOTE],
    has: [
      "nat -A KUBE-NODEPORTS -m comment --comment shop/web -m tcp -p tcp --dport 30080 -j KUBE-EXT",
      `filter -A KUBE-EXTERNAL-SERVICES ${NONE_LOCAL} -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -j DROP`,
    ],
  },
  {
    rule: "10: health-check node port is TCP even for UDP, and even without endpoints",
    port: { ...LB, ...ETP_LOCAL, protocol: "UDP", healthCheckNodePort: 32000 },
    endpoints: [],
    has: [
      `filter -A KUBE-NODEPORTS -m comment --comment "shop/web health check node port" -m tcp -p tcp --dport 32000 -j ACCEPT`,
    ],
  },
  { rule: "10: none without such a port", port: LB, endpoints: [], not: ["-j ACCEPT"] },
  {
    rule: "12: masqueradeAll",
    port: {},
    endpoints: [REMOTE],
    context: { masqueradeAll: true },
    has: [`nat -A KUBE-SVC -m comment --comment "shop/web cluster IP" ${to("10.96.0.10")} -j KUBE-MARK-MASQ`],
    not: ["! -s"],
  },
  {
    rule: "12': traffic from outside of the pod network, by network",
    port: {},
    endpoints: [REMOTE],
    has: [
      `nat -A KUBE-SVC -m comment --comment "shop/web cluster IP" ${
        to("10.96.0.10")
      } ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`,
    ],
  },
  {
    rule: "12': by interface, in the local policy's chain",
    port: ITP_LOCAL,
    endpoints: [LOCAL],
    context: { detector: { kind: "interface", name: "cni0" } },
    has: [
      `nat -A KUBE-SVL -m comment --comment "shop/web cluster IP" ${
        to("10.96.0.10")
      } ! -i cni0 -j KUBE-MARK-MASQ`,
    ],
  },
  {
    rule: "12': by interface prefix",
    port: {},
    endpoints: [REMOTE],
    context: { detector: { kind: "interfacePrefix", prefix: "veth" } },
    has: [
      `nat -A KUBE-SVC -m comment --comment "shop/web cluster IP" ${
        to("10.96.0.10")
      } ! -i veth+ -j KUBE-MARK-MASQ`,
    ],
  },
  {
    rule: "12': none if nothing tells pods apart",
    port: {},
    endpoints: [REMOTE],
    context: { detector: { kind: "none" } },
    not: [`cluster IP" ${to("10.96.0.10")} -j KUBE-MARK-MASQ`, "! -"],
  },
  {
    rule: "12: none without internal endpoints",
    port: { ...ITP_LOCAL, ...NODE_PORT },
    endpoints: [REMOTE],
    context: { masqueradeAll: true },
    not: [`"shop/web cluster IP"`],
  },
  {
    rule: "13 and 17: external traffic, policy Cluster",
    port: NODE_PORT,
    endpoints: [LOCAL, REMOTE],
    has: [
      "nat :KUBE-EXT",
      `nat -A KUBE-EXT -m comment --comment "masquerade traffic for shop/web external destinations" -j KUBE-MARK-MASQ`,
      "nat -A KUBE-EXT -j KUBE-SVC",
    ],
    not: ["pod traffic", "LOCAL traffic", "KUBE-SVL"],
  },
  {
    rule: "14 to 17: external traffic, policy Local",
    port: { ...NODE_PORT, ...ETP_LOCAL },
    endpoints: [LOCAL, REMOTE],
    has: [
      `nat -A KUBE-EXT -m comment --comment "pod traffic for shop/web external destinations" -s 10.244.0.0/16 -j KUBE-SVC`,
      `nat -A KUBE-EXT -m comment --comment "masquerade LOCAL traffic for shop/web external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ`,
      `nat -A KUBE-EXT -m comment --comment "route LOCAL traffic for shop/web external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC`,
      "nat -A KUBE-EXT -j KUBE-SVL",
      `nat -A KUBE-SVL -m comment --comment "shop/web -> 10.244.0.1:8080" -j KUBE-SEP-10.244.0.1`,
    ],
    not: ["masquerade traffic", "-A KUBE-EXT -j KUBE-SVC"],
  },
  {
    rule: "14: none if nothing tells pods apart",
    port: { ...NODE_PORT, ...ETP_LOCAL },
    endpoints: [LOCAL],
    context: { detector: { kind: "none" } },
    not: ["pod traffic"],
  },
  {
    rule: "17: none without local endpoints",
    port: { ...NODE_PORT, ...ETP_LOCAL },
    endpoints: [REMOTE],
    has: [
      `nat -A KUBE-EXT -m comment --comment "route LOCAL traffic for shop/web external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC`,
    ],
    not: ["-A KUBE-EXT -j"],
  },
  { rule: "13: no chain without endpoints", port: NODE_PORT, endpoints: [], not: [":KUBE-EXT"] },
  { rule: "13: no chain without external addresses", port: {}, endpoints: [REMOTE], not: [":KUBE-EXT"] },
  {
    rule: "18 and 20: ranges, in the order of the object",
    port: { ...LB, loadBalancerSourceRanges: ["198.18.0.0/15", "10.0.0.0/8"] },
    endpoints: [REMOTE],
    has: [
      "nat :KUBE-FW",
      `nat -A KUBE-FW -m comment --comment "shop/web loadbalancer IP" -s 198.18.0.0/15 -j KUBE-EXT`,
      `nat -A KUBE-FW -m comment --comment "shop/web loadbalancer IP" -s 10.0.0.0/8 -j KUBE-EXT`,
      `nat -A KUBE-FW -m comment --comment "other traffic to shop/web will be dropped by KUBE-PROXY-FIREWALL"`,
    ],
    not: ["-s 203.0.113."],
  },
  {
    rule: "19: the node in a range: load-balancer IPs as sources",
    port: { ...LB, loadBalancerSourceRanges: ["198.18.0.0/15", "192.0.2.0/24"] },
    endpoints: [REMOTE],
    has: LB.loadBalancerVIPs.map((ip) =>
      `nat -A KUBE-FW -m comment --comment "shop/web loadbalancer IP" -s ${ip} -j KUBE-EXT`
    ),
  },
  {
    rule: "19: none if the node's address is not known",
    port: { ...LB, loadBalancerSourceRanges: ["192.0.2.0/24"] },
    endpoints: [REMOTE],
    context: { nodeIp: null },
    not: ["-s 203.0.113."],
  },
  {
    rule: "21: choice among the cluster's endpoints",
    port: {},
    endpoints: [LOCAL, REMOTE, testEndpoint("10.244.2.1")],
    has: [
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.0.1:8080" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-10.244.0.1`,
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.1.1:8080" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-10.244.1.1`,
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.2.1:8080" -j KUBE-SEP-10.244.2.1`,
    ],
  },
  {
    rule: "21 and 22: affinity before the choice, in both policies' chains",
    port: { ...NODE_PORT, ...ETP_LOCAL, stickyMaxAgeSeconds: 600 },
    endpoints: [LOCAL, REMOTE],
    has: [
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.0.1:8080" -m recent --name KUBE-SEP-10.244.0.1 --rcheck --seconds 600 --reap -j KUBE-SEP-10.244.0.1`,
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.1.1:8080" -m recent --name KUBE-SEP-10.244.1.1 --rcheck --seconds 600 --reap -j KUBE-SEP-10.244.1.1`,
      `nat -A KUBE-SVC -m comment --comment "shop/web -> 10.244.0.1:8080" -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-10.244.0.1`,
      `nat -A KUBE-SVL -m comment --comment "shop/web -> 10.244.0.1:8080" -m recent --name KUBE-SEP-10.244.0.1 --rcheck --seconds 600 --reap -j KUBE-SEP-10.244.0.1`,
      `nat -A KUBE-SEP-10.244.0.1 -m comment --comment shop/web -m recent --name KUBE-SEP-10.244.0.1 --set -m tcp -p tcp -j DNAT --to-destination 10.244.0.1:8080`,
    ],
  },
  {
    rule: "23: hairpin and translation, for remote endpoints too",
    port: { protocol: "SCTP" },
    endpoints: [REMOTE],
    has: [
      "nat :KUBE-SEP-10.244.1.1",
      "nat -A KUBE-SEP-10.244.1.1 -m comment --comment shop/web -s 10.244.1.1 -j KUBE-MARK-MASQ",
      "nat -A KUBE-SEP-10.244.1.1 -m comment --comment shop/web -m sctp -p sctp -j DNAT --to-destination 10.244.1.1:8080",
    ],
  },
  {
    rule: "large cluster: no comments on the endpoint rules, all others keep theirs",
    port: { ...NODE_PORT, stickyMaxAgeSeconds: 600 },
    endpoints: [LOCAL, REMOTE],
    context: { large: true },
    has: [
      `nat -A KUBE-SVC -m comment --comment "shop/web cluster IP" ${
        to("10.96.0.10")
      } ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`,
      "nat -A KUBE-SVC -m recent --name KUBE-SEP-10.244.0.1 --rcheck --seconds 600 --reap -j KUBE-SEP-10.244.0.1",
      "nat -A KUBE-SVC -m statistic --mode random --probability 0.5000000000 -j KUBE-SEP-10.244.0.1",
      "nat -A KUBE-SVC -j KUBE-SEP-10.244.1.1",
      "nat -A KUBE-SEP-10.244.1.1 -s 10.244.1.1 -j KUBE-MARK-MASQ",
      "nat -A KUBE-SEP-10.244.1.1 -m recent --name KUBE-SEP-10.244.1.1 --set -m tcp -p tcp -j DNAT --to-destination 10.244.1.1:8080",
      `nat -A KUBE-EXT -m comment --comment "masquerade traffic for shop/web external destinations" -j KUBE-MARK-MASQ`,
      "nat -A KUBE-NODEPORTS -m comment --comment shop/web -m tcp -p tcp --dport 30080 -j KUBE-EXT",
    ],
    not: ["->"],
  },
  {
    rule: "not-ready endpoints do not count",
    port: {},
    endpoints: [testEndpoint("10.244.0.1", { ready: false, serving: false })],
    has: [`filter -A KUBE-SERVICES ${NONE} ${to("10.96.0.10")} -j REJECT`],
  },
];

for (const { rule, port, endpoints, context, has = [], not = [] } of CASES) {
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
