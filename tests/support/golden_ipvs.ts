/**
 * Golden cases of IPVS mode: objects as a user writes them, and the tools' listings of the kernel after a sync.
 *
 * A case is a folder of `tests/golden/ipvs` with `objects.yaml`, `ipvsadm.txt` (`ipvsadm -Sn`, both families), `ipset.txt`
 * (`add` lines of `ipset save`, sorted, IPv4 first) and either `iptables-save.txt` and `ip6tables-save.txt`, or
 * `more-rules.txt`: rules of IPv4 that capture-1 does not have. `create.txt` is the same for all of them.
 *
 * @module
 */
import { OUT_FILTER_CHAIN } from "../../lib/backend/ipvs/plan/base_rules.ts";
import { planIpvs } from "../../lib/backend/ipvs/plan/plan.ts";
import { planTexts } from "../../lib/backend/ipvs/store/store.ts";
import type { IpvsOptions, IpvsPlan } from "../../lib/backend/ipvs/plan/ruleset.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import { canonicalRuleText } from "../../lib/netfilter/canonical_iptables_rule.ts";
import {
  type IptablesRuleset,
  parseIptablesSave,
  type SavedChain,
} from "../../lib/netfilter/iptables_save.ts";
import { parseIpvsTable } from "../../lib/netfilter/ipvs.ts";
import { decodeYaml, exampleState } from "./golden.ts";

const FOLDER = new URL("../golden/ipvs/", import.meta.url);

/** One IPVS golden case. */
export interface IpvsGoldenCase {
  readonly objects: readonly ApiObject[];
  readonly ipvsadm: string;
  readonly ipset: string;
  /** File name → text. */
  readonly rules: Readonly<Record<string, string>>;
}

/** URL of a file of the cases. */
function ipvsGoldenUrl(path: string): URL {
  return new URL(path, FOLDER);
}

export const IPVS_GOLDEN_NAMES = ["capture-1", "capture-2"] as const;

/** Options of the cases' node. */
export function exampleIpvsOptions(family: IpFamily, changes: Partial<IpvsOptions> = {}): IpvsOptions {
  const hostIps = family === "IPv4" ? ["192.0.2.10"] : ["2001:db8:2::10"];
  return {
    family,
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: family === "IPv4" ? { kind: "cidr", cidr: "10.244.0.0/16" } : { kind: "none" },
    nodeIp: family === "IPv4" ? "192.0.2.10" : "::1",
    nodePortIps: hostIps,
    hostIps,
    scheduler: "rr",
    schedulers: [],
    excludeCIDRs: [],
    ...changes,
  };
}

/** Plan of all Services on that node. */
export function exampleIpvsPlan(
  family: IpFamily,
  objects: readonly ApiObject[],
  changes: Partial<IpvsOptions> = {},
): IpvsPlan {
  return planIpvs(exampleState(family, objects), "all", exampleIpvsOptions(family, changes));
}

export function loadIpvsGolden(name: string): IpvsGoldenCase {
  const folder = new URL(`${name}/`, FOLDER);
  const read = (file: string): string => Deno.readTextFileSync(new URL(file, folder));
  const files = [...Deno.readDirSync(folder)].map((entry) => entry.name)
    .filter((file) => file.endsWith("-save.txt") || file === "more-rules.txt");
  return {
    objects: decodeYaml(read("objects.yaml"), `${name}/objects.yaml`),
    ipvsadm: read("ipvsadm.txt"),
    ipset: read("ipset.txt"),
    rules: Object.fromEntries(files.map((file) => [file, read(file)])),
  };
}

/** kube-proxy's `create` lines of sets, in its order: IPv4, then IPv6. */
export function loadCreateLines(): string[] {
  return linesOf(Deno.readTextFileSync(ipvsGoldenUrl("create.txt")), "create ");
}

/** Both tables after a plan was written into an empty kernel; built-in chains only if they have jumps. */
export function savedTables(plan: IpvsPlan): IptablesRuleset {
  const written = parseIptablesSave(planTexts(plan).iptables);
  return new Map((["filter", "nat"] as const).map((table) => {
    const chains = new Map<string, SavedChain>(written.get(table));
    // Each jump is inserted at the top, so the last one comes first.
    for (const jump of plan.base.jumps.filter((one) => one.table === table)) {
      const rules = [jump.args, ...chains.get(jump.chain)?.rules ?? []];
      chains.set(jump.chain, { policy: "ACCEPT", rules });
    }
    return [table, chains];
  }));
}

/** `TABLE CHAIN` → canonical rules, in order; chains without rules included. */
export function canonicalChains(ruleset: IptablesRuleset): Record<string, readonly string[]> {
  const chains: [string, readonly string[]][] = [];
  for (const [table, saved] of ruleset) {
    for (const [chain, { rules }] of saved) {
      chains.push([`${table} ${chain}`, rules.map(canonicalRuleText)]);
    }
  }
  return Object.fromEntries(chains.sort(([left], [right]) => left < right ? -1 : 1));
}

/** Servers by key: the order of servers is the hash table's, that of real servers kube-proxy's, and means nothing. */
export function serversByKey(text: string): Record<string, unknown> {
  const table = parseIpvsTable(text);
  return Object.fromEntries(
    [...table.virtualServers].sort(([left], [right]) => left < right ? -1 : 1)
      .map((
        [key, { server, realServers }],
      ) => [key, { server, realServers: Object.fromEntries(realServers) }]),
  );
}

/** Lines of a text with this beginning. */
export function linesOf(text: string, start: string): string[] {
  return text.split("\n").filter((line) => line.startsWith(start));
}

/** Captured `iptables-save` or `ip6tables-save` of both tables, in the form of {@linkcode canonicalChains}. */
export function expectedChains(name: string, family: IpFamily): Record<string, readonly string[]> {
  const { rules, ipset } = loadIpvsGolden(name);
  const file = family === "IPv4" ? "iptables-save.txt" : "ip6tables-save.txt";
  if (rules[file] !== undefined) return canonicalChains(parseIptablesSave(withBuiltinChains(rules[file])));
  const filled = new Set(linesOf(ipset, "add ").map((line) => line.split(" ")[1]));
  const chains = Object.entries(expectedChains("capture-1", family)).map(([chain, base]) => {
    const kept = base.filter((rule) => {
      const set = /--match-set (\S+)/.exec(rule)?.[1];
      return set === undefined || ALWAYS_ASKED.has(chain) || filled.has(set);
    });
    return [chain, family === "IPv4" ? [...kept, ...moreRules(rules["more-rules.txt"] ?? "", chain)] : kept];
  });
  return Object.fromEntries(chains);
}

/** Chains (`TABLE CHAIN`) whose rules exist even if their sets are empty. */
const ALWAYS_ASKED: ReadonlySet<string> = new Set(["filter KUBE-IPVS-FILTER", "filter KUBE-NODE-PORT"]);

/** Rules of a chain in a text without tables; none for node ports in the filter table. */
function moreRules(text: string, tableAndChain: string): string[] {
  const [table, chain = ""] = tableAndChain.split(" ");
  if ((table === "filter") !== (chain === OUT_FILTER_CHAIN)) return [];
  return linesOf(text, `-A ${chain} `).map((line) => canonicalRuleText(line.slice(chain.length + 4)));
}

/** Adds the lines of built-in chains, which the capture lacks. */
function withBuiltinChains(text: string): string {
  return text.replace(
    "*filter\n",
    "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
  )
    .replace("*nat\n", "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n");
}
