import { assertEquals } from "@std/assert";
import type { IpFamily } from "../model/objects.ts";
import { printedRule } from "./printed_iptables_rule.ts";

const NONE = { permissions: "none" } as const;

const PAIRS: readonly (readonly [written: string, saved: string, family?: IpFamily])[] = [
  [
    '-m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d 10.96.0.1 --dport 80 -j KUBE-SVC-A',
    '-d 10.96.0.1/32 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A',
  ],
  [
    '-m comment --comment "shop/web:http cluster IP" -m tcp -p tcp -d fd00::1 --dport 80 ! -s fd01::/64 -j KUBE-MARK-MASQ',
    '! -s fd01::/64 -d fd00::1/128 -p tcp -m comment --comment "shop/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ',
    "IPv6",
  ],
  [
    '-m comment --comment "shop/web -> 10.0.0.1:80" -m statistic --mode random --probability 0.3333333333 -j KUBE-SEP-A',
    '-m comment --comment "shop/web -> 10.0.0.1:80" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-A',
  ],
  [
    "-m statistic --mode random --probability 0.5 -j A",
    "-m statistic --mode random --probability 0.50000000000 -j A",
  ],
  [
    "-m comment --comment shop/web -m recent --name KUBE-SEP-A --set -m tcp -p tcp -j DNAT --to-destination 10.0.0.1:80",
    '-p tcp -m comment --comment "shop/web" -m recent --set --name KUBE-SEP-A --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.0.1:80',
  ],
  [
    "-m comment --comment web -m recent --name KUBE-SEP-A --rcheck --seconds 600 --reap -j KUBE-SEP-A",
    "-m comment --comment web -m recent --rcheck --seconds 600 --reap --name KUBE-SEP-A --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j KUBE-SEP-A",
    "IPv6",
  ],
  ["-p udp -m udp -i eth0 -s 10.0.0.1 -j A", "-s 10.0.0.1/32 -i eth0 -p udp -m udp -j A"],
  ['-m comment --comment "a $& -d 1.2.3.4" -j A', '-m comment --comment "a $& -d 1.2.3.4" -j A'],
  // kproxy writes none of these.
  ['-m comment --comment "a \\" b" -d 10.0.0.1 -j A', '-m comment --comment "a \\" b" -d 10.0.0.1 -j A'],
  ['-m comment --comment "a -d 10.0.0.1 -j A', '-m comment --comment "a -d 10.0.0.1 -j A'],
];

for (const [written, saved, family = "IPv4"] of PAIRS) {
  Deno.test(`printed: ${written}`, NONE, () => assertEquals(printedRule(written, family), saved));
}
