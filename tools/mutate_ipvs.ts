/**
 * What the `mutate` task takes out of, or gets wrong in, the planner of IPVS mode. Numbers are those of
 * `lib/backend/ipvs/README.md`.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const BASE = "lib/backend/ipvs/plan/base_rules.ts";
const SERVICES = "lib/backend/ipvs/plan/plan.ts";
const STORE = "lib/backend/ipvs/store/store.ts";
const OBJECTS = "lib/backend/ipvs/store/objects.ts";
const JUMPS = "lib/netfilter/iptables_jumps.ts";
const TRANSACTION = "lib/backend/ipvs/store/transaction.ts";
const SCHEDULERS = "lib/backend/ipvs/apply/proxier.ts";
const SETS = "lib/backend/ipvs/plan/sets.ts";

function inFile(file: string, name: string, find: string, replace: string): Mutation {
  return { name: `ipvs ${name}`, edits: [{ file, find, replace }] };
}

/** What neither packets nor captures show. */
function unit(file: string, name: string, find: string, replace: string): Mutation {
  return { ...inFile(file, name, find, replace), unitTests: true };
}

const NUMBERED: readonly (readonly [name: string, find: string, replace: string])[] = [
  ["1", 'always(SERVICES, `-s ${family === "IPv4" ? "127.0.0.0/8" : "::1/128"} -j RETURN`), // 1', ""],
  [
    "2",
    'rules.whileFilled(POSTROUTING, "KUBE-LOOP-BACK", "dst,dst,src", "-j MASQUERADE"), // 2',
    "",
  ],
  ["3", 'rules.whileFilled(SERVICES, "KUBE-LOAD-BALANCER", "dst,dst", `-j ${LOAD_BALANCER}`), // 3', ""],
  [
    "4",
    'rules.whileFilled(LOAD_BALANCER, "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "-j RETURN"), // 4',
    "",
  ],
  ["5", "...nodePorts(rules), // 5", ""],
  ["5, policy Local", 'rules.whileFilled(NODE_PORT, local, directions, "-j RETURN", `-p ${protocol} `),', ""],
  ["6", "`-j ${SOURCE_RANGES}`),", "`-j RETURN`),"],
  [
    "7",
    'rules.whileFilled(SOURCE_RANGES, "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "-j RETURN"), // 7',
    "",
  ],
  [
    "7, the load-balancer IP as source",
    'rules.whileFilled(SOURCE_RANGES, "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "-j RETURN"),',
    "",
  ],
  ["8", "clusterIps(rules, options), // 8", ""],
  ["8, masqueradeAll", 'masqueradeAll || fragment === null ? "" :', 'fragment === null ? "" :'],
  ["8, no way to tell pods", 'masqueradeAll || fragment !== null ? "dst,dst" : "src,dst"', '"dst,dst"'],
  ["9", 'rules.whileFilled(SERVICES, "KUBE-EXTERNAL-IP", "dst,dst", `-j ${MARK_MASQ}`), // 9', ""],
  ["9, accepted", '...accepts("KUBE-EXTERNAL-IP"),', ""],
  ["10", '...accepts("KUBE-EXTERNAL-IP-LOCAL"), // 10', ""],
  ["11", "always(SERVICES, `-m addrtype --dst-type LOCAL -j ${NODE_PORT}`), // 11", ""],
  ["12", "always(LOAD_BALANCER, `-j ${MARK_MASQ}`), // 12", ""],
  ["13", 'always(SOURCE_RANGES, "-j DROP"), // 13', ""],
  ["15", 'rules.accept(SERVICES, "KUBE-CLUSTER-IP"), // 15', ""],
  ["15, load balancers", '    rules.accept(SERVICES, "KUBE-LOAD-BALANCER"),\n', ""],
  [
    "16, established",
    "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-m conntrack --ctstate RELATED -j ACCEPT",
  ],
  [
    "17",
    'always(NODE_PORT, `${rules.commented("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`), // 17',
    "",
  ],
  [
    "18",
    'always(IPVS_FILTER, `-m conntrack --ctstate NEW ${rules.matchSet("KUBE-IPVS-IPS", "dst")} -j REJECT`),',
    "",
  ],
  [
    "18, what is known",
    '...KNOWN.map((kind) => always(IPVS_FILTER, `${rules.matchSet(kind, "dst,dst")} -j RETURN`)), // 18',
    "",
  ],
  ["19, set the mark", "always(MARK_MASQ, `-j MARK --or-mark ${mark}`),", ""],
  ["19, unmarked", "always(POSTROUTING, `-m mark ! --mark ${mark}/${mark} -j RETURN`), // 19", ""],
];

const OF_SERVICES: readonly (readonly [name: string, find: string, replace: string])[] = [
  [
    "14: the node is let in",
    'const outFilter = guarded && !nodeMayPass ? outFilterRule(ip, servicePort) : "";',
    'const outFilter = "";',
  ],
  ["14: the node is kept out", "guarded && !nodeMayPass ?", "guarded ?"],
  [
    "the cluster IP follows the external policy",
    "const internal = reachable(servicePort.internalPolicyLocal)",
    "const internal = reachable(servicePort.externalPolicyLocal)",
  ],
  [
    "external addresses follow the internal policy",
    "const external = reachable(servicePort.externalPolicyLocal)",
    "const external = reachable(servicePort.internalPolicyLocal)",
  ],
];

const UNIT: readonly Mutation[] = [
  unit(SERVICES, "mh without the port", 'scheduler === "mh" ? ["mh-port"] : []', "[]"),
  unit(
    SERVICES,
    "the Service's scheduler is ignored",
    'asked === "" || isMissing ? scheduler : asked',
    "scheduler",
  ),
  unit(
    SERVICES,
    "health-check node ports without node addresses",
    "if (nodePort !== 0 && nodePortIps.length === 0) return;",
    "",
  ),
  unit(
    STORE,
    "an entry goes with its first Service",
    "if (count === 0) entries.delete(text);",
    "if (by < 0) entries.delete(text);",
  ),
  unit(STORE, "Services that are not in a full plan stay", "if (plan.all) {", "if (false) {"),
  unit(
    STORE,
    "rules of Services stay as they were",
    "transaction.rules = rules.transaction;",
    "",
  ),
  unit(
    STORE,
    "a server that its Service gives up goes from the next one, too",
    "if (owners.length === 0) this.#servers.delete(key);",
    "if (owners.length <= 1) this.#servers.delete(key);",
  ),
  unit(
    STORE,
    "the address of a server is not of its change",
    "for (const entry of this.#entriesOf(server)) this.#count(entry, by);",
    "for (const entry of server.entries) this.#count(entry, by);",
  ),
  unit(
    OBJECTS,
    "a server keeps its scheduler",
    "} else if (!sameTreatment(found.server, server)) {",
    "} else if (false) {",
  ),
  unit(
    OBJECTS,
    "a server stays",
    'servers.push({ kind: "deleteServer", server, evidence, line: deleteVirtualServerLine(server) });',
    "",
  ),
  unit(OBJECTS, "sets never grow", "found.definition.maxElements < maxElements", "false"),
  unit(
    TRANSACTION,
    "addresses first",
    ": [before, ipset, iptables, after, ip]).filter",
    ": [ip, before, ipset, iptables, after]).filter",
  ),
  unit(
    TRANSACTION,
    "entries go before the server they show to be ours",
    ": [before, ipset, iptables, after, ip]).filter",
    ": [ipset, iptables, before, after, ip]).filter",
  ),
  unit(
    TRANSACTION,
    "a server comes before the entries that show it to be ours",
    "addsEntries && addsServers ? named : this.servers",
    "this.servers",
  ),
  unit(
    TRANSACTION,
    "an address goes before the server that only it shows to be ours",
    "(dropsBound ? [servers, ip, iptables, ipset] : [ip, servers, iptables, ipset])",
    "[ip, servers, iptables, ipset]",
  ),
  unit(
    OBJECTS,
    "an entry goes before it comes to another set",
    "? { set, lines: missing.map(add), deletions }",
    "? { set, lines: [...deletions, ...missing.map(add)], deletions: [] }",
  ),
  unit(
    OBJECTS,
    "a full set has no room for what comes",
    ": { set, lines: [...deletions, ...missing.map(add)], deletions: [] },",
    ": { set, lines: missing.map(add), deletions },",
  ),
  unit(
    TRANSACTION,
    "where things only go, the address last",
    ": [ip, servers, iptables, ipset])",
    ": [ipset, iptables, servers, ip])",
  ),
  unit(
    TRANSACTION,
    "iptables mode is cut off before its successor serves",
    "? [before, ipset, after, ip, iptables]",
    "? [before, ipset, iptables, after, ip]",
  ),
  unit(
    OBJECTS,
    "a weight of 0 stays",
    "if (there === undefined || isAsWritten(there)) continue;",
    "continue;",
  ),
  unit(
    OBJECTS,
    "every virtual server is ours",
    "isBound: addresses?.has(ip.text) === true,",
    "isBound: true,",
  ),
  unit(
    OBJECTS,
    "excluded virtual servers are ours",
    "|| excludeCIDRs.some((cidr) => cidrContains(cidr, ip))",
    "",
  ),
  unit(
    OBJECTS,
    "no virtual server of a node port is ours",
    "hostIps.includes(ip.text) && has(`KUBE-NODE-PORT-${protocol}`, portEntry(port))",
    "false",
  ),
  unit(
    OBJECTS,
    "an external IP on the node is not ours",
    "isNodePort() || NAMING_SETS.some((kind) => has(kind, entry))",
    "isNodePort()",
  ),
  unit(OBJECTS, "addresses of the other family go", "if (parseIp(address)?.family === family && !", "if (!"),
  unit(
    OBJECTS,
    "a growing set stays",
    "if (held.sets.has(growing)) sets.push({ set: growing, lines: [destroySetLine(growing)], deletions: [] });",
    "",
  ),
  unit(
    JUMPS,
    "lost jumps come back on top",
    "previous = Math.max(previous, at);",
    "",
  ),
  inFile(
    SETS,
    "a set of another type",
    '"KUBE-IPVS-IPS": { type: "hash:ip",',
    '"KUBE-IPVS-IPS": { type: "hash:ip,port",',
  ),
  unit(
    SCHEDULERS,
    "a try of schedulers does not count",
    "commands++;",
    "",
  ),
  unit(SCHEDULERS, "a scheduler is tried by every sync", " || this.#tried.has(scheduler)", ""),
  unit(SETS, "IPv6 names are not cut", ".slice(0, MAX_SET_NAME_LENGTH)", ""),
];

export const IPVS_MUTATIONS: readonly Mutation[] = [
  ...NUMBERED.map(([name, find, replace]) => inFile(BASE, `rule ${name}`, find, replace)),
  ...OF_SERVICES.map(([name, find, replace]) =>
    inFile(SERVICES, /^\d/.test(name) ? `rule ${name}` : name, find, replace)
  ),
  ...UNIT,
];
