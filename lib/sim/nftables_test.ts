import { assertEquals, assertThrows } from "@std/assert";
import { formatFlow, parsePacket } from "./flow.ts";
import { tablesOfScript } from "../netfilter/nft_script.ts";
import { type AffinityMemory, type HostState, rememberOutcome } from "./packet_walk.ts";
import { emptySnapshot } from "./ruleset_snapshot.ts";
import { RulesetSimulator } from "./ruleset_simulator.ts";

const HOST_STATE: HostState = {
  nodeAddresses: ["192.0.2.10", "fd00::10"],
  affinity: new Map(),
  nowSeconds: 0,
};

/** One base chain for each hook, at the usual priorities, called as its hook or `nat-` and its hook. */
const BASE_CHAINS = [
  ...["prerouting", "input", "forward", "output", "postrouting"].map((hook) =>
    `add chain ip t ${hook} { type filter hook ${hook} priority filter; }`
  ),
  ...["prerouting", "output"].map((hook) =>
    `add chain ip t nat-${hook} { type nat hook ${hook} priority dstnat; }`
  ),
  "add chain ip t nat-postrouting { type nat hook postrouting priority srcnat; }",
];

/** Lines are commands of nft, or `CHAIN: RULE` in table `ip t`, whose chains are made as they are named. */
function simulator(lines: readonly string[]): RulesetSimulator {
  const named = lines.map((line) => /^(\S+): (.*)$/.exec(line));
  const chains = named.flatMap((match) => {
    const isMade = match === null || lines.some((line) => line.startsWith(`add chain ip t ${match[1]} `));
    return isMade ? [] : [`add chain ip t ${match[1]}`];
  });
  const commands = lines.map((line, at) => {
    const match = named[at];
    return match === null || match === undefined ? line : `add rule ip t ${match[1]} ${match[2]}`;
  });
  const script = ["add table ip t", ...BASE_CHAINS, ...chains, ...commands].join("\n");
  return new RulesetSimulator({ ...emptySnapshot("IPv4"), nftables: tablesOfScript(script) });
}

interface Case {
  readonly name: string;
  readonly lines: readonly string[];
  readonly flows: Readonly<Record<string, string>>;
}

const CASES: readonly Case[] = [
  {
    name: "no rules at all let everything pass",
    lines: [],
    flows: { "10.0.0.1 → 10.0.0.2:80": "untranslated", "10.0.0.1 → 192.0.2.10:80": "this node" },
  },
  {
    name: "what a connection was first sent to stays known behind the translation, and who began it",
    lines: [
      "add set ip t seen { type ipv4_addr . inet_proto . inet_service ; counter ; }",
      "add element ip t seen { 10.96.0.1 . tcp . 80 }",
      "add element ip t seen { 10.96.0.2 . tcp . 80 }",
      "nat-prerouting: ip daddr 10.96.0.0/24 dnat to 10.244.0.7:8080",
      "forward: ip daddr 10.96.0.1 reject",
      "forward: ct direction reply reject",
      "forward: ct direction original ct original ip daddr . meta l4proto . ct original proto-dst @seen drop",
    ],
    flows: {
      "10.0.0.1 → 10.96.0.1:80": "dropped",
      "10.0.0.1 → 10.96.0.3:80": "10.244.0.7:8080, masquerade no",
      "10.0.0.1 → 10.96.0.1:81": "10.244.0.7:8080, masquerade no",
    },
  },
  {
    name: "what connection tracking knows decides by a map, or is one of several words",
    lines: [
      "forward: ct state vmap { established : accept, invalid : drop }",
      "forward: ct state new,untracked reject",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.2:80": "rejected",
      "10.0.0.1 → 10.0.0.2:80 RELATED": "untranslated",
      "10.0.0.1 → 10.0.0.2:80 ESTABLISHED": "untranslated",
      "10.0.0.1 → 10.0.0.2:80 INVALID": "dropped",
    },
  },
  {
    name: "ranges that stand in a rule",
    lines: [
      "prerouting: tcp dport 30000-32767 drop",
      "prerouting: tcp dport { 80, 90-99 } reject",
      "prerouting: ip saddr 10.0.0.100-10.0.0.200 drop",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.2:29999": "untranslated",
      "10.0.0.1 → 10.0.0.2:30000": "dropped",
      "10.0.0.1 → 10.0.0.2:32767": "dropped",
      "10.0.0.1 → 10.0.0.2:80": "rejected",
      "10.0.0.1 → 10.0.0.2:94": "rejected",
      "10.0.0.1 → 10.0.0.2:100": "untranslated",
      "10.0.0.99 → 10.0.0.2:1": "untranslated",
      "10.0.0.150 → 10.0.0.2:1": "dropped",
    },
  },
  {
    name: "which packets see which hooks",
    lines: ["prerouting", "input", "forward", "output", "postrouting"].map((hook, i) =>
      `${hook}: tcp dport ${i + 1} drop`
    ),
    flows: {
      "10.0.0.1 → 192.0.2.10:1": "dropped",
      "10.0.0.1 → 192.0.2.10:2": "dropped",
      "10.0.0.1 → 192.0.2.10:3": "this node",
      "10.0.0.1 → 192.0.2.10:4": "this node",
      "10.0.0.1 → 192.0.2.10:5": "this node",
      "10.0.0.1 → 10.0.0.2:1": "dropped",
      "10.0.0.1 → 10.0.0.2:2": "untranslated",
      "10.0.0.1 → 10.0.0.2:3": "dropped",
      "10.0.0.1 → 10.0.0.2:4": "untranslated",
      "10.0.0.1 → 10.0.0.2:5": "dropped",
      "192.0.2.10@node → 10.0.0.2:1": "untranslated",
      "192.0.2.10@node → 10.0.0.2:4": "dropped",
      "192.0.2.10@node → 10.0.0.2:5": "dropped",
      // Packets of the node to itself come back in through lo.
      "192.0.2.10@node → 192.0.2.10:1": "dropped",
      "192.0.2.10@node → 192.0.2.10:2": "dropped",
      "192.0.2.10@node → 192.0.2.10:3": "this node",
    },
  },
  {
    name: "base chains of a hook come by priority, and only the last word of all counts",
    lines: [
      "add chain ip t early { type filter hook forward priority filter - 5; }",
      "add chain ip t late { type filter hook forward priority 5; policy drop; }",
      "forward: ip saddr 10.0.0.1 meta mark & 0x1 == 0x0 drop",
      "early: meta mark set meta mark | 0x1 accept",
      "late: ip saddr 10.0.0.1 accept",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.9:80": "untranslated, mark 0x1 left",
      "10.0.0.2 → 10.0.0.9:80": "dropped",
    },
  },
  {
    name: "of chains with one priority the newest is asked first",
    lines: [
      "add table ip other",
      "add chain ip other forward { type filter hook forward priority filter; }",
      "add rule ip other forward drop",
      "forward: ip saddr 10.0.0.1 reject",
    ],
    flows: { "10.0.0.1 → 10.0.0.9:80": "dropped", "10.0.0.2 → 10.0.0.9:80": "dropped" },
  },
  {
    name: "later hooks see the translated destination and the DNAT state",
    lines: [
      "nat-prerouting: ip daddr 10.9.0.1 dnat to 10.0.0.9:8080",
      "prerouting: ip daddr 10.9.0.1 drop",
      "forward: ip daddr 10.9.0.1 drop",
      "forward: ip saddr 10.0.0.5 ct status dnat reject",
      "forward: ip saddr 10.0.0.6 th dport 8080 drop",
    ],
    flows: {
      "10.0.0.1 → 10.9.0.1:80": "10.0.0.9:8080, masquerade no",
      "10.0.0.5 → 10.9.0.1:80": "rejected",
      "10.0.0.6 → 10.9.0.1:80": "dropped",
      "10.0.0.5 → 10.0.0.9:80": "untranslated",
      "10.0.0.1 → 10.9.0.1:80 ESTABLISHED": "dropped",
    },
  },
  {
    name: "nat is asked for new connections only, once for each direction",
    lines: [
      "add chain ip t nat-late { type nat hook prerouting priority -90; }",
      "nat-prerouting: ip daddr 10.9.0.1 dnat to 10.0.0.9",
      "nat-late: dnat to 10.0.0.8",
      "nat-postrouting: masquerade",
    ],
    flows: {
      "10.0.0.1 → 10.9.0.1:80": "10.0.0.9:80, masquerade yes",
      "10.0.0.1 → 10.9.0.2:80": "10.0.0.8:80, masquerade yes",
      "10.0.0.1 → 10.9.0.1:80 ESTABLISHED": "untranslated",
      "10.0.0.1 → 10.9.0.1:80 INVALID": "untranslated",
      // nat is settled on the way out, and does not see the packet again after lo.
      "192.0.2.10@node → 192.0.2.10:80": "this node, masquerade yes",
    },
  },
  {
    name: "return goes back to the caller, goto does not come back to it",
    lines: [
      "b: accept",
      "a: return",
      "a: reject",
      "c: goto a",
      "c: accept",
      "forward: ip saddr 10.0.0.1 jump a",
      "forward: ip saddr 10.0.0.2 goto a",
      "forward: ip saddr 10.0.0.3 jump c",
      "forward: ip saddr 10.0.0.4 return",
      "forward: ip saddr 10.0.0.5 continue",
      "forward: ip saddr 10.0.0.6 jump b",
      "forward: drop",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.9:80": "dropped",
      "10.0.0.2 → 10.0.0.9:80": "untranslated",
      "10.0.0.3 → 10.0.0.9:80": "dropped",
      "10.0.0.4 → 10.0.0.9:80": "untranslated",
      "10.0.0.5 → 10.0.0.9:80": "dropped",
      "10.0.0.6 → 10.0.0.9:80": "untranslated",
    },
  },
  {
    name: "marks are set, cleared and matched by their bits",
    lines: [
      "forward: ip saddr 10.0.0.1 meta mark set meta mark or 0x4000",
      "forward: ip saddr 10.0.0.2 meta mark set meta mark ^ 0x4000",
      "forward: ip saddr 10.0.0.3 meta mark set meta mark and 0xff",
      "forward: ip saddr 10.0.0.4 meta mark set 0x4002",
      "forward: meta mark & 0x4000 == 0 drop",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.9:80 mark 0x1": "untranslated, mark 0x4001 left",
      "10.0.0.2 → 10.0.0.9:80 mark 0x4000": "dropped",
      "10.0.0.3 → 10.0.0.9:80 mark 0x40ff": "dropped",
      "10.0.0.4 → 10.0.0.9:80 mark 0x1": "untranslated, mark 0x4002 left",
      "10.0.0.5 → 10.0.0.9:80 mark 0x80004000": "untranslated, mark 0x80004000 left",
    },
  },
  {
    name: "sets, maps and their opposites",
    lines: [
      "add set ip t ips { type ipv4_addr . inet_service ; }",
      "add element ip t ips { 10.0.0.1 . 80 }",
      "add map ip t verdicts { type ipv4_addr . inet_proto . inet_service : verdict ; }",
      "refuse: reject",
      "add element ip t verdicts { 10.0.0.9 . tcp . 1 : drop, 10.0.0.9 . udp . 1 : goto refuse }",
      "forward: ip daddr . meta l4proto . th dport vmap @verdicts",
      "forward: ip saddr . th dport != @ips drop",
      "forward: ip saddr { 10.0.0.1, 11.0.0.0/8 } accept",
      "forward: drop",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.9:1": "dropped",
      "10.0.0.1 → 10.0.0.9:1/udp": "rejected",
      "10.0.0.1 → 10.0.0.9:1/sctp": "dropped",
      "10.0.0.1 → 10.0.0.9:80": "untranslated",
      "10.0.0.1 → 10.0.0.9:81": "dropped",
      "10.0.0.2 → 10.0.0.9:80": "dropped",
    },
  },
  {
    name: "random choices multiply, and a number without an element goes on to the next rule",
    lines: [
      "add map ip t places { typeof tcp dport . numgen random mod 65536 : ip daddr . tcp dport ; }",
      "add element ip t places { 80 . 0 : 10.0.0.1 . 8080, 80 . 2 : 10.0.0.2 . 8080 }",
      "half: numgen random mod 2 vmap { 0 : return, 1 : drop }",
      "nat-prerouting: dnat ip to tcp dport . numgen random mod 4 map @places",
      "nat-prerouting: dnat to 10.0.0.3:9",
      "forward: ip saddr 10.0.0.8 jump half",
    ],
    flows: {
      "10.0.0.7 → 10.9.0.1:80": "10.0.0.1:8080 (1/4) | 10.0.0.2:8080 (1/4) | 10.0.0.3:9 (1/2), masquerade no",
      "10.0.0.7 → 10.9.0.1:81": "10.0.0.3:9, masquerade no",
      // `tcp dport` implies a condition on the protocol.
      "10.0.0.7 → 10.9.0.1:80/udp": "10.0.0.3:9, masquerade no",
      "10.0.0.8 → 10.9.0.1:81": "dropped (1/2) | 10.0.0.3:9 (1/2, masquerade no)",
    },
  },
  {
    name: "ICMP has no port that a rule means",
    lines: [
      "forward: tcp dport != 1 drop",
      "forward: meta l4proto icmp ip saddr 10.0.0.2 reject",
    ],
    flows: { "10.0.0.1 → 10.0.0.9/icmp": "untranslated", "10.0.0.2 → 10.0.0.9/icmp": "rejected" },
  },
  {
    name: "interfaces by name and by prefix; a process on the node has an empty one",
    lines: [
      'output: iifname != "cni0" ip daddr 10.0.0.1 drop',
      'forward: iifname "veth*" ip daddr 10.0.0.1 drop',
      'forward: iifname "eth1" reject',
    ],
    flows: {
      "192.0.2.10@node → 10.0.0.1:80": "dropped",
      "10.0.0.2@veth7 → 10.0.0.1:80": "dropped",
      "10.0.0.2@eth0 → 10.0.0.1:80": "untranslated",
      "10.0.0.2@eth1 → 10.0.0.1:80": "rejected",
      "10.0.0.2@eth10 → 10.0.0.1:80": "untranslated",
    },
  },
  {
    name: "addresses of the node are local",
    lines: ["prerouting: fib saddr type local drop", "prerouting: fib daddr type local tcp dport 1 drop"],
    flows: {
      "192.0.2.10 → 10.0.0.1:80": "dropped",
      "10.0.0.1 → 192.0.2.10:80": "this node",
      "10.0.0.1 → 127.9.9.9:1": "dropped",
      "10.0.0.1 → 10.0.0.2:1": "untranslated",
    },
  },
];

for (const { name, lines, flows } of CASES) {
  Deno.test(`simulated nftables: ${name}`, { permissions: "none" }, () => {
    const simulated = simulator(lines);
    for (const [packet, wanted] of Object.entries(flows)) {
      const flow = simulated.send(parsePacket(packet), HOST_STATE);
      assertEquals([packet, formatFlow(flow), flow.problems], [packet, wanted, []]);
    }
  });
}

Deno.test("the rules on the way are reported with their place", { permissions: "none" }, () => {
  const simulated = simulator([
    "s: ip daddr 11.0.0.0/8 drop",
    "s: counter",
    "s: meta mark set 1 dnat to 10.0.0.9",
    "nat-prerouting: ct state new jump s",
    "forward: accept",
  ]);
  assertEquals(simulated.send(parsePacket("10.0.0.1 → 10.9.0.1:80"), HOST_STATE).outcomes[0]?.hits, [
    { hook: "prerouting", table: "ip t", chain: "nat-prerouting", index: 1, rule: "ct state new jump s" },
    { hook: "prerouting", table: "ip t", chain: "s", index: 3, rule: "meta mark set 1 dnat to 10.0.0.9" },
    { hook: "forward", table: "ip t", chain: "forward", index: 1, rule: "accept" },
  ]);
});

Deno.test(
  "the type of a refusal is reported, the kernel's default by family",
  { permissions: "none" },
  () => {
    const nftables = tablesOfScript(`add table ip6 t
add chain ip6 t f { type filter hook forward priority 0; }
add rule ip6 t f reject`);
    const six = new RulesetSimulator({ ...emptySnapshot("IPv6"), nftables });
    const four = simulator(["forward: tcp dport 1 reject with tcp reset", "forward: reject"]);
    const type = (of: RulesetSimulator, packet: string) =>
      of.send(parsePacket(packet), HOST_STATE).outcomes[0]?.rejectWith;
    assertEquals(type(four, "10.0.0.1 → 10.0.0.2:1"), "tcp-reset");
    assertEquals(type(four, "10.0.0.1 → 10.0.0.2:2"), "icmp-port-unreachable");
    assertEquals(type(six, "fd00::1 → [fd00::2]:80"), "icmp6-port-unreachable");
  },
);

Deno.test("an affinity set knows a source for its time, per source, and update starts it afresh", {
  permissions: "none",
}, () => {
  const simulated = simulator([
    "add set ip t clients { type ipv4_addr ; flags dynamic,timeout ; timeout 10s ; }",
    "nat-prerouting: tcp dport 1 update @clients { ip saddr } dnat to 10.0.0.1",
    "nat-prerouting: tcp dport 2 ip saddr @clients dnat to 10.0.0.2",
    "nat-prerouting: tcp dport 3 add @clients { ip saddr } dnat to 10.0.0.3",
    "nat-prerouting: tcp dport 4 update @clients { ip saddr } ip saddr @clients dnat to 10.0.0.4",
  ]);
  let affinity: AffinityMemory = new Map();
  const connect = (text: string, nowSeconds: number): string => {
    const packet = parsePacket(text);
    const flow = simulated.send(packet, { ...HOST_STATE, affinity, nowSeconds });
    for (const outcome of flow.outcomes) affinity = rememberOutcome(affinity, packet, outcome, nowSeconds);
    return formatFlow(flow).replace(", masquerade no", "");
  };
  assertEquals(connect("10.0.0.7 → 10.9.0.1:2", 0), "untranslated");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:1", 0), "10.0.0.1:1");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:2", 9), "10.0.0.2:2");
  assertEquals(connect("10.0.0.8 → 10.9.0.1:2", 9), "untranslated");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:2", 10), "untranslated");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:1", 9), "10.0.0.1:1");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:2", 18), "10.0.0.2:2");
  // An element that exists keeps its expiry.
  assertEquals(connect("10.0.0.7 → 10.9.0.1:3", 15), "10.0.0.3:3");
  assertEquals(connect("10.0.0.7 → 10.9.0.1:2", 19), "untranslated");
  // A later statement sees the element for the same packet.
  assertEquals(connect("10.0.0.9 → 10.9.0.1:4", 50), "10.0.0.4:4");
});

const REFUSED: readonly [name: string, lines: readonly string[], why: string][] = [
  [
    "dnat after routing",
    ["nat-postrouting: dnat to 10.0.0.1"],
    "dnat is reached from a nat chain of postrouting",
  ],
  ["dnat in a filter chain", ["prerouting: dnat to 10.0.0.1"], "dnat is reached from a filter chain"],
  ["masquerade before routing", ["nat-prerouting: masquerade"], "masquerade is reached from"],
  ["reject after routing", ["postrouting: reject"], "reject is reached from a filter chain of postrouting"],
  ["jumps in a circle", ["prerouting: jump a", "a: jump b", "b: jump a"], "never end at"],
  ["a network of another kind", ["prerouting: ip saddr 10.0.0.0/99 drop"], "is no network"],
  ["a port that is none", ["prerouting: tcp dport http drop"], "is no inet_service"],
];

for (const [name, lines, why] of REFUSED) {
  Deno.test(`rules that the kernel would refuse are reported: ${name}`, { permissions: "none" }, () => {
    const { problems, ...flow } = simulator(lines).send(parsePacket("10.0.0.1 → 10.9.0.1:80"), HOST_STATE);
    assertEquals([problems.length, problems[0]?.includes(why)], [1, true], problems.join());
    assertEquals(formatFlow({ ...flow, problems }), "untranslated");
  });
}

Deno.test("a chain before connection tracking may switch it off", { permissions: "none" }, () => {
  const simulated = simulator([
    "add chain ip t raw { type filter hook prerouting priority raw; }",
    "raw: ip saddr 10.0.0.1 notrack",
    "prerouting: ip saddr 10.0.0.2 notrack",
    "nat-prerouting: dnat to 10.0.0.9",
  ]);
  const flowOf = (packet: string): string => formatFlow(simulated.send(parsePacket(packet), HOST_STATE));
  assertEquals(flowOf("10.0.0.1 → 10.9.0.1:80"), "untranslated");
  assertEquals(flowOf("10.0.0.2 → 10.9.0.1:80"), "10.0.0.9:80, masquerade no");
});

Deno.test("packets that cannot be are refused", { permissions: "none" }, () => {
  const simulated = simulator([]);
  assertThrows(
    () => simulated.send(parsePacket("10.0.0.777 → 10.0.0.1:80"), HOST_STATE),
    RangeError,
    "invalid address",
  );
});
