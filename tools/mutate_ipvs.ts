/**
 * What the `mutate` task takes out of, or gets wrong in, the planner of IPVS mode. Numbers are those of
 * `lib/backend/ipvs/README.md`.
 *
 * @module
 */
import type { Mutation } from "./mutate.ts";

const BASE = "lib/backend/ipvs/plan/base_rules.ts";
const CLAIMS = "lib/backend/ipvs/plan/service_claims.ts";
const DIFF = "lib/backend/ipvs/diff/diff.ts";
const JUMPS = "lib/netfilter/iptables_jumps.ts";
const OPERATIONS = "lib/backend/ipvs/diff/operations.ts";
const SCHEDULERS = "lib/backend/ipvs/apply/apply_schedulers.ts";
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
    'this.whileFilled(["nat", POSTROUTING], "KUBE-LOOP-BACK", "dst,dst,src", "-j MASQUERADE"), // 2',
    "",
  ],
  ["3", 'this.whileFilled(services, "KUBE-LOAD-BALANCER", "dst,dst", `-j ${LOAD_BALANCER}`), // 3', ""],
  [
    "4",
    'this.whileFilled(["nat", LOAD_BALANCER], "KUBE-LOAD-BALANCER-LOCAL", "dst,dst", "-j RETURN"), // 4',
    "",
  ],
  ["5", "...this.nodePorts(), // 5", ""],
  ["5, policy Local", 'this.whileFilled(place, local, directions, "-j RETURN", `-p ${protocol} `),', ""],
  ["6", "`-j ${SOURCE_RANGES}`,", "`-j RETURN`,"],
  [
    "7",
    'this.whileFilled(ranges, "KUBE-LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", "-j RETURN"), // 7',
    "",
  ],
  [
    "7, the load-balancer IP as source",
    'this.whileFilled(ranges, "KUBE-LOAD-BALANCER-SOURCE-IP", "dst,dst,src", "-j RETURN"),',
    "",
  ],
  ["8", "this.clusterIps(), // 8", ""],
  ["8, masqueradeAll", 'masqueradeAll || fragment === null ? "" :', 'fragment === null ? "" :'],
  ["8, no way to tell pods", 'masqueradeAll || fragment !== null ? "dst,dst" : "src,dst"', '"dst,dst"'],
  ["9", 'this.whileFilled(place, "KUBE-EXTERNAL-IP", "dst,dst", `-j ${MARK_MASQ}`), // 9', ""],
  ["9, accepted", '...accepts("KUBE-EXTERNAL-IP"),', ""],
  ["10", '...accepts("KUBE-EXTERNAL-IP-LOCAL"), // 10', ""],
  ["11", "always(SERVICES, `-m addrtype --dst-type LOCAL -j ${NODE_PORT}`), // 11", ""],
  ["12", "always(LOAD_BALANCER, `-j ${MARK_MASQ}`), // 12", ""],
  ["13", '{ table: "filter", chain: SOURCE_RANGES, rule: "-j DROP", needs: "" }, // 13', ""],
  ["15", 'accept("KUBE-CLUSTER-IP"), // 15', ""],
  ["15, load balancers", '      accept("KUBE-LOAD-BALANCER"),\n', ""],
  [
    "16, established",
    "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-m conntrack --ctstate RELATED -j ACCEPT",
  ],
  ["17", 'rule(NODE_PORT, `${this.commented("KUBE-HEALTH-CHECK-NODE-PORT", "dst")} -j ACCEPT`), // 17', ""],
  [
    "18",
    'rule(IPVS_FILTER, `-m conntrack --ctstate NEW ${this.matchSet("KUBE-IPVS-IPS", "dst")} -j REJECT`),',
    "",
  ],
  [
    "18, what is known",
    '...known.map((kind) => rule(IPVS_FILTER, `${this.matchSet(kind, "dst,dst")} -j RETURN`)), // 18',
    "",
  ],
  ["19, set the mark", "always(MARK_MASQ, `-j MARK --or-mark ${mark}`),", ""],
  ["19, unmarked", "always(POSTROUTING, `-m mark ! --mark ${mark}/${mark} -j RETURN`), // 19", ""],
];

const CLAIMED: readonly (readonly [name: string, find: string, replace: string])[] = [
  [
    "14: the node is let in",
    'const outFilter = guarded && !nodeMayPass ? outFilterRule(ip, servicePort) : "";',
    'const outFilter = "";',
  ],
  ["14: the node is kept out", "guarded && !nodeMayPass ?", "guarded ?"],
  [
    "the cluster IP follows the external policy",
    "internal: reachable(servicePort.internalPolicyLocal)",
    "internal: reachable(servicePort.externalPolicyLocal)",
  ],
  [
    "external addresses follow the internal policy",
    "external: reachable(servicePort.externalPolicyLocal)",
    "external: reachable(servicePort.internalPolicyLocal)",
  ],
];

const UNIT: readonly Mutation[] = [
  unit(
    DIFF,
    "a server keeps its scheduler",
    'draft.server({ kind: "updateServer", server: after.server });',
    "",
  ),
  unit(
    DIFF,
    "a server stays",
    "draft.deleteServer(before.server, { isBound: before.bind, isNamed: true });",
    "",
  ),
  unit(
    OPERATIONS,
    "addresses first",
    ": [before, ipset, iptables, after, ip],",
    ": [ip, before, ipset, iptables, after],",
  ),
  unit(
    OPERATIONS,
    "entries go before the server they show to be ours",
    ": [before, ipset, iptables, after, ip],",
    ": [ipset, iptables, before, after, ip],",
  ),
  unit(
    OPERATIONS,
    "an address goes before the server that only it shows to be ours",
    "else if (!isNamed) this.#dropsBoundOnly = true;",
    "",
  ),
  unit(
    OPERATIONS,
    "an entry goes before it comes to another set",
    "if (!isTight) this.#removed.push(...lines);",
    "if (!isTight) this.#ipset.push(...lines);",
  ),
  unit(
    OPERATIONS,
    "a full set has no room for what comes",
    "if (isTight) this.#ipset.push(...lines);",
    "if (isTight) this.#removed.push(...lines);",
  ),
  unit(
    OPERATIONS,
    "where things only go, the address last",
    ": [ip, servers, iptables, ipset]);",
    ": [ipset, iptables, servers, ip]);",
  ),
  unit(
    OPERATIONS,
    "iptables mode is cut off before its successor serves",
    "rulesLast ? [before, ipset, after, ip, iptables]",
    "rulesLast ? [before, ipset, iptables, after, ip]",
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
    "commands: unknown.size > 0 ? 1 : 0",
    "commands: 0",
  ),
  unit(SCHEDULERS, "a scheduler is tried by every sync", "&& !this.#usable.has(scheduler)", ""),
  unit(SETS, "IPv6 names are not cut", ".slice(0, MAX_SET_NAME_LENGTH)", ""),
];

export const IPVS_MUTATIONS: readonly Mutation[] = [
  ...NUMBERED.map(([name, find, replace]) => inFile(BASE, `rule ${name}`, find, replace)),
  ...CLAIMED.map(([name, find, replace]) =>
    inFile(CLAIMS, /^\d/.test(name) ? `rule ${name}` : name, find, replace)
  ),
  ...UNIT,
];
