/**
 * Chains of a table and where their rules lead, from what `nft -a list table` prints: this much can be told of every rule, whoever wrote
 * it and with whatever words.
 *
 * @module
 */

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

const CHAIN_REGEXP = /^\tchain (\S+) \{/;
const HOOK_REGEXP = /^\t\ttype \S+ hook /;
const RULE_REGEXP = /^\t\t(.*) # handle (\d+)$/;
const QUOTED_REGEXP = /"[^"]*"/g;
const TARGET_REGEXP = /(?:^|\s)(?:jump|goto) ([^\s,]+)/g;

/** By name, in the order of the text. */
export function listedChains(tableText: string): ReadonlyMap<string, NftListedChain> {
  const chains = new Map<string, NftListedChain & { isHooked: boolean; readonly rules: NftListedRule[] }>();
  let chain: { isHooked: boolean; readonly rules: NftListedRule[] } | undefined;
  for (const line of tableText.split("\n")) {
    const name = CHAIN_REGEXP.exec(line)?.[1];
    if (name !== undefined) {
      chain = { isHooked: false, rules: [] };
      chains.set(name, chain);
    } else if (line === "\t}") chain = undefined;
    else if (chain !== undefined && HOOK_REGEXP.test(line)) chain.isHooked = true;
    else if (chain !== undefined) {
      const [, text, handle] = RULE_REGEXP.exec(line) ?? [];
      if (text === undefined) continue;
      // What stands in quotes is a comment or a device.
      const words = text.replace(QUOTED_REGEXP, "");
      const targets = Array.from(words.matchAll(TARGET_REGEXP), ([, target = ""]) => target);
      chain.rules.push({ handle: Number(handle), text, targets });
    }
  }
  return chains;
}
