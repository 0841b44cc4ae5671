import { assertEquals } from "@std/assert";
import { parseListedChains } from "./listed_chains.ts";

const NONE = { permissions: "none" } as const;

const LISTED = `-P PREROUTING ACCEPT -c 12 3456
-A PREROUTING -m comment --comment "kubernetes service portals" -c 3 509 -j KUBE-SERVICES
-N KUBE-EMPTY
-N KUBE-SVC-X
-A KUBE-SVC-X ! -s 10.244.0.0/16 -c 0 0 -j KUBE-MARK-MASQ
-A KUBE-SVC-X -m comment --comment "a -c 1 2 \\" -c 3 4 b" -c 5 6 -j KUBE-SEP-Y
-A KUBE-SVC-X
-P OUTPUT DROP
-A OUTPUT -j KUBE-SERVICES
`;

Deno.test(
  "chains in the order of the text, rules as iptables-save prints them, and their counters",
  NONE,
  () => {
    const chains = parseListedChains(LISTED);
    assertEquals(
      chains.map(({ name, chain: { policy, packets, bytes } }) => [name, policy, packets, bytes]),
      [
        ["PREROUTING", "ACCEPT", 12, 3456],
        ["KUBE-EMPTY", "-", 0, 0],
        ["KUBE-SVC-X", "-", 0, 0],
        ["OUTPUT", "DROP", 0, 0],
      ],
    );
    assertEquals(chains.map(({ chain }) => chain.rules), [
      ['-m comment --comment "kubernetes service portals" -j KUBE-SERVICES'],
      [],
      [
        "! -s 10.244.0.0/16 -j KUBE-MARK-MASQ",
        '-m comment --comment "a -c 1 2 \\" -c 3 4 b" -j KUBE-SEP-Y',
        "",
      ],
      ["-j KUBE-SERVICES"],
    ]);
    assertEquals(chains.map(({ chain }) => chain.counters.map((one) => one?.packets ?? null)), [
      [3],
      [],
      [0, 5, null],
      [null],
    ]);
  },
);
