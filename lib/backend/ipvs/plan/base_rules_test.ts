/** Each rule that kube-proxy writes in mode ipvs, by its number there (as `deno task mutate` names them), and its jump rules. */
import { assertEquals, assertThrows } from "@std/assert";
import { exampleIpvsOptions } from "../../../../tests/support/golden_ipvs.ts";
import { JUMP_RULES, OUT_FILTER_CHAIN, planBaseRules } from "./base_rules.ts";
import type { BaseRule, IpvsOptions } from "./ruleset.ts";

const pure = { permissions: "none" } as const;

/** All base rules with their tables; without the placeholder for rules of Services. */
function allRules(
  changes: Partial<IpvsOptions> = {},
  family: "IPv4" | "IPv6" = "IPv4",
): readonly (BaseRule & { readonly table: string })[] {
  const { rules } = planBaseRules(exampleIpvsOptions(family, changes));
  return (["nat", "filter"] as const).flatMap((table) => rules[table].map((rule) => ({ ...rule, table })))
    .filter(({ chain }) => chain !== OUT_FILTER_CHAIN);
}

/** Rules of a chain, each with the set it waits for. */
function chain(place: string, rules: ReturnType<typeof allRules> = allRules()): string[] {
  return rules.filter((rule) => `${rule.table} ${rule.chain}` === place)
    .map(({ rule, needs }) => (needs === "" ? "" : `${needs}? `) + rule);
}

const LB =
  `-m comment --comment "Kubernetes service lb portal" -m set --match-set KUBE-LOAD-BALANCER dst,dst`;
const EXTERNAL =
  `-m comment --comment "Kubernetes service external ip + port for masquerade and filter purpose" -m set --match-set KUBE-EXTERNAL-IP dst,dst`;
const EXTERNAL_LOCAL =
  `-m comment --comment "Kubernetes service external ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-EXTERNAL-IP-LOCAL dst,dst`;
const CLUSTER =
  `-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP`;
const FROM_ELSEWHERE = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT";

const CHAINS: Readonly<Record<string, readonly string[]>> = {
  "nat KUBE-SERVICES": [
    "-s 127.0.0.0/8 -j RETURN", // 1
    `KUBE-LOAD-BALANCER? ${LB} -j KUBE-LOAD-BALANCER`, // 3
    `KUBE-CLUSTER-IP? ${CLUSTER} dst,dst ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ`, // 8
    `KUBE-EXTERNAL-IP? ${EXTERNAL} -j KUBE-MARK-MASQ`, // 9
    `KUBE-EXTERNAL-IP? ${EXTERNAL} ${FROM_ELSEWHERE}`,
    `KUBE-EXTERNAL-IP? ${EXTERNAL} -m addrtype --dst-type LOCAL -j ACCEPT`,
    `KUBE-EXTERNAL-IP-LOCAL? ${EXTERNAL_LOCAL} ${FROM_ELSEWHERE}`, // 10
    `KUBE-EXTERNAL-IP-LOCAL? ${EXTERNAL_LOCAL} -m addrtype --dst-type LOCAL -j ACCEPT`,
    "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT", // 11
    "KUBE-CLUSTER-IP? -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT", // 15
    "KUBE-LOAD-BALANCER? -m set --match-set KUBE-LOAD-BALANCER dst,dst -j ACCEPT",
  ],
  "nat KUBE-POSTROUTING": [
    `KUBE-LOOP-BACK? -m comment --comment "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose" -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE`, // 2
    "-m mark ! --mark 0x00004000/0x00004000 -j RETURN", // 19
    "-j MARK --xor-mark 0x00004000",
    `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
  ],
  "nat KUBE-LOAD-BALANCER": [
    `KUBE-LOAD-BALANCER-LOCAL? -m comment --comment "Kubernetes service load balancer ip + port with externalTrafficPolicy=local" -m set --match-set KUBE-LOAD-BALANCER-LOCAL dst,dst -j RETURN`, // 4
    "-j KUBE-MARK-MASQ", // 12
  ],
  "nat KUBE-MARK-MASQ": ["-j MARK --or-mark 0x00004000"], // 19
  "nat KUBE-NODE-PORT": [ // 5
    ...[["tcp", "TCP"], ["udp", "UDP"]].flatMap(([protocol, set]) => [
      `KUBE-NODE-PORT-LOCAL-${set}? -p ${protocol} -m comment --comment "Kubernetes nodeport ${set} port with externalTrafficPolicy=local" -m set --match-set KUBE-NODE-PORT-LOCAL-${set} dst -j RETURN`,
      `KUBE-NODE-PORT-${set}? -p ${protocol} -m comment --comment "Kubernetes nodeport ${set} port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-${set} dst -j KUBE-MARK-MASQ`,
    ]),
    `KUBE-NODE-PORT-LOCAL-SCTP-HASH? -p sctp -m comment --comment "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'" -m set --match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN`,
    `KUBE-NODE-PORT-SCTP-HASH? -p sctp -m comment --comment "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'" -m set --match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ`,
  ],
  "filter KUBE-PROXY-FIREWALL": [ // 6
    `KUBE-LOAD-BALANCER-FW? -m comment --comment "Kubernetes service load balancer ip + port for load balancer with sourceRange" -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL`,
  ],
  "filter KUBE-SOURCE-RANGES-FIREWALL": [
    `KUBE-LOAD-BALANCER-SOURCE-CIDR? -m comment --comment "Kubernetes service load balancer ip + port + source cidr for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src -j RETURN`, // 7
    `KUBE-LOAD-BALANCER-SOURCE-IP? -m comment --comment "Kubernetes service load balancer ip + port + source IP for packet filter purpose" -m set --match-set KUBE-LOAD-BALANCER-SOURCE-IP dst,dst,src -j RETURN`,
    "-j DROP", // 13
  ],
  "filter KUBE-FORWARD": [ // 16
    `-m comment --comment "kubernetes forwarding rules" -m mark --mark 0x00004000/0x00004000 -j ACCEPT`,
    `-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
  ],
  "filter KUBE-NODE-PORT": [ // 17
    `-m comment --comment "Kubernetes health check node port" -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT`,
  ],
  "filter KUBE-IPVS-FILTER": [ // 18
    ...["KUBE-LOAD-BALANCER", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL"].map((set) =>
      `-m set --match-set ${set} dst,dst -j RETURN`
    ),
    "-m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",
    "-m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT",
  ],
};

for (const [place, rules] of Object.entries(CHAINS)) {
  Deno.test(`rules of ${place}`, pure, () => {
    assertEquals(chain(place), rules);
  });
}

Deno.test("there are no rules in other chains", pure, () => {
  const places = new Set(allRules().map(({ table, chain }) => `${table} ${chain}`));
  assertEquals([...places].sort(), Object.keys(CHAINS).sort());
});

const masquerading = (changes: Partial<IpvsOptions>): string =>
  chain("nat KUBE-SERVICES", allRules(changes)).find((rule) => rule.includes("cluster ip + port"))!
    .replace(`KUBE-CLUSTER-IP? ${CLUSTER} `, "");

const RULE_8: readonly (readonly [string, Partial<IpvsOptions>, string])[] = [
  ["masqueradeAll", { masqueradeAll: true }, "dst,dst -j KUBE-MARK-MASQ"],
  ["no way to tell pods", { detector: { kind: "none" } }, "src,dst -j KUBE-MARK-MASQ"],
  [
    "masqueradeAll and no way to tell pods",
    { masqueradeAll: true, detector: { kind: "none" } },
    "dst,dst -j KUBE-MARK-MASQ",
  ],
  ["an interface", { detector: { kind: "interface", name: "cni0" } }, "dst,dst ! -i cni0 -j KUBE-MARK-MASQ"],
  [
    "an interface prefix",
    { detector: { kind: "interfacePrefix", prefix: "veth" } },
    "dst,dst ! -i veth+ -j KUBE-MARK-MASQ",
  ],
];

for (const [name, changes, wanted] of RULE_8) {
  Deno.test(`rule 8 with ${name}`, pure, () => {
    assertEquals(masquerading(changes), wanted);
  });
}

Deno.test("another mark, IPv6", pure, () => {
  const rules = allRules({ masqueradeMark: 0x8000_0000 });
  assertEquals(chain("nat KUBE-MARK-MASQ", rules), ["-j MARK --or-mark 0x80000000"]);
  const six = allRules({}, "IPv6");
  assertEquals(chain("nat KUBE-SERVICES", six)[0], "-s ::1/128 -j RETURN");
  assertEquals(
    six.flatMap(({ rule }) => /--match-set (\S+)/.exec(rule)?.[1] ?? []).filter((set) =>
      !set.startsWith("KUBE-6-")
    ),
    [],
  );
  for (const masqueradeMark of [0, 3, -1, 2 ** 32]) {
    assertThrows(() => allRules({ masqueradeMark }), RangeError);
  }
});

Deno.test("nine jumps, in the order in which they are inserted", pure, () => {
  assertEquals(JUMP_RULES.map(({ table, chain, args }) => `${table} ${chain} ${args}`), [
    `nat OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
    `nat PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
    `nat POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
    `filter FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`,
    `filter INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`,
    `filter INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
    `filter FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`,
    `filter INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
    `filter OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER`,
  ]);
});
