import { assertEquals } from "@std/assert";
import { ProcessWide } from "../../lib/backend/node/process_wide.ts";
import { defaultConfig } from "../../lib/config/defaults.ts";
import { withFields } from "../../lib/config/fields.ts";
import { planProxyServer, prepareNode } from "../../lib/node/proxy_server.ts";
import type { LogStream } from "../../lib/observe/line_writer.ts";
import { RecentProblems } from "../../lib/observe/log.ts";
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
      processWide: new ProcessWide(),
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

const NFT_LOOK = "iptables-nft-save -t mangle";

/** Whether the programs of a variant are there and work, in both families side by side. */
function families(variant: "nft" | "legacy"): readonly string[] {
  // The programs without a variant in their name are of nft here.
  const suffix = variant === "nft" ? "" : "-legacy";
  const steps = [" --version", ...suffix === "" ? [] : [`${suffix} --version`], `${suffix} -w 5`];
  return steps.flatMap((step) => ["iptables", "ip6tables"].map((tool) => `${tool}${step}`));
}

/** Sets and matches are tried, and the sets go again. */
function trial(suffix: string): readonly string[] {
  return [
    "ipset restore -exist",
    `iptables${suffix}-restore -w 5`,
    `ip6tables${suffix}-restore -w 5`,
    "ipset restore",
  ];
}

/** @param looks which variant the node uses */
function preparation(looks: readonly string[], variant: "nft" | "legacy"): readonly string[] {
  return [
    "sysctl net.netfilter.nf_conntrack_max net.netfilter.nf_conntrack_buckets",
    "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400",
    "ipvsadm -R",
    "ip link add",
    ...looks,
    ...families(variant),
    ...trial(variant === "nft" ? "" : "-legacy"),
    "sysctl -w net.ipv4.vs.conntrack=1",
  ];
}

function reads(save: string): readonly string[] {
  return ["ipvsadm -Sn", "ipset save", "ip -json -details", save];
}

function firstSyncs(suffix: string): readonly string[] {
  return [
    ...reads(`iptables${suffix}-save`),
    "ipset restore -exist",
    `iptables${suffix}-restore -w 5`,
    "ipvsadm -R",
    "ip -force -batch",
    ...reads(`ip6tables${suffix}-save`),
    "ipset restore -exist",
    `ip6tables${suffix}-restore -w 5`,
  ];
}

Deno.test("mode ipvs on a fresh node: 14 programs until it is prepared, 8 for IPv4, 6 for IPv6", async () => {
  const started = await start(new IpvsStartNode("nft"));
  assertEquals(started.preparation, preparation([NFT_LOOK], "nft"));
  assertEquals(started.firstSyncs, firstSyncs(""));
});

Deno.test("mode ipvs on a fresh node with the legacy variant: three programs more", async () => {
  const started = await start(new IpvsStartNode("legacy"));
  assertEquals(started.preparation, preparation([NFT_LOOK, "iptables-legacy-save"], "legacy"));
  assertEquals(started.firstSyncs, firstSyncs("-legacy"));
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
    ...families("nft"),
    ...trial(""),
  ]);
  assertEquals(started.firstSyncs, [...reads("iptables-save"), ...reads("ip6tables-save")]);
});
