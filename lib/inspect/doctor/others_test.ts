import { assert, assertEquals } from "@std/assert";
import { type FindingCase as Case, testFindings } from "../../../tests/support/finding_cases.ts";
import { eventually } from "../../../tests/support/until.ts";
import { parseBaseChains } from "../../netfilter/nft_listing.ts";
import {
  checkBaseChains,
  checkForward,
  checkLeftovers,
  checkOtherProxies,
  type MetricsOwner,
  readMetricsOwner,
} from "./others.ts";

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
    checkBaseChains([
      ...base("ip", "kproxy", "nat", "prerouting", -100),
      ...base("ip6", "kproxy-next", "nat", "output", -100),
      ...base("ip", "filter", "filter", "forward", 0, "drop"),
    ]),
    ["ok no table of nftables is in front"],
  ],
  ["a table that translates before us", checkBaseChains(base("inet", "lb", "nat", "prerouting", -110)), [
    "warning inet lb c (prerouting, priority -110) may translate",
  ]],
  ["one that translates after us", checkBaseChains(base("ip", "lb", "nat", "prerouting", -90)), [
    "ok no table",
  ]],
  [
    "an input hook that drops is the host's own matter",
    checkBaseChains(base("inet", "fw", "filter", "input", 0, "drop")),
    [
      "ok no table",
    ],
  ],
  ["a table that looks first", checkBaseChains(base("inet", "fw", "filter", "prerouting", -160)), [
    "ok seen before kproxy: inet fw c (prerouting, priority -160)",
  ]],
  [
    "a table named like iptables', of another family",
    checkBaseChains(base("inet", "filter", "filter", "forward", 0, "drop")),
    [
      "warning inet filter c",
    ],
  ],
  [
    "a policy that drops, mode nftables",
    checkForward([{ family: "IPv6", lines: ["-P FORWARD DROP"] }], "nftables"),
    [
      "warning IPv6 chain FORWARD drops what no rule accepts: packets of Services are dropped, too",
    ],
  ],
  [
    "a rule that drops before ours",
    checkForward([{
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
    checkForward([{
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
    checkForward([{ family: "IPv4", lines: ["-A FORWARD -s 10.0.0.0/8 -j DROP"] }], "ipvs"),
    [],
  ],
];

const none = { metricsAddress: "127.0.0.1:10249", mode: "iptables" } as const;
const PORTALS = [{
  family: "IPv4",
  lines: ['-A PREROUTING -m comment --comment "handle ClusterIPs" -j KUBE-PORTALS-CONTAINER'],
}] as const;
const PROXIES: readonly Case[] = [
  ["none", checkOtherProxies(none), ["ok none shows"]],
  ["kproxy itself", checkOtherProxies({ ...none, owner: "kproxy" }), ["ok none; kproxy runs"]],
  ["kube-proxy runs", checkOtherProxies({ ...none, owner: "kube-proxy" }), [
    "failure kube-proxy runs on this node",
  ]],
  ["an address in use", checkOtherProxies({ ...none, owner: "another program" }), [
    "warning something that is no proxy",
  ]],
  [
    "Cilium, by chain and device",
    checkOtherProxies({
      ...none,
      prerouting: [{ family: "IPv4", lines: ['-A PREROUTING -m comment --comment "c" -j CILIUM_PRE_nat'] }],
      links: [{ device: "cilium_host", kind: "veth", mtu: 1500, isUp: true, addresses: [] }],
    }),
    ["warning Cilium was or is here: chain CILIUM_PRE_nat, device cilium_host"],
  ],
  [
    "rules of mode userspace, where that is the mode",
    checkOtherProxies({
      ...none,
      mode: "userspace",
      owner: "kproxy",
      prerouting: PORTALS,
    }),
    ["ok none; kproxy runs"],
  ],
  ["rules of mode userspace, in another mode", checkOtherProxies({ ...none, prerouting: PORTALS }), [
    "warning a proxy in mode userspace, kube-proxy or a kproxy of another configuration, was or is here",
  ]],
  [
    "rules of mode userspace, which no proxy serves",
    checkOtherProxies({
      ...none,
      mode: "userspace",
      owner: "nothing",
      prerouting: PORTALS,
    }),
    ["warning rules of a service proxy are in force, and none answers"],
  ],
  [
    "kube-router",
    checkOtherProxies({
      ...none,
      links: [{ device: "kube-dummy-if", kind: "dummy", mtu: 0, isUp: true, addresses: [] }],
    }),
    [
      "warning kube-router was or is here",
    ],
  ],
];

const LEFTOVERS: readonly Case[] = [
  ["nothing", checkLeftovers({ found: [], modes: ["nftables"], failed: [] }, "iptables", []), [
    "ok no other mode",
  ]],
  [
    "the device of IPVS",
    checkLeftovers({ found: [], modes: ["nftables"], failed: [] }, "iptables", ["kube-ipvs0"]),
    [
      "warning device kube-ipvs0 is there",
    ],
  ],
  ["its own device", checkLeftovers({ found: [], modes: ["nftables"], failed: [] }, "ipvs", ["kube-ipvs0"]), [
    "ok",
  ]],
  ["not looked at", checkLeftovers({ found: [], modes: ["ipvs"], failed: ["ipset: x"] }, "nftables", []), [
    "warning could not be looked at: ipset: x",
  ]],
];

testFindings({
  hooks: HOOKS,
  "other proxies": PROXIES,
  leftovers: LEFTOVERS,
});

const METRICS = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";

/** The listener on the address, its answer, and whether it closes the connection. */
const OWNERS: readonly (readonly [who: string, sent: string, isEnded: boolean, owner: MetricsOwner])[] = [
  ["kube-proxy", `${METRICS}# HELP go_gc_duration_seconds A summary\ngo_x 1\n`, true, "kube-proxy"],
  ["kproxy", `${METRICS}# HELP kproxy_x X\nkproxy_x 1\n`, true, "kproxy"],
  ["a web server", "HTTP/1.1 404 Not Found\r\n\r\n<html>", true, "another program"],
  ["a server of another protocol", "SSH-2.0-OpenSSH_9.6\r\n\r\n", true, "another program"],
  ["one that hangs up", "", true, "another program"],
  ["one that says nothing", "", false, "another program"],
  ["metrics without an end", METRICS + "go_x 1\n".repeat(30_000), false, "kube-proxy"],
];

for (const [who, sent, isEnded, owner] of OWNERS) {
  // The limits are those of the check; where the machine stalls for as long, it is asked again.
  const ask = async (): Promise<void> => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const serving = (async () => {
      const connection = await listener.accept();
      await connection.read(new Uint8Array(1_000));
      const writer = connection.writable.getWriter();
      // The reader may have closed the connection, having read enough.
      const sending = Promise.allSettled([writer.write(new TextEncoder().encode(sent))]);
      return { connection, sending };
    })();
    const startMs = performance.now();
    const asking = readMetricsOwner(`127.0.0.1:${(listener.addr as Deno.NetAddr).port}`);
    const { connection, sending } = await serving;
    if (isEnded) {
      await sending;
      connection.close();
    }
    const told = await asking;
    const tookMs = performance.now() - startMs;
    await sending;
    if (!isEnded) connection.close();
    assertEquals(told, owner);
    assert(tookMs < 4_500, `${tookMs} ms`);
  };
  Deno.test(`${who} at the metrics' address is reported, soon`, () => eventually(ask, { limitMs: 60_000 }));
}

Deno.test("where no process listens, nothing answers", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  assertEquals(await readMetricsOwner(`127.0.0.1:${port}`), "nothing");
  assertEquals(await readMetricsOwner(`0.0.0.0:${port}`), "nothing");
  assertEquals(await readMetricsOwner(""), "nothing");
});
