/**
 * The proxy modes that tests with real packets run in, and how each one's rules are looked at.
 *
 * @module
 */
import { IMPLEMENTED_MODES } from "../../lib/backend/registry.ts";
import { saveAll } from "./lab_rules.ts";
import type { Netns } from "./netns.ts";
import { type Need, program } from "./skip.ts";

/** A mode as the labs see it. */
export interface LabMode {
  readonly name: "iptables" | "nftables";
  /** Beside what every lab needs. */
  readonly needs: readonly Need[];
  /** All rules of both families as text: equal if and only if the rules are. */
  rules(netns: Netns): Promise<string>;
}

export const IPTABLES: LabMode = { name: "iptables", needs: [], rules: (netns) => saveAll(netns) };

/** Tables as `nft list ruleset` prints them: all but kproxy's, or kproxy's alone. */
export async function nftTables(netns: Netns, whose: "kproxy" | "others"): Promise<string[]> {
  const tables = (await netns.run(["nft", "list", "ruleset"])).trim().split(/\n(?=table )/);
  return tables.filter((table) => /^table ip6? kproxy \{/.test(table) === (whose === "kproxy"));
}

/** Without what the clock writes and without the order of chains, which is that of their making. */
function inComparableForm(table: string): string {
  const parts = table.replace(/ expires [0-9dhms]+/g, "").split(/\n(?=\t(?:chain|set|map) )/);
  return parts.map((part) => part.replace(/\n}\s*$/, "").trimEnd()).sort().join("\n");
}

export const NFTABLES: LabMode = {
  name: "nftables",
  needs: [program("nft")],
  rules: async (netns) => (await nftTables(netns, "kproxy")).map(inComparableForm).sort().join("\n"),
};

/** The modes of this release among them. */
export const LAB_MODES: readonly LabMode[] = [IPTABLES, NFTABLES].filter(({ name }) =>
  IMPLEMENTED_MODES.includes(name)
);
