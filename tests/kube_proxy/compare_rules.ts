/**
 * Rules that kube-proxy and kproxy make of the same random worlds, as the node's programs print them; and those of kube-proxy beside what
 * was recorded of it for tests where there is no kube-proxy.
 *
 * @module
 */
import { comparableTables } from "../recorded/recorded.ts";
import {
  type KubeProxyMode,
  recordedHoldings,
  recordedPath,
  type RecordedState,
} from "../support/kube_proxy/kube_proxy.ts";
import { ProxyApi, withoutMarker } from "../support/kube_proxy/proxy_api.ts";
import { RealKubeProxy } from "../support/kube_proxy/real_kube_proxy.ts";
import type { Netns } from "../support/netns.ts";
import { NodeLab } from "../support/node_lab.ts";
import { pathExists } from "../support/path_exists.ts";
import { clusterObjects, takeoverFields } from "../support/migration.ts";
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
  const lines = async ({ node }: NodeLab): Promise<string[]> =>
    comparableLines(await held(node.netns, mode), mode);
  return compare(await lines(theirs), await lines(ours));
}

/** What kube-proxy wrote for the objects without the marker: section → lines, as they are recorded. */
async function held(netns: Netns, mode: KubeProxyMode): Promise<Map<string, readonly string[]>> {
  const lines = async (command: string): Promise<string[]> =>
    (await netns.run(command.split(" "))).split("\n").map((line) => line.trimEnd()).filter((line) =>
      line.trim() !== "" && !line.startsWith("#")
    );
  if (mode === "nftables") {
    const texts = [
      await lines("nft -s list table ip kube-proxy"),
      await lines("nft -s list table ip6 kube-proxy"),
    ];
    return new Map([["nft", withoutNftMarker(texts.flat())]]);
  }
  const all = new Map<string, readonly string[]>();
  if (mode === "ipvs") {
    const plain = async (command: string): Promise<string[]> =>
      (await lines(command)).map((line) => line.replace(OWN_WORDS, "").trimEnd());
    const addresses = (await lines("ip -o address show dev kube-ipvs0")).flatMap((line) =>
      /inet6? \S+/.exec(line)?.[0] ?? []
    );
    all.set("ipvs", withoutMarker(await plain("ipvsadm -Sn")).sort());
    all.set("ipset", withoutMarker(await plain("ipset save")).sort());
    all.set("addresses", withoutMarker(addresses).filter((line) => !line.startsWith("inet6 fe80:")).sort());
  }
  for (const tool of ["iptables", "ip6tables"]) {
    const saved = withoutMarker(await lines(`${tool}-save`));
    all.set(tool, saved.map((line) => line.replace(/\[\d+:\d+\]/, "[0:0]")));
  }
  return all;
}

/** Lines of `nft list table` without chains and elements of the marker. */
function withoutNftMarker(lines: readonly string[]): string[] {
  const text = lines.map((line) => `${line}\n`).join("")
    .replace(/^\tchain \S*zz\/marker.*\{\n(?:\t\t.*\n)*\t\}\n/gm, "")
    .replace(/\t\telements = \{([^}]*)\}\n/g, (_, all: string) => {
      const kept = all.split(",").map((one) => one.trim()).filter((one) =>
        !/10\.111\.|fd00:10:111:/.test(one)
      );
      return kept.length === 0 ? "" : `\t\telements = { ${kept.sort().join(",\n\t\t\t     ")} }\n`;
    });
  return text.trimEnd().split("\n");
}

/** Lines of `nft list table`, each with its table, its chain, set or map, and its number there: these come in any order. */
function nftLines(lines: readonly string[]): string[] {
  let [table, block, at] = ["", "", 0];
  return lines.map((line) => {
    if (line.startsWith("table ")) [table, block, at] = [line, "", 0];
    else if (line === "}") [block, at] = ["the end", 0];
    else if (/^\t\w.* \{$/.test(line)) [block, at] = [line.trim(), 0];
    return `${table} ${block} ${at++} ${line}`;
  });
}

/** Sections as lines that can be compared, each with where it stands. */
function comparableLines(sections: ReadonlyMap<string, readonly string[]>, mode: KubeProxyMode): string[] {
  return [...sections].flatMap(([section, lines]) => {
    if (section === "nft") return nftLines(lines);
    if (!section.endsWith("tables")) return lines.map((line) => `${section} ${line}`);
    return Object.entries(comparableTables(lines, mode === "ipvs" ? "ipvs" : "iptables")).flatMap((
      [table, rules],
    ) => rules.map((rule, at) => `${section} ${table} ${place(rules, at)}${rule}`));
  });
}

/**
 * What kube-proxy writes on a fresh node for the Services of the takeover tests, beside what was recorded of it; records it where there is
 * no such file; null then.
 */
export async function compareRecorded(program: string, mode: KubeProxyMode): Promise<RuleComparison | null> {
  const states = ["before", "after"] as const;
  const found = new Map<RecordedState, Map<string, readonly string[]>>();
  for (const state of states) {
    await using theirs = await NodeLab.create();
    const { netns } = theirs.node;
    await using api = await ProxyApi.open([netns]);
    api.replace(clusterObjects(new ServiceTraffic(theirs, undefined), state));
    await using _proxy = await RealKubeProxy.start(program, { netns, api, fields: takeoverFields(mode) });
    await api.inForce(netns, mode);
    found.set(state, await held(netns, mode));
  }
  const path = recordedPath(mode);
  if (!await pathExists(path)) {
    const text = states.flatMap((state) =>
      [...found.get(state)!].flatMap(([section, lines]) => [`## ${state} ${section}`, ...lines])
    );
    await Deno.writeTextFile(path, text.map((line) => `${line}\n`).join(""));
    return null;
  }
  const all = await Promise.all(states.map(async (state) =>
    compare(
      comparableLines(found.get(state)!, mode),
      comparableLines(await recordedHoldings(mode, state), mode),
    )
  ));
  return {
    lines: all.reduce((sum, { lines }) => sum + lines, 0),
    onlyKubeProxy: all.flatMap(({ onlyKubeProxy }) => onlyKubeProxy),
    onlyKproxy: all.flatMap(({ onlyKproxy }) => onlyKproxy),
  };
}
