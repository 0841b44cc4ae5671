import { assertEquals, assertThrows } from "@std/assert";
import { nodePortAddresses } from "../../../model/node.ts";
import { JUMP_RULES, planBaseRules, usesLocalhostNodePorts } from "./base_rules.ts";
import type { IptablesOptions } from "./ruleset.ts";

function options(changes: Partial<IptablesOptions> = {}): IptablesOptions {
  const family = changes.family ?? "IPv4";
  return {
    family,
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "none" },
    localhostNodePorts: true,
    nodePortAddresses: nodePortAddresses(family, null),
    nodePortIps: [],
    nodeIp: family === "IPv4" ? "192.0.2.10" : "2001:db8::10",
    randomFully: true,
    dropInvalid: true,
    nfacct: false,
    ...changes,
  };
}

const TAIL =
  `-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"`;
const LAN4 = nodePortAddresses("IPv4", ["192.0.2.0/24"]);
const LAN6 = nodePortAddresses("IPv6", ["2001:db8::/64"]);
const LOOPBACK4 = nodePortAddresses("IPv4", ["127.0.0.0/8", "192.0.2.0/24"]);

for (
  const [name, changes, tail] of [
    ["all, IPv4, localhost", {}, [`${TAIL} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`]],
    ["all by a zero CIDR", { nodePortAddresses: nodePortAddresses("IPv4", ["0.0.0.0/0"]) }, [
      `${TAIL} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`,
    ]],
    ["all, IPv4, no localhost", { localhostNodePorts: false }, [
      `${TAIL} -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS`,
    ]],
    ["all, IPv6", { family: "IPv6" as const }, [
      `${TAIL} -m addrtype --dst-type LOCAL ! -d ::1/128 -j KUBE-NODEPORTS`,
    ]],
    ["networks: a rule per address", { nodePortAddresses: LAN4, nodePortIps: ["192.0.2.1", "192.0.2.7"] }, [
      `${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`,
      `${TAIL} -d 192.0.2.7 -j KUBE-NODEPORTS`,
    ]],
    ["networks without an address here", { nodePortAddresses: LAN4 }, []],
    ["loopback listed: kept where localhost node ports work", {
      nodePortAddresses: LOOPBACK4,
      nodePortIps: ["127.0.0.1", "192.0.2.1"],
    }, [`${TAIL} -d 127.0.0.1 -j KUBE-NODEPORTS`, `${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`]],
    ["loopback listed, localhost node ports off: left out", {
      localhostNodePorts: false,
      nodePortAddresses: LOOPBACK4,
      nodePortIps: ["127.0.0.1", "192.0.2.1"],
    }, [`${TAIL} -d 192.0.2.1 -j KUBE-NODEPORTS`]],
    ["IPv6 loopback: always left out", {
      family: "IPv6" as const,
      nodePortAddresses: LAN6,
      nodePortIps: ["::1", "2001:db8::1"],
    }, [`${TAIL} -d 2001:db8::1 -j KUBE-NODEPORTS`]],
  ] as const
) {
  Deno.test(`node-port tail: ${name}`, { permissions: "none" }, () => {
    assertEquals(planBaseRules(options(changes)).tail.nat, [...tail]);
  });
}

Deno.test("a node-port address of the other family is refused", { permissions: "none" }, () => {
  const wrong = options({ nodePortAddresses: LAN4, nodePortIps: ["2001:db8::1"] });
  assertThrows(() => planBaseRules(wrong), RangeError, "2001:db8::1");
});

for (
  const [name, changes, uses] of [
    ["IPv4 by default", {}, true],
    ["switched off", { localhostNodePorts: false }, false],
    ["IPv6", { family: "IPv6" as const }, false],
    ["only LAN addresses", { nodePortAddresses: LAN4 }, false],
    ["loopback among the addresses", { nodePortAddresses: LOOPBACK4 }, true],
  ] as const
) {
  Deno.test(`localhost node ports: ${name}`, { permissions: "none" }, () => {
    assertEquals(usesLocalhostNodePorts(options(changes)), uses);
    const { chains, head } = planBaseRules(options(changes));
    assertEquals(head.filter.length, uses ? 1 : 0);
    assertEquals(chains.filter.includes("KUBE-FIREWALL"), uses);
  });
}

Deno.test("static rules of nat", { permissions: "none" }, () => {
  assertEquals(planBaseRules(options({ masqueradeMark: 1 << 20 })).head.nat, [
    "-A KUBE-POSTROUTING -m mark ! --mark 0x00100000/0x00100000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --xor-mark 0x00100000",
    `-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`,
    "-A KUBE-MARK-MASQ -j MARK --or-mark 0x00100000",
  ]);
  assertEquals(
    planBaseRules(options({ randomFully: false })).head.nat[2],
    `-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE`,
  );
});

Deno.test("static rules of filter", { permissions: "none" }, () => {
  const { head, tail, ruleCounts } = planBaseRules(options());
  assertEquals(head.filter, [
    `-A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
  ]);
  const accepts = [
    `-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x00004000/0x00004000 -j ACCEPT`,
    `-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
  ];
  assertEquals(tail.filter, ["-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP", ...accepts]);
  assertEquals(planBaseRules(options({ dropInvalid: false })).tail.filter, accepts);
  assertEquals(ruleCounts, { filter: 4, nat: 5 });
});

Deno.test("the fourteen jumps, in the order of insertion", { permissions: "none" }, () => {
  const fresh = "-m conntrack --ctstate NEW -m comment --comment";
  assertEquals(JUMP_RULES.map(({ table, chain, args }) => `${table} ${chain} ${args}`), [
    `filter INPUT ${fresh} "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`,
    `filter FORWARD ${fresh} "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`,
    `filter INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS`,
    `filter FORWARD ${fresh} "kubernetes service portals" -j KUBE-SERVICES`,
    `filter OUTPUT ${fresh} "kubernetes service portals" -j KUBE-SERVICES`,
    `filter FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`,
    `filter INPUT ${fresh} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
    `filter OUTPUT ${fresh} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
    `filter FORWARD ${fresh} "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`,
    `nat OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
    `nat PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
    `nat POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`,
    "filter INPUT -j KUBE-FIREWALL",
    "filter OUTPUT -j KUBE-FIREWALL",
  ]);
});
