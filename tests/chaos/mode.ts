/**
 * The modes of chaos runs: what they need, which programs write their rules, and how these are looked at.
 *
 * @module
 */
import type { LoopPace } from "../support/connect_loop.ts";
import { IPVS } from "../support/lab_mode.ts";
import { inComparableOrder, saveTable } from "../support/lab_rules.ts";
import type { Netns } from "../support/netns.ts";
import { comparableNft } from "./nft_list.ts";

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
  /** Within this time of quiet, and after the fresh start, the rules are those of the fresh start; times `busyness`. */
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
/** Damages leave ends of connections behind, whose ports should not be used again. */
const FAST: LoopPace = { perSecond: 60, limitMs: 200, freshPorts: true };
const LIMITS = { pace: FAST, repairMs: 5_000, settleMs: 15_000 };

async function iptablesRules(netns: Netns, variant: string): Promise<string[]> {
  const lines: string[] = [];
  for (const tool of [`iptables${variant}`, `ip6tables${variant}`]) {
    for (const table of ["filter", "nat", "mangle"]) {
      const saved = await saveTable(netns, tool, table);
      lines.push(...inComparableOrder(saved, "iptables", true).map((line) => `${tool} ${table} ${line}`));
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
      const { code, stdout } = await netns.exec.run(["nft", "-j", "list", "table", family, "kproxy"]);
      // A table that is gone is a difference, not the end of the run.
      lines.push(...code === 0 ? comparableNft(stdout) : [`${family} has no table`]);
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
  settleMs: 45_000,
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
