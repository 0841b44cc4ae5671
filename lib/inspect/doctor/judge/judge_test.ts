import { assertEquals } from "@std/assert";
import { testNode } from "../../../../tests/support/model_objects.ts";
import { parseBaseChains } from "../../../netfilter/nft_base_chains.ts";
import type { Finding } from "../finding.ts";
import { judgeClock } from "./api.ts";
import { judgeConntrack } from "./conntrack.ts";
import { judgeDeviceForwarding, judgeForwarding } from "./forwarding.ts";
import { judgeBaseChains, judgeForward } from "./hooks.ts";
import { judgeLeftovers } from "./leftovers.ts";
import { judgeLock } from "./lock.ts";
import { judgeMode } from "./mode.ts";
import { judgeModeSettings } from "./mode_settings.ts";
import { judgeMtu } from "./mtu.ts";
import { ipv6Use, judgeNode } from "./node.ts";
import { judgeOtherProxies } from "./other_proxies.ts";
import { judgePrograms } from "./programs.ts";
import { judgeReversePath } from "./reverse_path.ts";
import { judgeRights } from "./rights.ts";
import { judgeVariant } from "./variant.ts";

/** `level start of what`, so much of it as is wanted. */
function brief(findings: readonly Finding[], length = 48): readonly string[] {
  return findings.map(({ level, what }) => `${level} ${what}`.slice(0, length));
}

/** A name, what was judged, and the findings, each cut to the length of what is wanted. */
type Case = readonly [name: string, found: readonly Finding[], wanted: readonly string[]];

const settings = (values: Readonly<Record<string, string>>): ReadonlyMap<string, string> =>
  new Map(Object.entries(values));

const FORWARD = "net.ipv4.ip_forward";
const FORWARD_6 = "net.ipv6.conf.all.forwarding";
const V4 = (device: string, setting: string): string => `net.ipv4.conf.${device}.${setting}`;

const FORWARDING: readonly Case[] = [
  ["both on", judgeForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "1" }), "x"), [
    "ok net.ipv4.ip_forward is 1",
    "ok net.ipv6.conf.all.forwarding is 1",
  ]],
  ["IPv4 off", judgeForwarding(settings({ [FORWARD]: "0", [FORWARD_6]: "1" }), null), [
    "failure net.ipv4.ip_forward is 0: packets to and",
    "ok net.ipv6",
  ]],
  ["IPv6 off and not used", judgeForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "0" }), null), [
    "ok net.ipv4",
    "ok net.ipv6.conf.all.forwarding is 0, and nothing",
  ]],
  [
    "IPv6 off and used",
    judgeForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "0" }), "Node a has fd00::1"),
    [
      "ok net.ipv4",
      "failure net.ipv6.conf.all.forwarding is 0, and Node a has fd00::1",
    ],
  ],
  ["no IPv6 in the kernel", judgeForwarding(settings({ [FORWARD]: "1" }), null), [
    "ok net.ipv4",
    "ok this kernel has no IPv6 forwarding, and nothing",
  ]],
  ["neither in the kernel", judgeForwarding(settings({}), "x"), [
    "failure this kernel has no net.ipv4.ip_forward",
    "failure this kernel has no IPv6 forwarding, and x",
  ]],
  [
    "a device that does not forward",
    judgeDeviceForwarding(
      settings({
        [V4("all", "forwarding")]: "1",
        [V4("eth0", "forwarding")]: "0",
        [V4("lo", "forwarding")]: "0",
      }),
      null,
    ),
    ["warning IPv4 packets that come in by eth0 are not forwarded"],
  ],
  [
    "devices are not the cause where nothing is forwarded",
    judgeDeviceForwarding(
      settings({ [V4("all", "forwarding")]: "0", [V4("eth0", "forwarding")]: "0" }),
      null,
    ),
    [],
  ],
  [
    "many devices that do not forward are one line",
    judgeDeviceForwarding(
      settings(Object.fromEntries([1, 2, 3, 4, 5].map((index) => [V4(`veth${index}`, "forwarding"), "0"]))),
      null,
    ),
    ["warning IPv4 packets that come in by veth1, veth2, veth3 and 2 others"],
  ],
];

const REVERSE_PATH: readonly Case[] = [
  ["off", judgeReversePath(settings({ [V4("all", "rp_filter")]: "0" }), new Set()), [
    "ok strict on no device",
  ]],
  [
    "loose wins",
    judgeReversePath(
      settings({ [V4("all", "rp_filter")]: "2", [V4("eth0", "rp_filter")]: "1" }),
      new Set(),
    ),
    ["ok loose"],
  ],
  [
    "strict everywhere",
    judgeReversePath(
      settings({
        [V4("all", "rp_filter")]: "1",
        [V4("eth0", "rp_filter")]: "0",
        [V4("eth1", "rp_filter")]: "2",
      }),
      new Set(),
    ),
    ["warning strict on eth0: packets that come by"],
  ],
  ["strict at one device", judgeReversePath(settings({ [V4("eth0/7", "rp_filter")]: "1" }), new Set()), [
    "warning strict on eth0.7: packets",
  ]],
  [
    "strict at pods is meant so",
    judgeReversePath(settings({ [V4("cali1", "rp_filter")]: "1" }), new Set(["cali1"])),
    [
      "ok strict on no device",
    ],
  ],
];

const TRACKING = [{ name: "net.netfilter.nf_conntrack_max", value: 1000, atLeast: true }];
const tracked = (count: string, max: string) =>
  settings({ "net.netfilter.nf_conntrack_count": count, "net.netfilter.nf_conntrack_max": max });

const CONNTRACK: readonly Case[] = [
  ["room", judgeConntrack(tracked("10", "1000"), TRACKING), [
    "ok 10 of 1000 connections",
    "ok settings are as the",
  ]],
  ["filling up", judgeConntrack(tracked("750", "1000"), []), [
    "warning 750 of 1000 connections are tracked: it is",
    "ok",
  ]],
  ["full", judgeConntrack(tracked("950", "1000"), []), [
    "failure 950 of 1000 connections are tracked: new ones",
    "ok",
  ]],
  ["too small", judgeConntrack(tracked("1", "500"), TRACKING), [
    "ok 1 of 500",
    "warning not as the configuration asks",
  ]],
  ["not there", judgeConntrack(settings({}), TRACKING), ["warning this kernel does not have net.netfilter"]],
  ["garbage", judgeConntrack(tracked("many", "few"), []), ["ok settings are as"]],
];

const REUSE = "net.ipv4.vs.conn_reuse_mode";
const ipvs = (release: string | null, found: Readonly<Record<string, string>> = { [REUSE]: "1" }) =>
  judgeModeSettings(settings(found), { mode: "ipvs", needed: [], wantsLocalhost: true, release });

const MODE_SETTINGS: readonly Case[] = [
  ["conn_reuse_mode of Linux 5.9", ipvs("5.9.0"), [
    "ok net.ipv4.vs.conn_reuse_mode may be anything on Linux",
  ]],
  ["conn_reuse_mode of Linux 5.8", ipvs("5.8.1-x"), [
    "warning net.ipv4.vs.conn_reuse_mode is 1: on Linux 5.8",
  ]],
  ["conn_reuse_mode of Linux 4.19, set", ipvs("4.19", { [REUSE]: "0" }), [
    "ok net.ipv4.vs.conn_reuse_mode is 0, as",
  ]],
  ["conn_reuse_mode of Linux 3.10", ipvs("3.10"), ["warning on Linux 3.10 connections from a port"]],
  ["a kernel that nobody knows", ipvs(null), ["warning nobody can tell what this kernel needs"]],
  [
    "a setting that IPVS needs",
    judgeModeSettings(settings({ a: "0" }), {
      mode: "ipvs",
      needed: [{ name: "a", value: "1", why: "it fails" }, {
        name: FORWARD,
        value: "1",
        why: "told elsewhere",
      }],
      wantsLocalhost: false,
      release: "6.1",
    }),
    ["warning a is 0, and a start of kproxy sets it to", "ok net.ipv4.vs"],
  ],
  [
    "node ports on localhost",
    judgeModeSettings(settings({ "net.ipv4.conf.all.route_localnet": "0" }), {
      mode: "iptables",
      needed: [],
      wantsLocalhost: true,
      release: null,
    }),
    ["warning net.ipv4.conf.all.route_localnet is 0"],
  ],
  [
    "no node ports on localhost in mode nftables",
    judgeModeSettings(settings({}), {
      mode: "nftables",
      needed: [],
      wantsLocalhost: true,
      release: null,
    }),
    [],
  ],
  [
    "a bridge beside netfilter",
    judgeModeSettings(settings({ "net.bridge.bridge-nf-call-iptables": "0" }), {
      mode: "nftables",
      needed: [],
      wantsLocalhost: false,
      release: null,
    }),
    ["warning net.bridge.bridge-nf-call-iptables is 0"],
  ],
];

const LOCK = { path: "/run/xtables.lock", exists: true, isMounted: false, isHeld: false } as const;
const HOST = { inContainer: false, isUsed: true };

const LOCKS: readonly Case[] = [
  ["free", judgeLock(LOCK, HOST), ["ok /run/xtables.lock is free"]],
  ["not there", judgeLock({ ...LOCK, exists: false }, HOST), ["ok /run/xtables.lock is not there yet"]],
  ["held", judgeLock({ ...LOCK, isHeld: true }, HOST), [
    "warning another program has held /run/xtables.lock",
  ]],
  ["closed to us", judgeLock({ ...LOCK, isHeld: null }, HOST), [
    "warning this user may not open /run/xtables.lock",
  ]],
  ["a container's own", judgeLock(LOCK, { ...HOST, inContainer: true }), [
    "warning /run/xtables.lock looks like this",
  ]],
  ["the host's in a container", judgeLock({ ...LOCK, isMounted: true }, { ...HOST, inContainer: true }), [
    "ok",
  ]],
  ["not used", judgeLock({ ...LOCK, isHeld: true }, { ...HOST, isUsed: false }), [
    "ok not used: the nft variant",
  ]],
];

const base = (
  family: string,
  table: string,
  type: string,
  hook: string,
  priority: number,
  policy = "accept",
) =>
  parseBaseChains(
    `table ${family} ${table} {\nchain c {\ntype ${type} hook ${hook} priority ${priority}; policy ${policy};\n}\n}\n`,
  );

const HOOKS: readonly Case[] = [
  [
    "our own and iptables'",
    judgeBaseChains([
      ...base("ip", "kproxy", "nat", "prerouting", -100),
      ...base("ip6", "kproxy-next", "nat", "output", -100),
      ...base("ip", "filter", "filter", "forward", 0, "drop"),
    ]),
    ["ok no table of nftables is in front"],
  ],
  ["a table that translates before us", judgeBaseChains(base("inet", "lb", "nat", "prerouting", -110)), [
    "warning inet lb c (prerouting, priority -110) may translate",
  ]],
  ["one that translates after us", judgeBaseChains(base("ip", "lb", "nat", "prerouting", -90)), [
    "ok no table",
  ]],
  ["a forward hook that drops", judgeBaseChains(base("inet", "fw", "filter", "forward", 10, "drop")), [
    "warning inet fw c (forward, priority 10) drops",
  ]],
  [
    "an input hook that drops is the host's own matter",
    judgeBaseChains(base("inet", "fw", "filter", "input", 0, "drop")),
    [
      "ok no table",
    ],
  ],
  ["a table that looks first", judgeBaseChains(base("inet", "fw", "filter", "prerouting", -160)), [
    "ok seen before kproxy: inet fw c (prerouting, priority -160)",
  ]],
  [
    "a table named like iptables', of another family",
    judgeBaseChains(base("inet", "filter", "filter", "forward", 0, "drop")),
    [
      "warning inet filter c",
    ],
  ],
  [
    "a policy that drops, mode iptables",
    judgeForward([{ family: "IPv4", lines: ["-P FORWARD DROP -c 0 0"] }], "iptables"),
    [
      "warning IPv4 chain FORWARD drops what no rule accepts: kproxy lets",
    ],
  ],
  [
    "a policy that drops, mode nftables",
    judgeForward([{ family: "IPv6", lines: ["-P FORWARD DROP"] }], "nftables"),
    [
      "warning IPv6 chain FORWARD drops what no rule accepts: packets of Services are dropped, too",
    ],
  ],
  [
    "a rule that drops before ours",
    judgeForward([{
      family: "IPv4",
      lines: [
        "-P FORWARD ACCEPT",
        "-A FORWARD -c 3 180 -j DROP",
        '-A FORWARD -m comment --comment "x" -j KUBE-FORWARD',
      ],
    }], "iptables"),
    ["warning a rule in IPv4 chain FORWARD drops everything that comes to it: -A FORWARD -j DROP"],
  ],
  [
    "a rule that drops behind ours",
    judgeForward([{
      family: "IPv4",
      lines: [
        "-P FORWARD ACCEPT",
        "-A FORWARD -j KUBE-FORWARD",
        "-A FORWARD -j REJECT --reject-with icmp-port-unreachable",
      ],
    }], "iptables"),
    [],
  ],
  [
    "a rule that drops some",
    judgeForward([{ family: "IPv4", lines: ["-A FORWARD -s 10.0.0.0/8 -j DROP"] }], "ipvs"),
    [],
  ],
];

const none = { metricsAddress: "127.0.0.1:10249" };
const PROXIES: readonly Case[] = [
  ["none", judgeOtherProxies(none), ["ok none shows"]],
  ["kproxy itself", judgeOtherProxies({ ...none, owner: "kproxy" }), ["ok none; kproxy runs"]],
  ["kube-proxy runs", judgeOtherProxies({ ...none, owner: "kube-proxy" }), [
    "failure kube-proxy runs on this node",
  ]],
  ["an address in use", judgeOtherProxies({ ...none, owner: "somebody else" }), [
    "warning something that is no proxy",
  ]],
  [
    "kube-proxy's table",
    judgeOtherProxies({ ...none, baseChains: base("ip", "kube-proxy", "nat", "output", -100) }),
    [
      "warning kube-proxy (mode nftables) was or is here: table ip kube-proxy",
    ],
  ],
  [
    "Cilium, by chain and device",
    judgeOtherProxies({
      ...none,
      prerouting: [{ family: "IPv4", lines: ['-A PREROUTING -m comment --comment "c" -j CILIUM_PRE_nat'] }],
      links: [{ device: "cilium_host", kind: "veth", mtu: 1500, isUp: true }],
    }),
    ["warning Cilium was or is here: chain CILIUM_PRE_nat, device cilium_host"],
  ],
  [
    "kube-router",
    judgeOtherProxies({ ...none, links: [{ device: "kube-dummy-if", kind: "dummy", mtu: 0, isUp: true }] }),
    [
      "warning kube-router was or is here",
    ],
  ],
];

const link = (device: string, kind: string, mtu: number) => ({ device, kind, mtu, isUp: true });
const MTUS: readonly Case[] = [
  ["no uplink", judgeMtu({ links: [link("eth0", "", 1500)], uplinks: [] }), ["ok no default route"]],
  [
    "all fit",
    judgeMtu({
      links: [link("eth0", "", 1500), link("flannel.1", "vxlan", 1450), link("v", "veth", 1450)],
      uplinks: ["eth0"],
    }),
    [
      "ok tunnels and pods fit into eth0 (1500)",
    ],
  ],
  [
    "a tunnel that is too large",
    judgeMtu({ links: [link("eth0", "", 1450), link("w", "wireguard", 1420)], uplinks: ["eth0"] }),
    [
      "warning w (wireguard) takes packets of 1420",
    ],
  ],
  [
    "pods larger than the tunnel",
    judgeMtu({
      links: [link("eth0", "", 1500), link("t", "ipip", 1480), link("v", "veth", 1500)],
      uplinks: ["eth0"],
    }),
    [
      "warning v (1500) of pods take larger packets than t (1480)",
    ],
  ],
  ["an uplink that is a tunnel", judgeMtu({ links: [link("wg0", "wireguard", 1420)], uplinks: ["wg0"] }), [
    "ok tunnels and pods",
  ]],
];

const works = {
  kind: "works",
  mode: "iptables",
  config: {} as never,
  passedOver: [],
  refused: [],
  warnings: [],
} as const;
const noRights = { kind: "unusable", reason: "run needs root or CAP_NET_ADMIN", lacksRights: true } as const;
const grant = (isGranted: boolean) => [{ flag: "--allow-net", isGranted, otherwise: "no API server" }];

const MODES: readonly Case[] = [
  ["works", judgeMode(works, "iptables"), ["ok iptables works here"]],
  ["a fallback", judgeMode({ ...works, passedOver: [{ mode: "ipvs", reason: "no module" }] }, "ipvs"), [
    "warning mode ipvs cannot run here and gives way to iptables: ipvs: no module",
  ]],
  ["a family less", judgeMode({ ...works, refused: [{ family: "IPv6", reason: "off" }] }, "iptables"), [
    "ok",
    "warning IPv6 is not served: off",
  ]],
  ["unusable", judgeMode({ kind: "unusable", reason: "install nftables", lacksRights: false }, "nftables"), [
    "failure mode nftables cannot run here: install nftables",
  ]],
  ["rights that are there", judgeRights({ uid: 0, permissions: grant(true) }, works), [
    "ok root may read",
    "ok the runtime grants",
  ]],
  ["rights that are missing", judgeRights({ uid: 65534, permissions: grant(false) }, noRights), [
    "failure user 65534 has no CAP_NET_ADMIN",
    "warning the runtime does not grant --allow-net: no API server",
  ]],
  ["rights that nobody knows", judgeRights({ uid: null, permissions: [] }, undefined), [
    "ok the runtime grants all",
  ]],
];

const chosen = { variant: "nft", reason: "nft is the system's default" } as const;
const VARIANTS: readonly Case[] = [
  ["none works", judgeVariant(null, "nftables"), []],
  [
    "one alone",
    judgeVariant({ chosen, systemDefault: { variant: "nft", version: "1.8.9" }, otherHolds: [] }, "iptables"),
    [
      "ok nft: nft is the system's default",
    ],
  ],
  [
    "the other is the default",
    judgeVariant(
      { chosen, systemDefault: { variant: "legacy", version: "1.8.9" }, otherHolds: [] },
      "iptables",
    ),
    [
      "ok nft",
      "warning the program iptables is the legacy variant",
    ],
  ],
  ["rules in both", judgeVariant({ chosen, systemDefault: null, otherHolds: ["IPv4", "IPv6"] }, "iptables"), [
    "ok nft",
    "warning a service proxy left rules in the legacy variant (IPv4, IPv6)",
  ]],
];

const LEFTOVERS: readonly Case[] = [
  ["nothing", judgeLeftovers({ found: [], modes: ["nftables"], failed: [] }, "iptables", []), [
    "ok no other mode",
  ]],
  [
    "something",
    judgeLeftovers({ found: ["2 tables of nft"], modes: ["nftables"], failed: [] }, "iptables", undefined),
    [
      "warning another mode left 2 tables of nft",
    ],
  ],
  [
    "the device of IPVS",
    judgeLeftovers({ found: [], modes: ["nftables"], failed: [] }, "iptables", ["kube-ipvs0"]),
    [
      "warning device kube-ipvs0 is there",
    ],
  ],
  ["its own device", judgeLeftovers({ found: [], modes: ["nftables"], failed: [] }, "ipvs", ["kube-ipvs0"]), [
    "ok",
  ]],
  ["not looked at", judgeLeftovers({ found: [], modes: ["ipvs"], failed: ["ipset: x"] }, "nftables", []), [
    "warning could not be looked at: ipset: x",
  ]],
];

const internal = (address: string) => ({ type: "InternalIP", address });
const machine = {
  nodeName: "a",
  ownIps: ["10.0.0.1"],
  bindAddress: "0.0.0.0",
  refused: [],
  namesakes: [],
} as const;
const NODES: readonly Case[] = [
  ["its own", judgeNode(testNode({ name: "a", addresses: [internal("10.0.0.1")] }), machine), [
    "ok Node a: 10.0.0.1; IPv4",
  ]],
  ["none", judgeNode(null, machine), ["failure the cluster has no Node a"]],
  ["without addresses", judgeNode(testNode({ name: "a", addresses: [], podCIDRs: [] }), machine), [
    "warning Node a has no address",
  ]],
  ["another machine's", judgeNode(testNode({ name: "a", addresses: [internal("10.0.0.2")] }), machine), [
    "warning none of the addresses of Node a (10.0.0.2)",
  ]],
  [
    "addresses that nobody knows",
    judgeNode(testNode({ name: "a", addresses: [internal("10.0.0.2")] }), { ...machine, ownIps: null }),
    ["ok"],
  ],
  [
    "of a family that is not served",
    judgeNode(
      testNode({ name: "a", addresses: [internal("10.0.0.1"), internal("fd00::1")] }),
      { ...machine, refused: ["IPv6"] },
    ),
    ["failure Node a has the address fd00::1, of an IP family"],
  ],
];

const missing = (kind: "missing" | "forbidden") =>
  new Map([["nft", { value: { kind } }], ["ip", { value: { kind } }]]);
const version = (name: string, text: string | null) =>
  new Map([[name, { value: { kind: "found", version: text } as const }]]);
const OTHERS: readonly Case[] = [
  ["a program that is needed", judgePrograms(missing("missing"), ["nftables"]), [
    "failure nft is not on the PATH: mode nftables does",
    "ok ip is not on the PATH; only mode ipvs needs it",
  ]],
  ["a program that is not granted", judgePrograms(missing("forbidden"), ["ipvs"]), [
    "ok nft may not",
    "failure ip may not be started",
  ]],
  ["a version at the limit", judgePrograms(version("nft", "1.0.1"), ["nftables"]), ["ok nft 1.0.1"]],
  ["a version below it", judgePrograms(version("nft", "1.0.0"), ["nftables"]), [
    "failure nft 1.0.0 is too old",
  ]],
  ["an old version that nothing needs", judgePrograms(version("nft", "0.9"), ["ipvs"]), [
    "ok nft 0.9 is too old",
  ]],
  ["an old ipset", judgePrograms(version("ipset", "5.9"), ["ipvs"]), [
    "failure ipset 5.9 is too old, kproxy needs 6.0",
  ]],
  ["a clock that agrees", judgeClock(-4_900), ["ok agrees"]],
  ["a clock that is late", judgeClock(-61_000), ["warning 61 s behind the API server's"]],
  ["no clock", judgeClock(null), ["ok the API server tells no time"]],
];

const TABLES: Readonly<Record<string, readonly Case[]>> = {
  forwarding: FORWARDING,
  "reverse path filter": REVERSE_PATH,
  "connection tracking": CONNTRACK,
  "settings of modes": MODE_SETTINGS,
  lock: LOCKS,
  hooks: HOOKS,
  "other proxies": PROXIES,
  MTU: MTUS,
  modes: MODES,
  variants: VARIANTS,
  leftovers: LEFTOVERS,
  node: NODES,
  others: OTHERS,
};

for (const [subject, cases] of Object.entries(TABLES)) {
  for (const [name, found, wanted] of cases) {
    Deno.test(`${subject}: ${name}`, { permissions: "none" }, () => {
      const shown = brief(found, 200);
      assertEquals(shown.map((line, index) => line.slice(0, wanted[index]?.length ?? 200)), wanted);
      for (const { level, mend } of found) assertEquals(mend === "", level === "ok");
    });
  }
}

Deno.test("whether a cluster uses IPv6 is told by the Node, and by the configuration without one", {
  permissions: "none",
}, () => {
  const bare = { clusterCIDR: "", bindAddress: "0.0.0.0" };
  assertEquals(
    ipv6Use(testNode({ name: "a", addresses: [internal("fd00::1")] }), bare),
    "Node a has the address fd00::1",
  );
  assertEquals(
    ipv6Use(testNode({ addresses: [internal("10.0.0.1")], podCIDRs: [] }), {
      ...bare,
      clusterCIDR: "fd00::/48",
    }),
    null,
  );
  assertEquals(
    ipv6Use(null, { ...bare, clusterCIDR: "10.0.0.0/8,fd00::/48" }),
    "the cluster CIDR is 10.0.0.0/8,fd00::/48",
  );
  assertEquals(ipv6Use(null, { ...bare, bindAddress: "fd00::7" }), "the node's address is fd00::7");
  assertEquals(ipv6Use(null, { ...bare, bindAddress: "::" }), null);
});

Deno.test("words of programs are one line without control characters, and end somewhere", {
  permissions: "none",
}, () => {
  const [finding] = judgeMode({
    kind: "unusable",
    reason: `a\nb\u001b[31m${"x".repeat(1000)}`,
    lacksRights: false,
  }, "ipvs");
  assertEquals(finding?.what.startsWith("mode ipvs cannot run here: a b [31mxxx"), true);
  assertEquals(finding?.what.length, 401);
});
