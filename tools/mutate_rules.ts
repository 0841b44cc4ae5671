/**
 * What the `mutate` task takes out of, or gets wrong in, the planner of iptables mode. Numbers are those of
 * `lib/backend/iptables/README.md`.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const SERVICE = "lib/backend/iptables/plan/service_rules.ts";
const BASE = "lib/backend/iptables/plan/base_rules.ts";
const SHARED = "lib/backend/planning.ts";
const PLAN = "lib/backend/iptables/plan/plan.ts";

function inFile(file: string, name: string, find: string, replace: string): Mutation {
  return { name, edits: [{ file, find, replace }] };
}

const NUMBERED: readonly (readonly [name: string, find: string, replace: string])[] = [
  [
    "1",
    'add("nat", SERVICES_CHAIN, `${commented("cluster IP")} ${to(servicePort.clusterIP)} -j ${target}`);',
    "",
  ],
  ["2", 'add("filter", SERVICES_CHAIN, `${verdictComment} ${to(servicePort.clusterIP)} -j ${verdict}`);', ""],
  ["3", 'add("nat", SERVICES_CHAIN, `${commented("external IP")} ${to(ip)} -j ${chains.external}`);', ""],
  ["4", "if (!facts.hasExternal) { // 4", "if (false) {"],
  ["5", 'add("nat", SERVICES_CHAIN, `${commented("loadbalancer IP")} ${to(ip)} -j ${target}`);', ""],
  ["6", "if (facts.writesFirewall) { // 6", "if (false) {"],
  ["7", "if (!facts.hasExternal) { // 7", "if (false) {"],
  ["8", "if (facts.hasEndpoints) { // 8", "if (false) {"],
  ["9", "if (!facts.hasExternal) { // 9", "if (false) {"],
  ["10", "if (servicePort.healthCheckNodePort !== 0) { // 10", "if (false) { // 10"],
  ["12", 'context.masqueradeAll ? "" : ` ! ${pods}`', "` ! ${pods}`"],
  ["12′", "!facts.hasInternal || pods === null &&", "!facts.hasInternal || true &&"],
  ["13", 'rules.push(`${start("masquerade traffic")} -j ${MARK_MASQ_CHAIN}`);', ""],
  ["14", "if (pods !== null) rules.push", "if (false) rules.push"],
  ["15", 'rules.push(`${start("masquerade LOCAL traffic")} ${own} -j ${MARK_MASQ_CHAIN}`);', ""],
  ["16", 'rules.push(`${start("route LOCAL traffic")} ${own} -j ${cluster}`);', ""],
  ["17", "if (facts.hasExternal) rules.push", "if (false) rules.push"],
  ["18", "rules.push(accept(range)); // 18", ""],
  ["19", "if (letsNodeIn(facts.servicePort, context.nodeIp)) {", "if (false) {"],
  ["20", "rules.push(\n    `-A ${firewall}", "[].push(\n    `-A ${firewall}"],
  ["21", "addPolicyChain(facts.chains.cluster, facts.cluster, facts, context, endpointChains, rules);", ""],
  ["22", "addPolicyChain(facts.chains.local, facts.local, facts, context, endpointChains, rules);", ""],
  ["23, hairpin", "rules.push(`${start} -s ${endpoint.ip} -j ${MARK_MASQ_CHAIN}`);", ""],
  [
    "23, DNAT",
    "rules.push(`${start}${recent} ${facts.protocolMatch} -j DNAT --to-destination ${endpoint.key}`);",
    "",
  ],
  [
    "23, endpoints of the local policy only",
    "for (const endpoint of [...facts.cluster, ...facts.local])",
    "for (const endpoint of facts.cluster)",
  ],
  ["21, affinity looked up", "if (stickyMaxAgeSeconds > 0) {", "if (false) {"],
  [
    "23, affinity recorded",
    'const recent = stickyMaxAgeSeconds > 0 ? ` -m recent --name ${chain} --set` : "";',
    'const recent = "";',
  ],
];

const DECISIONS: readonly (readonly [name: string, find: string, replace: string])[] = [
  ["node ports refuse for other hosts", 'const local = "-m addrtype --dst-type LOCAL";', 'const local = "";'],
  [
    "health checks speak the Service's protocol",
    "const port = `-m tcp -p tcp --dport ${servicePort.healthCheckNodePort}`;",
    "const port = `${protocolMatch} --dport ${servicePort.healthCheckNodePort}`;",
  ],
  ["the last endpoint is left to chance", "const choice = left > 1 ?", "const choice = left > 0 ?"],
  ["pods are let in as others are kept out", "` ! ${pods}`", "` ${pods}`"],
];

const STATIC: readonly (readonly [name: string, find: string, replace: string])[] = [
  ["jumps: external services", '["INPUT", "FORWARD"].map((chain) =>', "[].map((chain) =>"],
  [
    "jumps: health checks",
    'jump("filter", "INPUT", NODE_PORTS_CHAIN, "kubernetes health check service ports"),',
    "",
  ],
  ["jumps: services", '["FORWARD", "OUTPUT"].map((chain) =>', "[].map((chain) =>"],
  ["jumps: forwarding", 'jump("filter", "FORWARD", FORWARD_CHAIN, "kubernetes forwarding rules"),', ""],
  ["jumps: load-balancer firewall", '["INPUT", "OUTPUT", "FORWARD"].map((chain) =>', "[].map((chain) =>"],
  ["jumps: nat services", '["OUTPUT", "PREROUTING"].map((chain) =>', "[].map((chain) =>"],
  [
    "jumps: postrouting",
    'jump("nat", "POSTROUTING", POSTROUTING_CHAIN, "kubernetes postrouting rules"),',
    "",
  ],
  ["jumps: localnet guard", '["INPUT", "OUTPUT"].map((chain)', "[].map((chain)"],
  ["unmarked packets return", "`-A ${POSTROUTING_CHAIN} -m mark ! --mark ${mark}/${mark} -j RETURN`,", ""],
  ["clear the mark", "`-A ${POSTROUTING_CHAIN} -j MARK --xor-mark ${mark}`,", ""],
  ["set the mark", "`-A ${MARK_MASQ_CHAIN} -j MARK --or-mark ${mark}`,", ""],
  ["masquerade", '" -j MASQUERADE --random-fully"', '" -j ACCEPT"'],
  [
    "forward what is marked",
    '--comment "kubernetes forwarding rules" -m mark --mark ${mark}/${mark} -j ACCEPT',
    '--comment "kubernetes forwarding rules" -m mark --mark ${mark}/${mark}',
  ],
  [
    "forward what is established",
    "` -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`",
    "` -m conntrack --ctstate RELATED,ESTABLISHED`",
  ],
  ["node-port tail takes IPv6 localhost", '" ! -d ::1/128"', '""'],
  ["node-port tail takes localhost although off", '" ! -d 127.0.0.0/8"', '""'],
];

export const RULE_MUTATIONS: readonly Mutation[] = [
  ...NUMBERED.map(([name, find, replace]) => inFile(SERVICE, `rule ${name}`, find, replace)),
  ...DECISIONS.map(([name, find, replace]) => inFile(SERVICE, name, find, replace)),
  ...STATIC.map(([name, find, replace]) => inFile(BASE, name, find, replace)),
  inFile(
    SHARED,
    "an interface prefix is a whole name",
    "`-i ${detector.prefix}+`",
    "`-i ${detector.prefix}`",
  ),
  inFile(
    PLAN,
    "the node's own address is not known",
    "nodeIp: nodeIp?.family === options.family ? nodeIp : null",
    "nodeIp: null",
  ),
];
