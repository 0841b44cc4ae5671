import { assertEquals } from "@std/assert";
import { Afterlife } from "../../lib/backend/node/afterlife.ts";
import { defaultConfig } from "../../lib/config/defaults.ts";
import { withFields } from "../../lib/config/fields.ts";
import { planProxyServer, prepareNode } from "../../lib/node/proxy_server.ts";
import type { LogStream } from "../../lib/observe/line_writer.ts";
import { RecentProblems } from "../../lib/observe/recent_problems.ts";
import { stateOf } from "../support/fake_iptables_state.ts";
import { IpvsStartNode } from "./ipvs_start_node.ts";

/** Programs of one life, each with its first arguments. */
interface Started {
  readonly preparation: readonly string[];
  readonly firstSyncs: readonly string[];
}

/** Prepares the node and serves 30 Services of IPv4 and none of IPv6, as after a start of the program. */
async function start(node: IpvsStartNode): Promise<Started> {
  const stream = { write: () => {}, dropped: 0, onResumed: () => {} } as unknown as LogStream;
  const planned = planProxyServer(
    withFields(defaultConfig(), new Map(Object.entries({ mode: "ipvs", hostnameOverride: "n1" }))),
    {
      commandLine: { master: "", allowsInsecureFiles: false, cleanupModes: [], flagTexts: [] },
      logStreams: { out: stream, err: stream, flush: () => Promise.resolve() },
      exec: node,
      verbosity: { level: 0 },
      problems: new RecentProblems(() => 0),
      reloads: null,
      afterlife: new Afterlife(),
    },
  );
  const { prepared } = await prepareNode(planned, null);
  const preparation = node.started.splice(0);
  const sizes = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`s${index + 1}`, 3]));
  await Promise.all(
    prepared.proxiers.map((proxier) =>
      proxier.sync({ state: stateOf(proxier.family, proxier.family === "IPv4" ? sizes : {}), changed: "all" })
    ),
  );
  const firstSyncs = node.started.splice(0);
  await prepared.close?.();
  assertEquals(node.addresses.size, 30);
  return { preparation, firstSyncs };
}

/** @param save looks at which variant the node uses */
function preparation(save: readonly string[], variant: string): readonly string[] {
  return [
    "sysctl net.netfilter.nf_conntrack_max net.netfilter.nf_conntrack_buckets",
    "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400",
    "ipvsadm -R",
    "ip link add",
    ...save,
    "ipset restore",
    `iptables-${variant}-restore -w 5`,
    `ip6tables-${variant}-restore -w 5`,
    "sysctl -w net.ipv4.vs.conntrack=1",
  ];
}

function firstSyncs(variant: string): readonly string[] {
  return [
    `iptables-${variant}-save`,
    "ipset restore -exist",
    `iptables-${variant}-restore -w 5`,
    "ipvsadm -R",
    "ip -force -batch",
    `ip6tables-${variant}-save`,
    `ip6tables-${variant}-restore -w 5`,
  ];
}

const NFT_LOOK = "iptables-nft-save -t mangle";

Deno.test("mode ipvs on a fresh node: 9 programs until it is prepared, 5 for IPv4, 2 for IPv6", async () => {
  const started = await start(new IpvsStartNode("nft"));
  assertEquals(started.preparation, preparation([NFT_LOOK], "nft"));
  assertEquals(started.firstSyncs, firstSyncs("nft"));
});

Deno.test("mode ipvs on a fresh node with the legacy variant: one program more", async () => {
  const started = await start(new IpvsStartNode("legacy"));
  assertEquals(started.preparation, preparation([NFT_LOOK, "iptables-legacy-save"], "legacy"));
  assertEquals(started.firstSyncs, firstSyncs("legacy"));
});

Deno.test("mode ipvs where it ran before: everything is read once, nothing is written", async () => {
  const node = new IpvsStartNode("nft");
  await start(node);
  const started = await start(node);
  assertEquals(started.preparation, [
    "sysctl net.netfilter.nf_conntrack_max net.netfilter.nf_conntrack_buckets",
    "ipvsadm -R",
    "ip link add",
    "ip -json -details",
    NFT_LOOK,
    "ipset restore -exist",
    "iptables-nft-restore -w 5",
    "ip6tables-nft-restore -w 5",
    "ipset restore",
  ]);
  assertEquals(started.firstSyncs, [
    "ipvsadm -Sn",
    "ipset save",
    "ip -json -details",
    "iptables-nft-save",
    "ip6tables-nft-save",
  ]);
});
