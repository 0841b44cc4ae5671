import { assertEquals, assertMatch } from "@std/assert";
import { parseIptablesSave } from "../netfilter/iptables_save.ts";
import { formatFlow, parsePacket } from "./flow.ts";
import type { HeldPortal, PortalSnapshot } from "./portals.ts";
import { emptySnapshot } from "./ruleset_snapshot.ts";
import { RulesetSimulator } from "./ruleset_simulator.ts";
import type { HostState } from "./packet_walk.ts";

const NONE = { permissions: "none" } as const;
const [A, B] = [{ ip: "10.244.0.11", port: 8080 }, { ip: "10.244.1.12", port: 8080 }];
const WEB: HeldPortal = { servicePort: "shop/web", policy: "cluster", endpoints: [A, B], stickySeconds: 0 };
/** As kube-proxy before 1.26 wrote them, and `iptables-save` printed them. */
const RULES = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
-A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
-A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
-A KUBE-PORTALS-CONTAINER -d 10.96.0.1/32 -p tcp -m comment --comment "shop/web:" -m tcp --dport 80 -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-CONTAINER -d 10.96.0.1/32 -p udp -m comment --comment "shop/web:" -m udp --dport 80 -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-HOST -d 10.96.0.1/32 -p tcp -m comment --comment "shop/web:" -m tcp --dport 80 -j DNAT --to-destination 192.0.2.10:40001
COMMIT
*filter
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
`;
const FROM_POD = "10.244.0.5@cni0 → 10.96.0.1:80";

interface Circumstances extends Partial<HostState> {
  readonly portals?: PortalSnapshot;
  readonly rules?: string;
}

function send(packet: string, { portals, rules = RULES, ...around }: Circumstances = {}) {
  const held = {
    ...emptySnapshot("IPv4"),
    iptables: [{ variant: "" as const, tables: parseIptablesSave(rules) }],
  };
  const simulator = new RulesetSimulator(portals === undefined ? held : { ...held, portals });
  const plain = { nodeAddresses: ["192.0.2.10"], affinity: new Map(), nowSeconds: 0 };
  const flow = simulator.send(parsePacket(packet), { ...plain, ...around });
  assertEquals(flow.problems, []);
  return flow;
}

const tcp = (portal: HeldPortal | "nothing" | "another program"): PortalSnapshot =>
  new Map([["tcp 40001", portal]]);

Deno.test(
  "a redirection leads to the address of the interface, or to loopback from a process of the node",
  NONE,
  () => {
    assertEquals(formatFlow(send(FROM_POD)), "192.0.2.10:40001, masquerade no");
    const addressOf = (name: string): string | null => name === "cni0" ? "10.244.0.1" : null;
    assertEquals(formatFlow(send(FROM_POD, { addressOf })), "10.244.0.1:40001, masquerade no");
    assertEquals(formatFlow(send("10.0.0.7@eth9 → 10.96.0.1:80", { addressOf })), "dropped");
    const redirected = RULES.replace("-j DNAT --to-destination 192.0.2.10:", "-j REDIRECT --to-ports ");
    assertEquals(
      formatFlow(send("192.0.2.10@node → 10.96.0.1:80", { rules: redirected })),
      "127.0.0.1:40001, masquerade no",
    );
  },
);

Deno.test(
  "the process that listens takes the packet to its endpoints in turn, from the node's address",
  NONE,
  () => {
    const flow = send(FROM_POD, { portals: tcp(WEB) });
    assertEquals(formatFlow(flow), "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade yes");
    assertMatch(
      flow.outcomes[0]?.hits.map(({ rule }) => rule).join("\n") ?? "",
      /^kproxy takes it for shop\/web and connects to the next endpoint in turn/m,
    );
    assertEquals(
      formatFlow(send("192.0.2.10@node → 10.96.0.1:80", { portals: tcp({ ...WEB, endpoints: [A] }) })),
      "10.244.0.11:8080, masquerade yes",
    );
  },
);

Deno.test(
  "without endpoints a connection is closed, a datagram is lost, and where no process listens the kernel refuses",
  NONE,
  () => {
    const none = { ...WEB, endpoints: [] };
    assertEquals(formatFlow(send(FROM_POD, { portals: tcp(none) })), "closed");
    assertEquals(formatFlow(send(`${FROM_POD}/udp`, { portals: new Map([["udp 40001", none]]) })), "dropped");
    assertEquals(formatFlow(send(FROM_POD, { portals: tcp("nothing") })), "rejected");
    assertEquals(
      formatFlow(send(FROM_POD, { portals: tcp("another program") })),
      "192.0.2.10:40001, masquerade no",
    );
  },
);

Deno.test("a client with affinity has its endpoint again within the time", NONE, () => {
  const portals = tcp({ ...WEB, stickySeconds: 10 });
  const [, second] = send(FROM_POD, { portals }).outcomes;
  const [list = ""] = second?.remembered ?? [];
  const at = (nowSeconds: number): string =>
    formatFlow(
      send(FROM_POD, { portals, nowSeconds, affinity: new Map([[list, new Map([["10.244.0.5", 0]])]]) }),
    );
  assertEquals(at(9), "10.244.1.12:8080, masquerade yes");
  assertEquals(at(10), "10.244.0.11:8080 (1/2) | 10.244.1.12:8080 (1/2), masquerade yes");
});

Deno.test(
  "an endpoint that rules keep kproxy from is skipped over TCP, and loses its datagrams",
  NONE,
  () => {
    const rules = RULES.replace(/(\*filter[^]*)COMMIT/, "$1-A OUTPUT -d 10.244.0.11/32 -j DROP\nCOMMIT");
    const flow = send(FROM_POD, { rules, portals: tcp(WEB) });
    assertEquals(formatFlow(flow), "10.244.1.12:8080, masquerade yes");
    const told = flow.outcomes[0]?.hits.map(({ rule }) => rule).join("\n") ?? "";
    assertMatch(
      told,
      /10\.244\.0\.11:8080 takes no connection, another endpoint has its turn\n-d 10\.244\.0\.11\/32 -j DROP/,
    );
    assertEquals(formatFlow(send(FROM_POD, { rules, portals: tcp({ ...WEB, endpoints: [A] }) })), "closed");
    const datagram = send(`${FROM_POD}/udp`, { rules, portals: new Map([["udp 40001", WEB]]) });
    assertEquals(formatFlow(datagram), "dropped (1/2) | 10.244.1.12:8080 (1/2, masquerade yes)");
  },
);
