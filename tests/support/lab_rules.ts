/**
 * Rules in a namespace, as the real tools list them.
 *
 * @module
 */
import type { Netns } from "./netns.ts";

/** Chains in which kube-proxy writes rules in no fixed order, but for the last rule of `nat KUBE-SERVICES`. */
const UNORDERED = {
  iptables: /^-A KUBE-(?:SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL) /,
  /** In ipvs mode few rules are Services', and the order of all others counts. */
  ipvs: /^-A KUBE-IPVS-OUT-FILTER /,
} as const;

/** Lines of one table without comments and counters, chains first. */
export async function saveTable(netns: Netns, tool: string, table: string): Promise<string[]> {
  return withoutCounters(await netns.run([`${tool}-save`, "-t", table]));
}

/** A table's name and lines. */
type TableLines = readonly [table: string, lines: readonly string[]];

/** All existing tables, sorted by name, each as {@linkcode saveTable} yields it. */
export async function saveTables(netns: Netns, tool: string): Promise<readonly TableLines[]> {
  return tablesIn(await netns.run([`${tool}-save`]));
}

/** The same, from saved text. */
export function tablesIn(saved: string): readonly TableLines[] {
  const tables = saved.split(/^(?=\*)/m).map(withoutCounters).filter(([first]) => first?.startsWith("*"));
  return tables.sort().map((lines) => [lines[0]!.slice(1), lines]);
}

function withoutCounters(text: string): string[] {
  return text.split("\n").filter((line) => /^[:*-]/.test(line)).map((line) =>
    line.replace(/ \[\d+:\d+\]$/, "")
  );
}

/**
 * All of `filter`, `nat` and `mangle`, both families: equal if and only if the rules are.
 *
 * @param variant `-nft` or `-legacy`; without it the system's default
 */
export async function saveAll(netns: Netns, variant = ""): Promise<string> {
  const lines: string[] = [];
  for (const tool of [`iptables${variant}`, `ip6tables${variant}`]) {
    for (const table of ["filter", "nat", "mangle"]) lines.push(...await saveTable(netns, tool, table));
  }
  return lines.join("\n");
}

/**
 * Sorts the lines of one table so that two rulesets are equal line by line if kube-proxy might have written either.
 * Rules keep their order everywhere but in chains that all Services share; there they keep it among rules with the same
 * comment, which belong to one Service port.
 *
 * @param hasChanged the rules are not of a first sync: changes make the order of rules for different packets arbitrary
 */
export function inComparableOrder(
  lines: readonly string[],
  mode: keyof typeof UNORDERED,
  hasChanged = false,
): string[] {
  const chainOf = (line: string): string => line.startsWith("-A ") ? line.split(" ")[1]! : "";
  const isLast = (line: string): boolean => line.includes("this must be the last rule");
  const groups = Map.groupBy(lines, chainOf);
  return [...groups.keys()].sort().flatMap((chain) => {
    const group = groups.get(chain)!;
    if (chain !== "" && !group.every((line) => UNORDERED[mode].test(line))) return group;
    const others = group.filter((line) => !isLast(line)).sort(hasChanged ? undefined : byComment);
    return [...others, ...group.filter(isLast)];
  });
}

/** Compares by comment; lines without one count as equal to all. */
function byComment(one: string, other: string): number {
  const [left, right] = [one, other].map((line) => /--comment ("[^"]*"|\S+)/.exec(line)?.[1] ?? line);
  return left! < right! ? -1 : left! > right! ? 1 : 0;
}
