import { assert, assertEquals, assertThrows } from "@std/assert";
import { exampleNftablesOptions } from "../../../../tests/support/golden_nftables.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { planBaseRules } from "./base_rules.ts";
import type { NftablesOptions } from "./ruleset.ts";

const NONE = { permissions: "none" } as const;

function rules(
  chain: string,
  changes: Partial<NftablesOptions> = {},
  family: IpFamily = "IPv4",
): readonly string[] {
  const base = planBaseRules(exampleNftablesOptions(family, changes));
  const found = base.chains.find(({ name }) => name === chain);
  if (found === undefined) throw new RangeError(`No chain ${chain}`);
  return found.rules;
}

const MASQUERADE_OUTSIDE = ' comment "masquerade clusterIP traffic from outside cluster"';
const TO_SERVICE = "ip daddr . meta l4proto . th dport vmap @service-ips";
const TO_NODE_PORT = "ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports";

for (
  const [what, changes, expected] of [
    ["by network", {}, [
      `ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["by interface", { detector: { kind: "interface", name: "cni0" } }, [
      `ip daddr @cluster-ips iifname != "cni0" meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["by prefix of interfaces", { detector: { kind: "interfacePrefix", prefix: "veth" } }, [
      `ip daddr @cluster-ips iifname != "veth*" meta mark set meta mark | 0x00004000${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["not detected", { detector: { kind: "none" } }, [TO_SERVICE, TO_NODE_PORT]],
    ["all masqueraded, whether detected or not", { masqueradeAll: true, detector: { kind: "none" } }, [
      'ip daddr @cluster-ips meta mark set meta mark | 0x00004000 comment "masquerade all clusterIP traffic"',
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
    ["another mark", { masqueradeMark: 1 }, [
      `ip daddr @cluster-ips ip saddr != 10.244.0.0/16 meta mark set meta mark | 0x00000001${MASQUERADE_OUTSIDE}`,
      TO_SERVICE,
      TO_NODE_PORT,
    ]],
  ] as readonly [string, Partial<NftablesOptions>, readonly string[]][]
) {
  Deno.test(
    `services, local traffic ${what}`,
    NONE,
    () => assertEquals(rules("services", changes), expected),
  );
}

Deno.test("node ports on all addresses leave out loopback", NONE, () => {
  const all = {
    nodePortAddresses: { matchAll: true, containsIPv4Loopback: true, cidrs: [] },
    nodePortIps: [],
  };
  const match = "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap";
  assertEquals(rules("services", all).at(-1), `${match} @service-nodeports`);
  assertEquals(rules("nodeport-endpoints-check", all), [`${match} @no-endpoint-nodeports`]);
  assertEquals(
    rules("services", all, "IPv6").at(-1),
    "fib daddr type local ip6 daddr != ::1 meta l4proto . th dport vmap @service-nodeports",
  );
  assertEquals(
    planBaseRules(exampleNftablesOptions("IPv4", { ...all, nodePortIps: ["192.0.2.1"] })).elements,
    [],
  );
});

Deno.test("node ports on own addresses leave out loopback", NONE, () => {
  const options = exampleNftablesOptions("IPv4", {
    nodePortIps: ["127.0.0.1", "192.0.2.10", "198.51.100.1"],
  });
  assertEquals(planBaseRules(options).elements, [
    { container: "nodeport-ips", key: "192.0.2.10", value: "" },
    { container: "nodeport-ips", key: "198.51.100.1", value: "" },
  ]);
});

Deno.test("an address of the other family is refused", NONE, () => {
  for (const ip of ["fd00::1", "x"]) {
    const options = exampleNftablesOptions("IPv4", { nodePortIps: [ip] });
    assertThrows(() => planBaseRules(options), RangeError, "must be an IPv4 address");
  }
});

Deno.test("each ServiceCIDR is dropped after unknown ports of cluster IPs are refused", NONE, () => {
  const reject = 'ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"';
  const drop = (cidr: string) => `ip daddr ${cidr} drop comment "Drop traffic to unallocated ClusterIPs"`;
  assertEquals(rules("cluster-ips-check", { serviceCidrs: [] }), [reject]);
  assertEquals(rules("cluster-ips-check", { serviceCidrs: ["10.96.0.0/16", "10.97.0.0/16"] }), [
    reject,
    drop("10.96.0.0/16"),
    drop("10.97.0.0/16"),
  ]);
});

Deno.test("masquerading clears the mark, and knows pods that reach themselves", NONE, () => {
  assertEquals(rules("masquerading", {}, "IPv6"), [
    "meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
    "ct status dnat ip6 saddr . ip6 daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random",
  ]);
});

Deno.test("what hangs where", NONE, () => {
  const { chains } = planBaseRules(exampleNftablesOptions("IPv4"));
  assertEquals(
    chains.filter(({ hook }) => hook !== undefined).map(({ name, hook = "", rules }) => [
      name,
      hook.replace("; policy accept;", ""),
      ...rules,
    ]),
    [
      [
        "filter-prerouting-pre-dnat",
        "type filter hook prerouting priority dstnat - 10",
        "ct state new jump firewall-check",
      ],
      ["filter-output-pre-dnat", "type filter hook output priority -110", "ct state new jump firewall-check"],
      [
        "filter-input",
        "type filter hook input priority filter",
        "ct state new jump nodeport-endpoints-check",
        "ct state new jump service-endpoints-check",
      ],
      [
        "filter-forward",
        "type filter hook forward priority filter",
        "ct state new jump service-endpoints-check",
        "ct state new jump cluster-ips-check",
      ],
      [
        "filter-output",
        "type filter hook output priority filter",
        "ct state new jump service-endpoints-check",
        "ct state new jump cluster-ips-check",
      ],
      ["nat-prerouting", "type nat hook prerouting priority dstnat", "jump services"],
      ["nat-output", "type nat hook output priority -100", "jump services"],
      ["nat-postrouting", "type nat hook postrouting priority srcnat", "jump masquerading"],
    ],
  );
});

Deno.test("maps and sets, and comments only where they are taken", NONE, () => {
  for (const [family, ip, type] of [["IPv4", "ip", "ipv4_addr"], ["IPv6", "ip6", "ipv6_addr"]] as const) {
    const base = planBaseRules(exampleNftablesOptions(family));
    const spec = (name: string) => base.containers.find((container) => container.name === name)?.spec;
    assertEquals(base.comment, "kproxy layout 1");
    assertEquals(base.containers.length, 21);
    assertEquals(spec("service-ips"), `type ${type} . inet_proto . inet_service : verdict ;`);
    assertEquals(spec("hairpin-connections"), `type ${type} . ${type} . inet_proto . inet_service ;`);
    assertEquals(
      spec("endpoints-sctp"),
      `typeof ${ip} daddr . sctp dport . numgen random mod 65536 : ${ip} daddr . sctp dport ;`,
    );
    assertEquals(
      spec("local-nodeport-endpoints-tcp"),
      `typeof tcp dport . numgen random mod 65536 : ${ip} daddr . tcp dport ;`,
    );
    assert(base.containers.every(({ comment }) => comment !== "" && comment.length <= 128));
    const plain = planBaseRules(exampleNftablesOptions(family, { objectComments: false }));
    assertEquals([plain.comment, ...plain.containers.map(({ comment }) => comment)].join(""), "");
  }
});
