import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { canonicalRuleText } from "./canonical_iptables_rule.ts";
import { parseIptablesRule, renderIptablesRule } from "./iptables_rule.ts";
import { printedRule } from "./printed_iptables_rule.ts";

const NONE = { permissions: "none" } as const;

/** Rules as kproxy writes them, and as `iptables-save` 1.8.9 (nft or legacy) prints them. */
const WRITTEN_AND_SAVED: readonly (readonly [name: string, written: string, saved: string])[] = [
  [
    "cluster IP dispatch",
    '-m comment --comment "edge/api:rest cluster IP" -m tcp -p tcp -d 10.96.10.5 --dport 8080 -j KUBE-SVC-SOCYOWTNBQLJUBLS',
    '-d 10.96.10.5/32 -p tcp -m comment --comment "edge/api:rest cluster IP" -m tcp --dport 8080 -j KUBE-SVC-SOCYOWTNBQLJUBLS',
  ],
  [
    "masquerade of what is not local",
    '-m comment --comment "edge/api:rest cluster IP" -m tcp -p tcp -d 10.96.10.5 --dport 8080 ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ',
    '! -s 10.244.0.0/16 -d 10.96.10.5/32 -p tcp -m comment --comment "edge/api:rest cluster IP" -m tcp --dport 8080 -j KUBE-MARK-MASQ',
  ],
  [
    "node port dispatch with a bare comment",
    "-m comment --comment edge/api:rest -m tcp -p tcp --dport 31080 -j KUBE-EXT-SOCYOWTNBQLJUBLS",
    '-p tcp -m comment --comment "edge/api:rest" -m tcp --dport 31080 -j KUBE-EXT-SOCYOWTNBQLJUBLS',
  ],
  [
    "node port without endpoints",
    '-m comment --comment "ops/empty:grpc has no endpoints" -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30051 -j REJECT',
    '-p tcp -m comment --comment "ops/empty:grpc has no endpoints" -m addrtype --dst-type LOCAL -m tcp --dport 30051 -j REJECT --reject-with icmp-port-unreachable',
  ],
  [
    "IPv6 reject",
    "-m udp -p udp -d fd00:10:96::9 --dport 53 -j REJECT",
    "-d fd00:10:96::9/128 -p udp -m udp --dport 53 -j REJECT --reject-with icmp6-port-unreachable",
  ],
  ["set the mark", "-j MARK --or-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x4000"],
  ["clear the mark", "-j MARK --xor-mark 0x00004000", "-j MARK --set-xmark 0x4000/0x0"],
  [
    "unmarked packets return",
    "-m mark ! --mark 0x00004000/0x00004000 -j RETURN",
    "-m mark ! --mark 0x4000/0x4000 -j RETURN",
  ],
  [
    "masquerade",
    '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
  ],
  [
    "one of three endpoints",
    '-m comment --comment "shop/web:http -> 10.244.0.11:8080" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-GXKVICYM64SODBWJ',
    '-m comment --comment "shop/web:http -> 10.244.0.11:8080" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-GXKVICYM64SODBWJ',
  ],
  [
    "affinity lookup",
    '-m comment --comment "shop/cart -> 10.244.0.21:6379" -m recent --name KUBE-SEP-Z --rcheck --seconds 600 --reap -j KUBE-SEP-Z',
    '-m comment --comment "shop/cart -> 10.244.0.21:6379" -m recent --rcheck --seconds 600 --reap --name KUBE-SEP-Z --mask 255.255.255.255 --rsource -j KUBE-SEP-Z',
  ],
  [
    "affinity record",
    "-m comment --comment shop/cart -m recent --name KUBE-SEP-Z --set -m tcp -p tcp -j DNAT --to-destination 10.244.0.21:6379",
    '-p tcp -m comment --comment "shop/cart" -m recent --set --name KUBE-SEP-Z --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.0.21:6379',
  ],
  [
    "IPv6 affinity record",
    "-m recent --name KUBE-SEP-Z --set -m tcp -p tcp -j DNAT --to-destination [fd00::0:1]:80",
    "-p tcp -m recent --set --name KUBE-SEP-Z --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -m tcp -j DNAT --to-destination [fd00::1]:80",
  ],
  [
    "hairpin mark",
    "-m comment --comment shop/cart -s 10.244.0.21 -j KUBE-MARK-MASQ",
    '-s 10.244.0.21/32 -m comment --comment "shop/cart" -j KUBE-MARK-MASQ',
  ],
  [
    "localnet guard",
    '-m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
    '! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
  ],
  [
    "jump rule",
    '-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  ],
  [
    "node-port tail without loopback",
    '-m comment --comment "a; NOTE: b" -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS',
    '! -d 127.0.0.0/8 -m comment --comment "a; NOTE: b" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS',
  ],
  [
    "comment without target",
    '-m comment --comment "other traffic to edge/api:rest will be dropped by KUBE-PROXY-FIREWALL"',
    '-m comment --comment "other traffic to edge/api:rest will be dropped by KUBE-PROXY-FIREWALL"',
  ],
  [
    "pods behind an interface prefix",
    '-m comment --comment "pod traffic" -i veth+ -j KUBE-SVC-X',
    '-i veth+ -m comment --comment "pod traffic" -j KUBE-SVC-X',
  ],
  [
    "range of any source",
    '-m comment --comment "a/b loadbalancer IP" -s 0.0.0.0/0 -j KUBE-EXT-X',
    '-m comment --comment "a/b loadbalancer IP" -j KUBE-EXT-X',
  ],
  [
    "packet counter",
    "-m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP",
    "-m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP",
  ],
  [
    "half",
    "-m statistic --mode random --probability 0.5 -j A",
    "-m statistic --mode random --probability 0.50000000000 -j A",
  ],
  [
    "IPv6 cluster IP",
    '-m comment --comment "shop/web cluster IP" -m tcp -p tcp -d fd00::1 --dport 80 ! -s fd01::/64 -j KUBE-MARK-MASQ',
    '! -s fd01::/64 -d fd00::1/128 -p tcp -m comment --comment "shop/web cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ',
  ],
  [
    "IPv6 affinity lookup",
    "-m comment --comment web -m recent --name KUBE-SEP-A --rcheck --seconds 600 --reap -j KUBE-SEP-A",
    "-m comment --comment web -m recent --rcheck --seconds 600 --reap --name KUBE-SEP-A --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j KUBE-SEP-A",
  ],
  ["front", "-p udp -m udp -i eth0 -s 10.0.0.1 -j A", "-s 10.0.0.1/32 -i eth0 -p udp -m udp -j A"],
  [
    "options in a comment",
    '-m comment --comment "a $& -d 1.2.3.4" -j A',
    '-m comment --comment "a $& -d 1.2.3.4" -j A',
  ],
];

/** Rules that are compared as data only: they are printed in other words than the table's, or in none that tell the family. */
const OTHER_WORDS = /--(or|xor)-mark|-j REJECT$|--nfacct-name|--mark |0\.0\.0\.0\/0|fd00::0:1/;

for (const [name, written, saved] of WRITTEN_AND_SAVED) {
  Deno.test(`${name}: what is written is read, printed and compared as what is saved`, NONE, () => {
    assertEquals(renderIptablesRule(parseIptablesRule(written)), written);
    assertEquals(canonicalRuleText(saved), canonicalRuleText(written));
    assertEquals(canonicalRuleText(canonicalRuleText(saved)), canonicalRuleText(saved));
    const family = /::|ffff:/.test(saved) ? "IPv6" : "IPv4";
    assertEquals(
      printedRule(written, family) === saved,
      !OTHER_WORDS.test(written),
      printedRule(written, family),
    );
  });
}

Deno.test("rules with more quotes than one word's are printed as they are", NONE, () => {
  for (
    const rule of [
      '-m comment --comment "a \\" b" -d 10.0.0.1 -j A',
      '-m comment --comment "a -d 10.0.0.1 -j A',
    ]
  ) {
    assertEquals(printedRule(rule, "IPv4"), rule);
  }
});

Deno.test("no two different rules share a canonical text", NONE, () => {
  const texts = WRITTEN_AND_SAVED.map(([, written]) => canonicalRuleText(written));
  assertEquals(new Set(texts).size, texts.length);
});

const DIFFERENT: readonly (readonly [string, string])[] = [
  ["-d 10.0.0.1 -j X", "-s 10.0.0.1 -j X"],
  ["-d 10.0.0.0/8 -j X", "-d 10.0.0.0/9 -j X"],
  ["-d 10.0.0.1 -j X", "! -d 10.0.0.1 -j X"],
  ["-s 10.0.0.1 -d 10.0.0.2 -j X", "-s 10.0.0.2 -d 10.0.0.1 -j X"],
  ["! -s 10.0.0.1 -d 10.0.0.2 -j X", "-s 10.0.0.1 ! -d 10.0.0.2 -j X"],
  ['-m comment --comment "a -j b" -j X', "-m comment --comment a -j b"],
  ["-m set --match-set A dst,dst -j X", "-m set --match-set A dst,src -j X"],
  ["! -s 0.0.0.0/0 -j X", "-j X"],
  ["-j X", "-g X"],
  ["-j REJECT", "-j REJECT --reject-with tcp-reset"],
  ["-j MASQUERADE", "-j MASQUERADE --random-fully"],
  ["-j MARK --or-mark 0x4000", "-j MARK --xor-mark 0x4000"],
  ["-j MARK --set-mark 0x4000", "-j MARK --or-mark 0x4000"],
  ["-m mark --mark 0x4000 -j X", "-m mark --mark 0x4000/0x4000 -j X"],
  ["-m recent --name A --rcheck -j X", "-m recent --name A --rcheck --rdest -j X"],
  ["-m recent --name A --rcheck --seconds 5 -j X", "-m recent --name A --rcheck --seconds 6 -j X"],
  ["-m recent --name A --rcheck --reap --seconds 5 -j X", "-m recent --name A --rcheck --seconds 5 -j X"],
  ["-m statistic --mode random --probability 0.5 -j X", "-m statistic --mode nth --every 2 --packet 0 -j X"],
  ["-m conntrack --ctstate NEW -j X", "-m conntrack ! --ctstate NEW -j X"],
  ["-p tcp -m tcp --dport 80 -j X", "-p tcp -m tcp --sport 80 -j X"],
  ["-p tcp -j X", "-p udp -j X"],
  ["-m comment --comment a -j X", "-m comment --comment b -j X"],
  ["-m foo --bar 1 -j X", "-m foo --bar 2 -j X"],
  ["-m foo --bar 1 -j X", "-m foo ! --bar 1 -j X"],
];

for (const [a, b] of DIFFERENT) {
  Deno.test(`"${a}" and "${b}" are different rules`, NONE, () => {
    assertNotEquals(canonicalRuleText(a), canonicalRuleText(b));
  });
}

const SAME: readonly (readonly [string, string])[] = [
  ["-s 010.1.2.3/8 -j X", "-s 10.0.0.0/8 -j X"],
  ["-p 6 --dport 80 -j X", "-p tcp -m tcp --dport 80 -j X"],
  ["-p TCP -j X", "-p tcp -m tcp -j X"],
  ["-p all -j X", "-j X"],
  ["--source 10.0.0.1 --protocol udp --jump X", "-p udp -m udp -s 10.0.0.1/32 -j X"],
  ["-j MARK --set-mark 0x5", "-j MARK --set-xmark 0x5/0xffffffff"],
  ["-j MARK --set-mark 0x5/0xff", "-j MARK --set-xmark 0x5/0xff"],
  ["-j MARK --and-mark 0x5", "-j MARK --set-xmark 0x0/0xfffffffa"],
  ["-m conntrack --ctstate ESTABLISHED,RELATED -j X", "-m conntrack --ctstate RELATED,ESTABLISHED -j X"],
  [
    "-m addrtype --src-type LOCAL --dst-type LOCAL",
    "-m addrtype --src-type LOCAL -m addrtype --dst-type LOCAL",
  ],
  ["-d FD00:0:0::1 -j X", "-d fd00::1/128 -j X"],
  [
    "-m ipvs --vaddr 10.0.0.1 --vproto tcp --vport 80 -j DROP",
    "-m ipvs --vproto 6 --vaddr 10.0.0.1 --vport 80 -j DROP",
  ],
  [
    "-m ipvs --vaddr fd00::1 --vproto sctp --vport 80 -j DROP",
    "-m ipvs --vproto 132 --vaddr fd00::1 --vport 80 -j DROP",
  ],
];

for (const [a, b] of SAME) {
  Deno.test(`"${a}" and "${b}" are the same rule`, NONE, () => {
    assertEquals(canonicalRuleText(a), canonicalRuleText(b));
  });
}

Deno.test("what the reader does not know is kept word by word", NONE, () => {
  const texts = [
    '-s 10.0.0.0/8 ! -i veth+ -p tcp -m comment --comment "a \\"q\\" it\'s \\\\ back" -m multiport --dports 80,443 -m limit --limit 3/min -m mark --mark 0x00000010 -m statistic --mode nth --every 3 --packet 0 -j LOG --log-prefix "he llo"',
    "-p udp -m udp ! --sport 1 --dport 53:60 -g X2",
    "-m set ! --match-set KUBE-CLUSTER-IP src,dst -j ACCEPT",
    "-p tcp -m tcp --tcp-flags SYN,RST,ACK SYN -j TCPMSS --clamp-mss-to-pmtu",
    "-m conntrack --ctstate NEW --ctproto 6 -j X",
    "-m recent --update --seconds 60 --hitcount 4 --name DEFAULT --rdest -j DROP",
    "-j DNAT --to-destination 10.0.0.1:80 --random --persistent",
    "-m ipvs --vaddr 10.0.0.1 --vproto 6 --vport 80 -j SNAT --to-source 10.0.0.2",
    "-m ipvs --ipvs --vdir ORIGINAL -j ACCEPT",
    "-m physdev ! --physdev-is-in -m physdev --physdev-in eth0 -j ACCEPT",
    "-m set --match-set A src,dst --return-nomatch -j ACCEPT",
    "-j SET --add-set foo src --exist",
    "-f -j DROP",
  ];
  for (const text of texts) assertEquals(renderIptablesRule(parseIptablesRule(text)), text);
});

const MALFORMED: readonly (readonly [string, string])[] = [
  ["-j", "-j needs a value"],
  ["-d", "-d needs a value"],
  ["-m", "-m needs a value"],
  ["10.0.0.1 -j X", '"10.0.0.1" belongs to no option'],
  ["-j X -j Y", "two targets"],
  ["! -j X", '"!" cannot stand before "-j"'],
  ["!", "ends where an option is needed"],
  ['-m comment --comment "x -j Y', "Quote is not closed"],
  ["-j ACCEPT now", '"now" belongs to no option'],
];

for (const [text, problem] of MALFORMED) {
  Deno.test(`the rule text ${JSON.stringify(text)} is refused`, NONE, () => {
    assertThrows(() => parseIptablesRule(text), SyntaxError, problem);
  });
}
