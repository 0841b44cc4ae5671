/**
 * The text of `nft list chains`: which chains the kernel sends packets to, and in which order.
 *
 * @module
 */
import { PRIORITIES } from "./parse_nft_spec.ts";

/** A chain that hangs on a hook of the kernel. */
export interface BaseChain {
  /** nft's word: `ip`, `ip6`, `inet`, … */
  readonly family: string;
  readonly table: string;
  readonly name: string;
  /** `filter`, `nat` or `route`. */
  readonly type: string;
  /** `prerouting`, `input`, `forward`, `output`, `postrouting`, … */
  readonly hook: string;
  /** Lower is earlier. */
  readonly priority: number;
  /** What becomes of a packet that no rule of the chain decides on. */
  readonly policy: "accept" | "drop";
}

const NAME = `"?([^"\\s{]+)"?`;
const TABLE_REGEXP = new RegExp(`^\\s*table (\\w+) ${NAME} \\{`);
const CHAIN_REGEXP = new RegExp(`^\\s*chain ${NAME} \\{`);
const HOOK_REGEXP = /^\s*type (\w+) hook (\w+)\b.*?\bpriority ([\w +-]+?);(?: policy (accept|drop);)?/;

/** Reads the text; lines that are nothing of this are passed over. */
export function parseBaseChains(text: string): readonly BaseChain[] {
  const chains: BaseChain[] = [];
  let table: { readonly family: string; readonly name: string } | null = null;
  let name: string | null = null;
  for (const line of text.split("\n")) {
    const tableMatch = TABLE_REGEXP.exec(line);
    if (tableMatch !== null) {
      table = { family: tableMatch[1] ?? "", name: tableMatch[2] ?? "" };
      name = null;
      continue;
    }
    name = CHAIN_REGEXP.exec(line)?.[1] ?? name;
    const hook = HOOK_REGEXP.exec(line);
    if (hook === null || table === null || name === null) continue;
    const priority = priorityNumber(hook[3] ?? "");
    if (priority === null) continue;
    chains.push({
      family: table.family,
      table: table.name,
      name,
      type: hook[1] ?? "",
      hook: hook[2] ?? "",
      priority,
      policy: hook[4] === "drop" ? "drop" : "accept",
    });
  }
  return chains;
}

/** `-100`, `dstnat`, `dstnat - 5`; null for anything else. */
function priorityNumber(text: string): number | null {
  const [, base = "", sign = "+", offset = "0"] = /^(-?\w+)(?: ([+-]) (\d+))?$/.exec(text.trim()) ?? [];
  const start = /^-?\d+$/.test(base) ? Number(base) : PRIORITIES.get(base);
  if (start === undefined) return null;
  return sign === "-" ? start - Number(offset) : start + Number(offset);
}
