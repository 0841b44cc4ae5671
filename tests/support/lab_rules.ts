/**
 * The rules in a namespace, as the real tools say them.
 *
 * @module
 */
import type { Netns } from "./netns.ts";

/** Chains whose rules kube-proxy writes in no particular order, but for the last rule of `nat KUBE-SERVICES`. */
const UNORDERED = {
  iptables: /^-A KUBE-(?:SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL) /,
  /** Rules of Services are few there, and the order of all others counts. */
  ipvs: /^-A KUBE-IPVS-OUT-FILTER /,
} as const;

/** One table without comments and counters, chains first. */
export async function saveTable(netns: Netns, tool: string, table: string): Promise<string[]> {
  return withoutCounters(await netns.run([`${tool}-save`, "-t", table]));
}

/** Table and its lines. */
type TableLines = readonly [table: string, lines: readonly string[]];

/** All tables that there are, sorted by name, each as {@linkcode saveTable} yields it. */
export async function saveTables(netns: Netns, tool: string): Promise<readonly TableLines[]> {
  return tablesIn(await netns.run([`${tool}-save`]));
}

/** Likewise, of what was saved. */
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
 * Puts lines of one table into an order in which two rulesets are equal line by line if kube-proxy might have written either.
 * The order of rules stays what it is everywhere but in the chains that all Services share; there it stays among rules with the same
 * comment, which are those of one Service port.
 *
 * @param hasChanged the rules are no first sync's: after changes that order says nothing, where the rules take different packets
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

/** By comment, lines without one by all of them. */
function byComment(one: string, other: string): number {
  const [left, right] = [one, other].map((line) => /--comment ("[^"]*"|\S+)/.exec(line)?.[1] ?? line);
  return left! < right! ? -1 : left! > right! ? 1 : 0;
}
