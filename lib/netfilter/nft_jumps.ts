/**
 * Chains of a table and where their rules lead, from what `nft -a list table` prints: this much can be told of every rule, whoever wrote
 * it and with whatever words.
 *
 * @module
 */
import { parseTable } from "./nft_table_reader.ts";

/** One rule. */
export interface NftListedRule {
  readonly handle: number;
  readonly text: string;
  /** Chains that it leads to: by its verdict, or by the elements of a map in it. */
  readonly targets: readonly string[];
}

/** One chain. */
export interface NftListedChain {
  /** True if the kernel itself calls it. */
  readonly isHooked: boolean;
  readonly rules: readonly NftListedRule[];
}

const QUOTED_REGEXP = /"[^"]*"/g;
const TARGET_REGEXP = /(?:^|\s)(?:jump|goto) ([^\s,]+)/g;

/** By name, in the order of the text. */
export function listedChains(tableText: string): ReadonlyMap<string, NftListedChain> {
  const { chains, handles } = parseTable(tableText);
  return new Map(
    chains.values().map(({ name, hook, rules }) => [name, {
      isHooked: hook !== undefined,
      rules: rules.map((text, at) => {
        // What stands in quotes is a comment or a device.
        const words = text.replace(QUOTED_REGEXP, "");
        const targets = Array.from(words.matchAll(TARGET_REGEXP), ([, target = ""]) => target);
        return { handle: handles.get(name)?.[at] ?? 0, text, targets };
      }),
    }]),
  );
}
