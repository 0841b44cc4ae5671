/**
 * Rules that kube-proxy and kproxy make of the same random worlds, as the node's programs print them; and those of kube-proxy beside its
 * layouts that tests use where there is no kube-proxy.
 *
 * @module
 */
import { comparableTables } from "../recorded/recorded.ts";
import { KubeProxy, type KubeProxyMode } from "../support/kube_proxy/kube_proxy.ts";
import type { Netns } from "../support/netns.ts";
import { NodeLab } from "../support/node_lab.ts";
import { Migration, NODES } from "../support/migration.ts";
import { ServiceTraffic } from "../support/service_traffic.ts";
import type { ProxyPair } from "./pair.ts";

/** What the kernel says of its own memory, of time, and of who counted what. */
const OWN_WORDS =
  / (?:hashsize|bucketsize) \d+| initval 0x[0-9a-f]+| expires \w+| packets \d+ bytes \d+| # handle \d+/g;

/** Lines that only one side has. */
export interface RuleComparison {
  readonly lines: number;
  readonly onlyKubeProxy: readonly string[];
  readonly onlyKproxy: readonly string[];
}

/** Everything that a proxy in mode iptables or ipvs wrote, a line each with where it stands; the order of rules is in it. */
async function ruleLines(netns: Netns, mode: KubeProxyMode): Promise<string[]> {
  const lines: string[] = [];
  for (const tool of ["iptables", "ip6tables"]) {
    const saved = (await netns.run([`${tool}-save`])).split("\n");
    for (
      const [table, rules] of Object.entries(comparableTables(saved, mode === "ipvs" ? "ipvs" : "iptables"))
    ) {
      lines.push(...rules.map((rule, at) => `${tool} ${table} ${place(rules, at)}${rule}`));
    }
  }
  if (mode !== "ipvs") return lines;
  for (const command of ["ipvsadm -Sn", "ipset save", "ip -o address show dev kube-ipvs0"]) {
    const said = (await netns.run(command.split(" "))).split("\n").map((line) => line.replace(OWN_WORDS, ""))
      .map((line) => command.startsWith("ip ") ? /inet6? \S+/.exec(line)?.[0] ?? "" : line.trim())
      .filter((line) => line !== "" && !line.startsWith("inet6 fe80:"));
    lines.push(...said.map((line) => `${command}: ${line}`));
  }
  return lines;
}

/** Its number inside its chain, so that another order is a difference. */
function place(rules: readonly string[], at: number): string {
  const chain = /^-A (\S+)/.exec(rules[at]!)?.[1];
  if (chain === undefined) return "";
  return `${at - rules.findIndex((rule) => rule.startsWith(`-A ${chain} `)) + 1}. `;
}

function compare(theirs: readonly string[], ours: readonly string[]): RuleComparison {
  const [known, own] = [new Set(theirs), new Set(ours)];
  return {
    lines: theirs.length,
    onlyKubeProxy: theirs.filter((line) => !own.has(line)),
    onlyKproxy: ours.filter((line) => !known.has(line)),
  };
}

/** The rules of both proxies of a pair, which serve one world and have served no other. */
export async function compareRules({ mode, theirs, ours }: ProxyPair): Promise<RuleComparison> {
  return compare(await ruleLines(theirs.node.netns, mode), await ruleLines(ours.node.netns, mode));
}

/** Tables `kube-proxy` as nft lists them, elements and all, a line each. */
async function nftLines(netns: Netns): Promise<string[]> {
  const lines: string[] = [];
  for (const ip of ["ip", "ip6"]) {
    const text = await netns.run(["nft", "-j", "list", "table", ip, "kube-proxy"]);
    const { nftables } = JSON.parse(text) as { nftables: readonly Readonly<Record<string, NftObject>>[] };
    const numbers = new Map<string, number>();
    for (const [kind, object] of nftables.flatMap((one) => Object.entries(one))) {
      if (kind === "metainfo") continue;
      const { handle: _, elem = [], ...rest } = object;
      const number = (numbers.get(rest.chain ?? "") ?? 0) + 1;
      if (kind === "rule") numbers.set(rest.chain ?? "", number);
      lines.push(`${ip} ${kind} ${kind === "rule" ? number : ""} ${JSON.stringify(withoutCounts(rest))}`);
      lines.push(...elem.map((one) => `${ip} ${rest.name} ${JSON.stringify(one)}`));
    }
  }
  return lines;
}

/** A part of what `nft -j` lists, as far as it is looked at here. */
interface NftObject {
  readonly handle?: number;
  readonly chain?: string;
  readonly name?: string;
  readonly elem?: readonly unknown[];
}

function withoutCounts(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replace(/"(packets|bytes)":\d+/g, '"$1":0'));
}

/** What kube-proxy itself writes on a fresh node for the Services of the tests of takeovers, beside its layouts. */
export async function compareLayouts(mode: KubeProxyMode): Promise<RuleComparison> {
  const read = mode === "nftables" ? nftLines : (netns: Netns) => ruleLines(netns, mode);
  await using theirs = await NodeLab.create();
  await using migration = new Migration(theirs, new ServiceTraffic(theirs, undefined));
  await migration.startKubeProxy(mode, undefined);
  await using layouts = await NodeLab.create();
  await new KubeProxy(layouts.node.netns, NODES, mode).start(migration.laidOut());
  return compare(await read(theirs.node.netns), await read(layouts.node.netns));
}
