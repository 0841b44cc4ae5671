/**
 * The modes of chaos runs: what they need, which programs write their rules, and how these are looked at.
 *
 * @module
 */
import { parseTable } from "../../lib/netfilter/nft_table_reader.ts";
import type { LoopPace } from "../support/connect_loop.ts";
import { IPVS } from "../support/lab_mode.ts";
import { inComparableOrder, saveTable } from "../support/lab_rules.ts";
import type { Netns } from "../support/netns.ts";
import { type EndState, endStateOf } from "../support/nftables_rig.ts";

/** What `--mode` takes. */
export const CHAOS_MODES = ["iptables", "iptables-legacy", "nftables", "ipvs"] as const;
export type ChaosModeName = typeof CHAOS_MODES[number];

/** A mode as chaos sees it. */
export interface ChaosMode {
  readonly name: ChaosModeName;
  /** As kproxy's flag has it. */
  readonly proxyMode: "iptables" | "nftables" | "ipvs";
  /** Programs that chaos makes misbehave, without their variants. */
  readonly tools: readonly string[];
  readonly pace: LoopPace;
  /** Within this time after a damage, and after whatever hinders kproxy, clients are served again. */
  readonly repairMs: number;
  /** Within this time of quiet the rules are those of a fresh start. */
  readonly settleMs: number;
  /** How `iptables` is called in damages. */
  readonly iptables: string;
  /** Before kproxy's first start, so that it takes the wanted variant. */
  prepare(netns: Netns): Promise<void>;
  /** All rules, as lines: equal if and only if the rules do the same. */
  rules(netns: Netns): Promise<string[]>;
}

const IPTABLES_TOOLS = ["iptables", "ip6tables"].flatMap((tool) => // Changes are written by the last one, and it is the only one that runs all the time.
[tool, `${tool}-save`, `${tool}-restore`, `${tool}-restore`]);
/** Damages leave ends of connections behind, whose ports nobody should meet again. */
const FAST: LoopPace = { perSecond: 60, limitMs: 200, freshPorts: true };
const LIMITS = { pace: FAST, repairMs: 5_000, settleMs: 120_000 };

async function iptablesRules(netns: Netns, variant: string): Promise<string[]> {
  const lines: string[] = [];
  for (const tool of [`iptables${variant}`, `ip6tables${variant}`]) {
    for (const table of ["filter", "nat", "mangle"]) {
      const saved = await saveTable(netns, tool, table);
      lines.push(...inComparableOrder(saved).map((line) => `${tool} ${table} ${line}`));
    }
  }
  return lines;
}

function iptablesMode(name: "iptables" | "iptables-legacy", variant: "-nft" | "-legacy"): ChaosMode {
  return {
    name,
    proxyMode: "iptables",
    tools: [...IPTABLES_TOOLS, "conntrack"],
    ...LIMITS,
    iptables: `iptables${variant}`,
    prepare: async (netns) => {
      await netns.run([`iptables${variant}`, "-w", "5", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
    },
    rules: (netns) => iptablesRules(netns, variant),
  };
}

/**
 * Without what means nothing: an affinity set's elements are clients, which slot an endpoint has is a matter of history, and chains that
 * Services share stay for a time when no packet reaches them any more.
 */
export function nftablesLines(listed: string, family: string): string[] {
  const state = endStateOf(parseTable(listed));
  const reached = reachedChains(state);
  return [
    `${family} comment ${state.comment}`,
    ...Object.entries(state.hooks).map(([chain, hook]) => `${family} chain ${chain}: ${hook}`),
    // Rules' order counts, that of chains does not.
    ...Object.entries(state.chains).filter(([chain]) => reached.has(chain)).flatMap(([chain, rules]) =>
      rules.map((text, at) => `${family} chain ${chain} ${at}: ${text}`)
    ).sort(),
    ...Object.entries(state.elements).flatMap(([name, members]) => elementLines(name, members)).map((line) =>
      `${family} ${line}`
    ).sort(),
    ...Object.entries(state.affinitySets).map(([name, seconds]) =>
      `${family} set ${name} timeout ${seconds}`
    ),
  ];
}

/** The chains that packets come to. */
function reachedChains({ chains, hooks, elements }: EndState): ReadonlySet<string> {
  const reached = new Set<string>();
  const waiting = Object.keys(hooks);
  for (let chain = waiting.pop(); chain !== undefined; chain = waiting.pop()) {
    if (reached.has(chain)) continue;
    reached.add(chain);
    for (const text of chains[chain] ?? []) {
      const maps = Array.from(text.matchAll(/@(\S+)/g), ([, name = ""]) => elements[name] ?? {});
      for (const verdict of [text, ...maps.flatMap((map) => Object.values(map))]) {
        waiting.push(...Array.from(verdict.matchAll(/\b(?:goto|jump) (\S+)/g), ([, name = ""]) => name));
      }
    }
  }
  return reached;
}

function elementLines(name: string, members: Readonly<Record<string, string>>): string[] {
  const all = Object.entries(members);
  if (!name.includes("endpoints-")) return all.map(([key, value]) => `${name} ${key} : ${value}`);
  const keys = all.map(([key]) => `${name} ${key}`);
  const values = all.map(([key, value]) => `${name} ${key.slice(0, key.lastIndexOf(" . "))} : ${value}`);
  return [...keys, ...values];
}

const NFTABLES: ChaosMode = {
  name: "nftables",
  proxyMode: "nftables",
  tools: ["nft", "conntrack"],
  ...LIMITS,
  iptables: "iptables-nft",
  prepare: () => Promise.resolve(),
  rules: async (netns) => {
    const lines: string[] = [];
    for (const family of ["ip", "ip6"]) {
      const { code, stdout } = await netns.exec.run(["nft", "-a", "list", "table", family, "kproxy"]);
      // A table that is gone is a difference, not the end of the run.
      lines.push(...code === 0 ? nftablesLines(stdout, family) : [`${family} has no table`]);
    }
    return lines;
  },
};

/** One CPU, and each program's start costs a tenth of a second: everything takes longer, and only lost packets tell a failure. */
const UML: ChaosMode = {
  name: "ipvs",
  proxyMode: "ipvs",
  tools: ["ipvsadm", "ipset", "ip", "conntrack", ...IPTABLES_TOOLS.filter((tool) => tool.includes("-"))],
  pace: { perSecond: 12, limitMs: 10_000 },
  repairMs: 40_000,
  settleMs: 120_000,
  iptables: "iptables",
  prepare: () => Promise.resolve(),
  rules: async (netns) => (await IPVS.rules(netns)).split("\n"),
};

/** By name. */
export function chaosMode(name: ChaosModeName): ChaosMode {
  switch (name) {
    case "iptables":
      return iptablesMode(name, "-nft");
    case "iptables-legacy":
      return iptablesMode(name, "-legacy");
    case "nftables":
      return NFTABLES;
    case "ipvs":
      return UML;
  }
}
