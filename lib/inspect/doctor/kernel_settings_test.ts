import { type FindingCase as Case, testFindings } from "../../../tests/support/finding_cases.ts";
import {
  checkConntrack,
  checkDeviceForwarding,
  checkForwarding,
  checkModeSettings,
  checkMtu,
  checkReversePath,
  type ModeSettings,
} from "./kernel_settings.ts";

const settings = (values: Readonly<Record<string, string>>): ReadonlyMap<string, string> =>
  new Map(Object.entries(values));

const FORWARD = "net.ipv4.ip_forward";
const FORWARD_6 = "net.ipv6.conf.all.forwarding";
const V4 = (device: string, setting: string): string => `net.ipv4.conf.${device}.${setting}`;

const FORWARDING: readonly Case[] = [
  ["both on", checkForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "1" }), "x"), [
    "ok net.ipv4.ip_forward is 1",
    "ok net.ipv6.conf.all.forwarding is 1",
  ]],
  ["IPv6 off and not used", checkForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "0" }), null), [
    "ok net.ipv4",
    "ok net.ipv6.conf.all.forwarding is 0, and nothing",
  ]],
  [
    "IPv6 off and used",
    checkForwarding(settings({ [FORWARD]: "1", [FORWARD_6]: "0" }), "Node a has fd00::1"),
    [
      "ok net.ipv4",
      "failure net.ipv6.conf.all.forwarding is 0, and Node a has fd00::1",
    ],
  ],
  ["no IPv6 in the kernel", checkForwarding(settings({ [FORWARD]: "1" }), null), [
    "ok net.ipv4",
    "ok this kernel has no IPv6 forwarding, and nothing",
  ]],
  ["neither in the kernel", checkForwarding(settings({}), "x"), [
    "failure this kernel has no net.ipv4.ip_forward",
    "failure this kernel has no IPv6 forwarding, and x",
  ]],
  [
    "a device that does not forward",
    checkDeviceForwarding(
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
    checkDeviceForwarding(
      settings({ [V4("all", "forwarding")]: "0", [V4("eth0", "forwarding")]: "0" }),
      null,
    ),
    [],
  ],
  [
    "many devices that do not forward are one line",
    checkDeviceForwarding(
      settings(Object.fromEntries([1, 2, 3, 4, 5].map((index) => [V4(`veth${index}`, "forwarding"), "0"]))),
      null,
    ),
    ["warning IPv4 packets that come in by veth1, veth2, veth3 and 2 others"],
  ],
];

const REVERSE_PATH: readonly Case[] = [
  ["off", checkReversePath(settings({ [V4("all", "rp_filter")]: "0" }), new Set()), [
    "ok strict on no device",
  ]],
  [
    "loose wins",
    checkReversePath(
      settings({ [V4("all", "rp_filter")]: "2", [V4("eth0", "rp_filter")]: "1" }),
      new Set(),
    ),
    ["ok loose"],
  ],
  [
    "strict everywhere",
    checkReversePath(
      settings({
        [V4("all", "rp_filter")]: "1",
        [V4("eth0", "rp_filter")]: "0",
        [V4("eth1", "rp_filter")]: "2",
      }),
      new Set(),
    ),
    ["warning strict on eth0: packets that come by"],
  ],
  [
    "strict at pods is meant so",
    checkReversePath(settings({ [V4("cali1", "rp_filter")]: "1" }), new Set(["cali1"])),
    [
      "ok strict on no device",
    ],
  ],
];

const TRACKING = [{ name: "net.netfilter.nf_conntrack_max", value: 1000, atLeast: true }];
const tracked = (count: string, max: string) =>
  settings({ "net.netfilter.nf_conntrack_count": count, "net.netfilter.nf_conntrack_max": max });

const CONNTRACK: readonly Case[] = [
  ["room", checkConntrack(tracked("10", "1000"), TRACKING), [
    "ok 10 of 1000 connections",
    "ok settings are as the",
  ]],
  ["filling up", checkConntrack(tracked("750", "1000"), []), [
    "warning 750 of 1000 connections are tracked: it is",
    "ok",
  ]],
  ["too small", checkConntrack(tracked("1", "500"), TRACKING), [
    "ok 1 of 500",
    "warning not as the configuration asks",
  ]],
  ["not there", checkConntrack(settings({}), TRACKING), ["warning this kernel does not have net.netfilter"]],
  ["garbage", checkConntrack(tracked("many", "few"), []), ["ok settings are as"]],
];

const REUSE = "net.ipv4.vs.conn_reuse_mode";
const modeSettings = (found: Readonly<Record<string, string>>, facts: Partial<ModeSettings>) =>
  checkModeSettings(settings(found), {
    mode: "nftables",
    needed: [],
    wantsLocalhost: false,
    release: null,
    ...facts,
  });
const ipvs = (release: string | null, found: Readonly<Record<string, string>> = { [REUSE]: "1" }) =>
  modeSettings(found, { mode: "ipvs", wantsLocalhost: true, release });
const LOCALNET = { "net.ipv4.conf.all.route_localnet": "0" };
const NEEDED = [{ name: "a", value: "1", why: "it fails" }, {
  name: FORWARD,
  value: "1",
  why: "told elsewhere",
}];

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
  ["a kernel that is not known", ipvs(null), ["warning it is not known what this kernel needs"]],
  ["a setting that IPVS needs", modeSettings({ a: "0" }, { mode: "ipvs", needed: NEEDED, release: "6.1" }), [
    "warning a is 0, and a start of kproxy sets it to",
    "ok net.ipv4.vs",
  ]],
  ["node ports on localhost", modeSettings(LOCALNET, { mode: "iptables", wantsLocalhost: true }), [
    "warning net.ipv4.conf.all.route_localnet is 0",
  ]],
  ["no node ports on localhost in mode nftables", modeSettings(LOCALNET, { wantsLocalhost: true }), []],
  ["a bridge beside netfilter", modeSettings({ "net.bridge.bridge-nf-call-iptables": "0" }, {}), [
    "warning net.bridge.bridge-nf-call-iptables is 0",
  ]],
];

const link = (device: string, kind: string, mtu: number) => ({
  device,
  kind,
  mtu,
  isUp: true,
  addresses: [],
});
const MTUS: readonly Case[] = [
  ["no uplink", checkMtu({ links: [link("eth0", "", 1500)], uplinks: [] }), ["ok no default route"]],
  [
    "all fit",
    checkMtu({
      links: [link("eth0", "", 1500), link("flannel.1", "vxlan", 1450), link("v", "veth", 1450)],
      uplinks: ["eth0"],
    }),
    [
      "ok tunnels and pods fit into eth0 (1500)",
    ],
  ],
  [
    "pods larger than the tunnel",
    checkMtu({
      links: [link("eth0", "", 1500), link("t", "ipip", 1480), link("v", "veth", 1500)],
      uplinks: ["eth0"],
    }),
    [
      "warning v (1500) of pods take larger packets than t (1480)",
    ],
  ],
  ["an uplink that is a tunnel", checkMtu({ links: [link("wg0", "wireguard", 1420)], uplinks: ["wg0"] }), [
    "ok tunnels and pods",
  ]],
];

testFindings({
  forwarding: FORWARDING,
  "reverse path filter": REVERSE_PATH,
  "connection tracking": CONNTRACK,
  "settings of modes": MODE_SETTINGS,
  MTU: MTUS,
});
