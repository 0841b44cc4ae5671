import { parseIptablesSave } from "../netfilter/iptables_save.ts";
import { formatFlow, type Packet, parsePacket } from "./flow.ts";
import { type AffinityMemory, type HostState, rememberOutcome } from "./packet_walk.ts";
import { RulesetSimulator } from "./ruleset_simulator.ts";
import { emptySnapshot } from "./ruleset_snapshot.ts";
import { assertEquals, assertThrows } from "@std/assert";

const HOST_STATE: HostState = {
  nodeAddresses: ["192.0.2.10", "fd00::10"],
  affinity: new Map(),
  nowSeconds: 0,
};

/** A ruleset of both tables; a chain line is written for every chain that has rules. */
function rules(nat: readonly string[], filter: readonly string[] = [], policies: readonly string[] = []) {
  const table = (name: string, lines: readonly string[], chainLines: readonly string[]) => {
    const chains = new Set(lines.map((line) => line.split(" ")[1]));
    const declared = [...chains].filter((chain) => !chainLines.some((line) => line.startsWith(`:${chain} `)));
    return [
      `*${name}`,
      ...chainLines,
      ...declared.map((chain) => `:${chain} - [0:0]`),
      ...lines,
      "COMMIT",
      "",
    ]
      .join("\n");
  };
  return parseIptablesSave(table("nat", nat, []) + table("filter", filter, policies));
}

function send(ruleset: ReturnType<typeof rules>, packet: string | Packet, hostState = HOST_STATE) {
  return new RulesetSimulator({ ...emptySnapshot("IPv4"), iptables: [{ variant: "", tables: ruleset }] })
    .send(
      typeof packet === "string" ? parsePacket(packet) : packet,
      hostState,
    );
}

interface Case {
  readonly name: string;
  readonly nat?: readonly string[];
  readonly filter?: readonly string[];
  readonly policies?: readonly string[];
  readonly flows: Readonly<Record<string, string>>;
}

const CASES: readonly Case[] = [
  {
    name: "no rules at all let everything pass",
    flows: { "10.0.0.1 → 10.0.0.2:80": "untranslated", "10.0.0.1 → 192.0.2.10:80": "this node" },
  },
  {
    name: "forwarded packets see FORWARD, those for the node INPUT, those of the node OUTPUT",
    filter: [
      "-A INPUT -p tcp --dport 1 -j DROP",
      "-A FORWARD -p tcp --dport 2 -j DROP",
      "-A OUTPUT -p tcp --dport 3 -j DROP",
    ],
    flows: {
      "10.0.0.1 → 192.0.2.10:1": "dropped",
      "10.0.0.1 → 192.0.2.10:2": "this node",
      "10.0.0.1 → 10.0.0.2:1": "untranslated",
      "10.0.0.1 → 10.0.0.2:2": "dropped",
      "192.0.2.10@node → 10.0.0.2:2": "untranslated",
      "192.0.2.10@node → 10.0.0.2:3": "dropped",
      // Packets of the node to itself come back in through lo.
      "127.0.0.1@node → 127.0.0.1:1": "dropped",
      "127.0.0.1@node → 127.0.0.1:2": "this node",
    },
  },
  {
    name: "the policy of a built-in chain decides what no rule decided",
    filter: ["-A FORWARD -s 10.0.0.1 -j ACCEPT", "-A FORWARD -s 10.0.0.3 -j U", "-A U -j RETURN"],
    policies: [":FORWARD DROP [0:0]"],
    flows: {
      "10.0.0.1 → 10.0.0.2:80": "untranslated",
      "10.0.0.2 → 10.0.0.1:80": "dropped",
      "10.0.0.3 → 10.0.0.1:80": "dropped",
    },
  },
  {
    name: "filter sees the translated destination and the DNAT state",
    nat: ["-A PREROUTING -d 10.9.0.1 -p tcp -j DNAT --to-destination 10.0.0.9:8080"],
    filter: [
      "-A FORWARD -d 10.9.0.1 -j DROP",
      "-A FORWARD -s 10.0.0.5 -m conntrack --ctstate DNAT -j REJECT --reject-with tcp-reset",
      "-A FORWARD -s 10.0.0.6 -p tcp --dport 8080 -j DROP",
    ],
    flows: {
      "10.0.0.1 → 10.9.0.1:80": "10.0.0.9:8080, masquerade no",
      "10.0.0.5 → 10.9.0.1:80": "rejected",
      "10.0.0.6 → 10.9.0.1:80": "dropped",
      "10.0.0.5 → 10.0.0.9:80": "untranslated",
    },
  },
  {
    name: "a destination without a port keeps the packet's",
    nat: [
      "-A PREROUTING -d 10.9.0.1 -j DNAT --to-destination 10.0.0.9",
      "-A PREROUTING -d fd00:9::1 -j DNAT --to-destination fd00::9",
    ],
    flows: {
      "10.0.0.1 → 10.9.0.1:80": "10.0.0.9:80, masquerade no",
      "fd00::1 → [fd00:9::1]:80": "[fd00::9]:80, masquerade no",
    },
  },
  {
    name: "nat is asked for new connections only",
    nat: ["-A PREROUTING -d 10.9.0.1 -j DNAT --to-destination 10.0.0.9", "-A POSTROUTING -j MASQUERADE"],
    flows: {
      "10.0.0.1 → 10.9.0.1:80": "10.0.0.9:80, masquerade yes",
      "10.0.0.1 → 10.9.0.1:80 ESTABLISHED": "untranslated",
      "10.0.0.1 → 10.9.0.1:80 INVALID": "untranslated",
    },
  },
  {
    name: "RETURN goes back to the caller, goto does not come back to it",
    filter: [
      "-A FORWARD -s 10.0.0.1 -j A",
      "-A FORWARD -s 10.0.0.2 -g A",
      "-A FORWARD -s 10.0.0.3 -j B",
      "-A FORWARD -j DROP",
      "-A A -j RETURN",
      "-A A -j REJECT",
      "-A B -g A",
      "-A B -j ACCEPT",
    ],
    policies: [":FORWARD ACCEPT [0:0]"],
    flows: {
      "10.0.0.1 → 10.0.0.9:80": "dropped",
      "10.0.0.2 → 10.0.0.9:80": "untranslated",
      "10.0.0.3 → 10.0.0.9:80": "dropped",
      "10.0.0.4 → 10.0.0.9:80": "dropped",
    },
  },
  {
    name: "marks are set, cleared and matched by their bits",
    filter: [
      "-A FORWARD -s 10.0.0.1 -j MARK --or-mark 0x4000",
      "-A FORWARD -s 10.0.0.2 -j MARK --set-xmark 0x4000/0x4000",
      "-A FORWARD -s 10.0.0.3 -j MARK --xor-mark 0x4000",
      "-A FORWARD -s 10.0.0.4 -j MARK --and-mark 0xff",
      "-A FORWARD -s 10.0.0.5 -j MARK --set-mark 0x1/0xf",
      "-A FORWARD -m mark ! --mark 0x4000/0x4000 -j DROP",
    ],
    flows: {
      "10.0.0.1 → 10.0.0.9:80 mark 0x1": "untranslated, mark 0x4001 left",
      "10.0.0.2 → 10.0.0.9:80 mark 0x1": "untranslated, mark 0x4001 left",
      "10.0.0.3 → 10.0.0.9:80 mark 0x4000": "dropped",
      "10.0.0.4 → 10.0.0.9:80 mark 0x40ff": "dropped",
      "10.0.0.5 → 10.0.0.9:80 mark 0x400f": "untranslated, mark 0x4001 left",
      "10.0.0.6 → 10.0.0.9:80 mark 0x80004000": "untranslated, mark 0x80004000 left",
    },
  },
  {
    name: "random choices multiply, and what comes back goes on",
    nat: [
      "-A PREROUTING -m statistic --mode random --probability 0.25 -j A",
      "-A PREROUTING -m statistic --mode random --probability 0.3333333333 -j DNAT --to-destination 10.0.0.2",
      "-A PREROUTING -j DNAT --to-destination 10.0.0.3",
      "-A A -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1",
    ],
    flows: {
      "10.0.0.7 → 10.9.0.1:80": "10.0.0.1:80 (1/8) | 10.0.0.2:80 (7/24) | 10.0.0.3:80 (7/12), masquerade no",
    },
  },
  {
    name: "conditions that are turned around",
    filter: [
      "-A FORWARD ! -s 10.0.0.0/8 -j DROP",
      "-A FORWARD ! -i eth0 -j REJECT",
      "-A FORWARD ! -p tcp -j DROP",
      "-A FORWARD -p tcp ! --dport 80:89 -j DROP",
      "-A FORWARD -m addrtype ! --dst-type LOCAL -s 10.0.0.3 -j DROP",
    ],
    flows: {
      "11.0.0.1 → 10.0.0.9:80": "dropped",
      "10.0.0.1@eth1 → 10.0.0.9:80": "rejected",
      "10.0.0.1 → 10.0.0.9:80/udp": "dropped",
      "10.0.0.1 → 10.0.0.9:90": "dropped",
      "10.0.0.1 → 10.0.0.9:89": "untranslated",
      "10.0.0.3 → 10.0.0.9:80": "dropped",
    },
  },
  {
    name: "logging does not stop a packet, and neither does a rule without a target",
    filter: [
      "-A FORWARD -j LOG --log-prefix x",
      "-A FORWARD -j LOG",
      "-A FORWARD -s 10.0.0.1",
      "-A FORWARD -j DROP",
    ],
    flows: { "10.0.0.1 → 10.0.0.9:80": "dropped" },
  },
  {
    name: "ICMP has no ports",
    filter: ["-A FORWARD -p tcp --dport 0:65535 -j DROP", "-A FORWARD -p icmp -s 10.0.0.2 -j DROP"],
    flows: { "10.0.0.1 → 10.0.0.9/icmp": "untranslated", "10.0.0.2 → 10.0.0.9/icmp": "dropped" },
  },
  {
    name: "a process on the node has no incoming interface",
    nat: [
      "-A OUTPUT -i lo -j DNAT --to-destination 10.0.0.1",
      "-A OUTPUT ! -i lo -j DNAT --to-destination 10.0.0.2",
    ],
    flows: { "192.0.2.10@node → 10.9.0.1:80": "10.0.0.2:80, masquerade no" },
  },
];

for (const { name, nat = [], filter = [], policies = [], flows } of CASES) {
  Deno.test(`simulated iptables: ${name}`, { permissions: "none" }, () => {
    const ruleset = rules(nat, filter, policies);
    for (const [packet, wanted] of Object.entries(flows)) {
      const flow = send(ruleset, packet);
      assertEquals([packet, formatFlow(flow), flow.problems], [packet, wanted, []]);
    }
  });
}

Deno.test("the rules on the way are reported with their place", { permissions: "none" }, () => {
  const ruleset = rules(
    [
      "-A PREROUTING -j S",
      "-A S -d 10.0.0.0/8",
      "-A S -d 11.0.0.0/8",
      "-A S -d 10.9.0.1 -j DNAT --to-destination 10.0.0.9",
    ],
    ["-A FORWARD -j ACCEPT"],
  );
  assertEquals(send(ruleset, "10.0.0.1 → 10.9.0.1:80").outcomes[0]?.hits, [
    { hook: "prerouting", table: "nat", chain: "PREROUTING", index: 1, rule: "-j S" },
    { hook: "prerouting", table: "nat", chain: "S", index: 1, rule: "-d 10.0.0.0/8" },
    {
      hook: "prerouting",
      table: "nat",
      chain: "S",
      index: 3,
      rule: "-d 10.9.0.1 -j DNAT --to-destination 10.0.0.9",
    },
    { hook: "forward", table: "filter", chain: "FORWARD", index: 1, rule: "-j ACCEPT" },
  ]);
});

Deno.test(
  "the type of a refusal is reported, the kernel's default by family",
  { permissions: "none" },
  () => {
    const ruleset = rules([], [
      "-A FORWARD -p udp -j REJECT --reject-with icmp-host-prohibited",
      "-A FORWARD -j REJECT",
    ]);
    const type = (packet: string) => send(ruleset, packet).outcomes[0]?.rejectWith;
    assertEquals(type("10.0.0.1 → 10.0.0.2:80"), "icmp-port-unreachable");
    assertEquals(type("fd00::1 → [fd00::2]:80"), "icmp6-port-unreachable");
    assertEquals(type("10.0.0.1 → 10.0.0.2:80/udp"), "icmp-host-prohibited");
  },
);

const PROBLEMS: readonly { name: string; nat: readonly string[]; problem: RegExp }[] = [
  { name: "a missing chain", nat: ["-A PREROUTING -j GONE"], problem: /chain that does not exist: GONE/ },
  {
    name: "an unknown match",
    nat: ["-A PREROUTING -m foo --bar 1 -j DNAT --to-destination 10.0.0.1"],
    problem: /-m foo --bar 1/,
  },
  {
    name: "an unknown target",
    nat: ["-A PREROUTING -j TPROXY --on-port 80"],
    problem: /TPROXY --on-port 80/,
  },
  {
    name: "an address range",
    nat: ["-A PREROUTING -j DNAT --to-destination 10.0.0.1-10.0.0.5"],
    problem: /10\.0\.0\.1-10\.0\.0\.5/,
  },
  { name: "a source port", nat: ["-A PREROUTING -p tcp --sport 80 -j DROP"], problem: /--sport 80/ },
  {
    name: "an address type",
    nat: ["-A PREROUTING -m addrtype --dst-type BROADCAST -j DROP"],
    problem: /BROADCAST/,
  },
  {
    name: "jumps in a circle",
    nat: ["-A PREROUTING -j A", "-A A -j B", "-A B -j A"],
    problem: /never end at/,
  },
];

for (const { name, nat, problem } of PROBLEMS) {
  Deno.test(
    `${name} is reported as a problem and does not decide the packet`,
    { permissions: "none" },
    () => {
      const flow = send(rules(nat), "10.0.0.1 → 10.9.0.1:80");
      assertEquals(
        [flow.problems.length, problem.test(flow.problems[0] ?? "")],
        [1, true],
        flow.problems.join(),
      );
      assertEquals(formatFlow(flow), "untranslated");
    },
  );
}

Deno.test("an unknown match that other conditions rule out is no problem", { permissions: "none" }, () => {
  const flow = send(rules(["-A PREROUTING -d 10.8.0.1 -m foo --bar 1 -j DROP"]), "10.0.0.1 → 10.9.0.1:80");
  assertEquals(flow.problems, []);
});

Deno.test(
  "affinity: set records, rcheck looks within its seconds, update refreshes, the list is per source",
  {
    permissions: "none",
  },
  () => {
    const ruleset = rules([
      "-A PREROUTING -p tcp --dport 1 -m recent --name L --set -j ACCEPT",
      "-A PREROUTING -p tcp --dport 2 -m recent --name L --rcheck --seconds 10 --reap -j DNAT --to-destination 10.0.0.9",
      "-A PREROUTING -p tcp --dport 3 -m recent --name L --update --seconds 10 -j DNAT --to-destination 10.0.0.8",
      "-A PREROUTING -p tcp --dport 4 -m recent --name L ! --rcheck -j DNAT --to-destination 10.0.0.7",
      // What a later condition refuses is remembered all the same.
      "-A PREROUTING -p tcp --dport 5 -m recent --name M --set -d 10.8.0.0/16 -j DROP",
    ]);
    let affinity: AffinityMemory = new Map();
    const connect = (text: string, nowSeconds: number): string => {
      const packet = parsePacket(text);
      const flow = send(ruleset, packet, { ...HOST_STATE, affinity, nowSeconds });
      for (const outcome of flow.outcomes) affinity = rememberOutcome(affinity, packet, outcome, nowSeconds);
      return formatFlow(flow);
    };
    assertEquals(connect("10.0.0.1 → 10.9.0.1:2", 0), "untranslated");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:4", 0), "10.0.0.7:4, masquerade no");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:1", 0), "untranslated");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:2", 10), "10.0.0.9:2, masquerade no");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:4", 10), "untranslated");
    assertEquals(connect("10.0.0.2 → 10.9.0.1:2", 10), "untranslated");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:2", 11), "untranslated");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:3", 9), "10.0.0.8:3, masquerade no");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:2", 19), "10.0.0.9:2, masquerade no");
    assertEquals(connect("10.0.0.1 → 10.9.0.1:5", 0), "untranslated");
    assertEquals(affinity.get("M")?.get("10.0.0.1"), 0);
  },
);

Deno.test("packets that cannot be are refused", { permissions: "none" }, () => {
  const ruleset = rules([]);
  assertThrows(() => send(ruleset, "10.0.0.777 → 10.0.0.1:80"), RangeError, "invalid address");
  assertThrows(() => send(ruleset, "fd00::1 → 10.0.0.1:80"), RangeError, "mixes IP families");
});

Deno.test("a rule that does not parse is reported when a packet reaches it", { permissions: "none" }, () => {
  assertEquals(send(rules(["-A PREROUTING junk"]), "10.0.0.1 → 10.0.0.2:80").problems, [
    'table nat chain PREROUTING rule 1: "junk" is not understood and taken as not matching',
  ]);
});

const WORDS: readonly (readonly [words: string, packet: string, holds: boolean | undefined])[] = [
  ["-m multiport --dports 80,8000:8099", "10.0.0.1 → 10.0.0.2:8042", true],
  ["-m multiport --dports 80,8000:8099", "10.0.0.1 → 10.0.0.2:8100", false],
  ["-m multiport ! --dports 80,443", "10.0.0.1 → 10.0.0.2:80", false],
  ["-m multiport ! --dports 80,443", "10.0.0.1 → 10.0.0.2:81", true],
  ["-m multiport --sports 80", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["-m iprange --src-range 10.0.0.1-10.0.0.9", "10.0.0.9 → 10.0.0.2:80", true],
  ["-m iprange --src-range 10.0.0.1-10.0.0.9", "10.0.0.10 → 10.0.0.2:80", false],
  [
    "-m iprange --src-range 10.0.0.1-10.0.0.9 ! --dst-range 10.0.0.2-10.0.0.3",
    "10.0.0.1 → 10.0.0.2:80",
    false,
  ],
  ["-m iprange --dst-range fd00::1-fd00::ff", "fd00::5 → [fd00::fe]:80", true],
  ["-m iprange --dst-range nowhere", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["--syn", "10.0.0.1 → 10.0.0.2:80", true],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80", true],
  ["--tcp-flags FIN,SYN,RST,ACK SYN,ACK", "10.0.0.1 → 10.0.0.2:80", false],
  ["! --tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80", false],
  ["--tcp-flags ALL NONE", "10.0.0.1 → 10.0.0.2:80", false],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80/udp", false],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80 ESTABLISHED", undefined],
  ["-m connlimit --connlimit-above 20", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["-m quota", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["frob", "10.0.0.1 → 10.0.0.2:80", undefined],
];

Deno.test("what is certain for the packet holds or does not, what is not is unknown", {
  permissions: "none",
}, () => {
  for (const [words, packet, holds] of WORDS) {
    const flow = send(rules([], [`-A FORWARD ${words} -j DROP`]), packet);
    const found = flow.problems.length > 0 ? undefined : formatFlow(flow) === "dropped";
    assertEquals(found, holds, `${words}: ${packet}`);
  }
});
