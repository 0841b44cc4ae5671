/**
 * Which rules of iptables mode each kind of Service has.
 *
 * @module
 */
import type { Endpoint, ServicePort } from "../../lib/model/state.ts";
import { testEndpoint } from "./model_objects.ts";
import type { ServiceRulesContext } from "../../lib/backend/iptables/plan/service_rules.ts";

const LOCAL = testEndpoint("10.244.0.1", { isLocal: true });
export const REMOTE = testEndpoint("10.244.1.1");
const EXTERNAL_IP = { externalIPs: ["198.51.100.7"] };
export const LB = { loadBalancerVIPs: ["203.0.113.1", "203.0.113.2"] };
export const NODE_PORT = { nodePort: 30080 };
const RANGES = { loadBalancerSourceRanges: ["198.18.0.0/15"] };
export const ETP_LOCAL = { externalPolicyLocal: true };
const ITP_LOCAL = { internalPolicyLocal: true };
const to = (ip: string): string => `-m tcp -p tcp -d ${ip} --dport 80`;
const NONE = `-m comment --comment "shop/web has no endpoints"`;
const NONE_LOCAL = `-m comment --comment "shop/web has no local endpoints"`;

/** Each case: rules that must be there and fragments that must not be in any rule. */
export const IPTABLES_RULE_CASES: readonly {
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
    rule: "8′: node port on 127.0.0.1, counted before all others",
    port: NODE_PORT,
    endpoints: [REMOTE],
    context: { countsLocalhostNodePorts: true },
    has: [
      "nat -A KUBE-NODEPORTS -m comment --comment shop/web -m tcp -p tcp -d 127.0.0.0/8 --dport 30080 -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT",
      "nat -A KUBE-NODEPORTS -m comment --comment shop/web -m tcp -p tcp --dport 30080 -j KUBE-EXT",
    ],
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
