/** The simulator on hand-made kernels: states that a flow case cannot set up. */
import { assertEquals } from "@std/assert";
import { formatFlow, parsePacket } from "./flow.ts";
import { parseSets } from "../netfilter/ipset.ts";
import { parseIptablesSave } from "../netfilter/iptables_save.ts";
import { parseIpvsTable } from "../netfilter/ipvs.ts";
import { emptySnapshot, type RulesetSnapshot } from "./ruleset_snapshot.ts";
import { RulesetSimulator } from "./ruleset_simulator.ts";

const pure = { permissions: "none" } as const;

/** A kernel of these texts; `filter` are rules as `-A CHAIN …`. */
function kernel(
  ipvsadm: string,
  filter = "",
  sets = "",
  bound: readonly string[] = ["10.96.0.1"],
): RulesetSnapshot {
  const tables = parseIptablesSave(
    `*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n${filter}COMMIT\n` +
      "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n",
  );
  return {
    ...emptySnapshot("IPv4"),
    iptables: [{ variant: "", tables }],
    sets: parseSets(sets),
    ipvs: { servers: parseIpvsTable(ipvsadm), bound },
  };
}

function send(from: RulesetSnapshot, packet: string): string {
  const hostState = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };
  const flow = new RulesetSimulator(from).send(parsePacket(packet), hostState);
  return [formatFlow(flow), ...flow.problems].join("; ");
}

const TWO = "-A -t 10.96.0.1:80 -s wrr\n-a -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1\n" +
  "-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 3\n-a -t 10.96.0.1:80 -r 10.244.0.3:8080 -m -w 0\n";

Deno.test("real servers are chosen by weight, and not at all with weight 0", pure, () => {
  assertEquals(
    send(kernel(TWO), "10.244.0.9@cni0 → 10.96.0.1:80"),
    "10.244.0.1:8080 (1/4) | 10.244.0.2:8080 (3/4), masquerade no",
  );
  assertEquals(
    send(
      kernel("-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 0\n"),
      "10.244.0.9@cni0 → 10.96.0.1:80",
    ),
    "rejected",
  );
});

Deno.test("a virtual server whose address the node does not have is never asked", pure, () => {
  assertEquals(send(kernel(TWO, "", "", []), "10.244.0.9@cni0 → 10.96.0.1:80"), "untranslated");
  // The node's own packets pass IPVS before they are routed.
  assertEquals(
    send(kernel(TWO, "", "", []), "192.0.2.10@node → 10.96.0.1:80"),
    "10.244.0.1:8080 (1/4) | 10.244.0.2:8080 (3/4), masquerade no",
  );
});

Deno.test("-m ipvs sees which virtual server a packet goes through, and no other packet", pure, () => {
  const rule = (port: number): string =>
    `-A OUTPUT -m ipvs --vaddr 10.96.0.1 --vproto 6 --vport ${port} -j DROP\n`;
  const packets = [
    "10.244.0.9@cni0 → 10.96.0.1:80",
    "192.0.2.10@node → 10.96.0.1:80",
    "192.0.2.10@node → 10.244.0.1:8080",
  ];
  const results = (port: number): string[] =>
    packets.map((packet) => send(kernel(TWO, rule(port)), packet).split(" ")[0] ?? "");
  assertEquals(results(80), ["dropped", "dropped", "untranslated"]);
  assertEquals(results(81).filter((result) => result === "dropped"), []);
});

Deno.test("each type of set compares its parts with the sides that the rule names", pure, () => {
  const sets = [
    ["hash:ip family inet hashsize 1024 maxelem 65536", "192.0.2.10", "dst", true],
    ["hash:ip family inet hashsize 1024 maxelem 65536", "192.0.2.10", "src", false],
    ["hash:ip,port family inet hashsize 1024 maxelem 65536", "192.0.2.10,tcp:80", "dst,dst", true],
    ["hash:ip,port family inet hashsize 1024 maxelem 65536", "192.0.2.10,udp:80", "dst,dst", false],
    ["hash:ip,port family inet hashsize 1024 maxelem 65536", "198.51.100.9,tcp:80", "src,dst", true],
    [
      "hash:ip,port,ip family inet hashsize 1024 maxelem 65536",
      "192.0.2.10,tcp:80,198.51.100.9",
      "dst,dst,src",
      true,
    ],
    [
      "hash:ip,port,ip family inet hashsize 1024 maxelem 65536",
      "192.0.2.10,tcp:80,198.51.100.8",
      "dst,dst,src",
      false,
    ],
    [
      "hash:ip,port,net family inet hashsize 1024 maxelem 65536",
      "192.0.2.10,tcp:80,198.51.100.0/24",
      "dst,dst,src",
      true,
    ],
    [
      "hash:ip,port,net family inet hashsize 1024 maxelem 65536",
      "192.0.2.10,tcp:80,198.51.100.9",
      "dst,dst,src",
      true,
    ],
    [
      "hash:ip,port,net family inet hashsize 1024 maxelem 65536",
      "192.0.2.10,tcp:80,198.51.101.0/24",
      "dst,dst,src",
      false,
    ],
    ["bitmap:port range 0-65535", "80", "dst", true],
    ["bitmap:port range 0-65535", "81", "dst", false],
  ] as const;
  for (const [type, entry, directions, matches] of sets) {
    const made = kernel(
      "",
      `-A INPUT -m set --match-set S ${directions} -j DROP\n`,
      `create S ${type}\nadd S ${entry}\n`,
    );
    const wanted = matches ? "dropped" : "this node";
    assertEquals([type, entry, send(made, "198.51.100.9@eth0 → 192.0.2.10:80")], [type, entry, wanted]);
  }
});

Deno.test("a set that does not exist is reported", pure, () => {
  assertEquals(
    send(kernel("", "-A INPUT -m set --match-set S dst -j DROP\n"), "198.51.100.9@eth0 → 192.0.2.10:80"),
    "this node; A rule looks into set S, which does not exist",
  );
});
