/**
 * Takes a proxy's chains out of a table that iptables cannot read, because nft added rules to it: with nft, which can.
 *
 * @module
 */
import type { Nft } from "../../kernel/nft.ts";
import type { NftFamily } from "../../netfilter/nft_words.ts";
import type { SavedChain, SavedTable } from "../../netfilter/iptables_save.ts";
import { listedChains, type NftListedChain, type NftListedRule } from "../../netfilter/nft_listing.ts";

/** Commands of nft, to be taken in this order in one transaction. */
export interface NativeRemoval {
  readonly jumps: readonly string[];
  readonly flushes: readonly string[];
  readonly deletions: readonly string[];
}

/** One table as nft sees it. */
export class NativeTable {
  readonly #name: string;
  readonly #chains: ReadonlyMap<string, NftListedChain>;

  /**
   * @param name with its family, as nft writes it
   * @param text of `nft -a list table`
   */
  constructor(name: string, text: string) {
    this.#name = name;
    this.#chains = listedChains(text);
  }

  /**
   * Null: the table is not there.
   *
   * @throws {ExecError} if it cannot be listed
   */
  static async read(
    nft: Pick<Nft, "listTable">,
    family: NftFamily,
    table: string,
  ): Promise<NativeTable | null> {
    const text = await nft.listTable(family, table);
    return text === null ? null : new NativeTable(`${family} ${table}`, text);
  }

  /**
   * As iptables-save would print it as far as one asks where rules lead; the words of other rules are those of nft. A map in a chain of
   * the kernel stands as a chain of another program, because it may lead to more than one chain.
   */
  saved(): SavedTable {
    const saved = new Map<string, SavedChain>();
    for (const [name, { isHooked, rules }] of this.#chains) {
      const own = isHooked ? rules.filter((rule) => !isMap(rule)) : rules;
      saved.set(name, savedChain(isHooked ? "ACCEPT" : "-", own));
      for (const rule of rules) {
        if (!own.includes(rule)) saved.set(`${name} (handle ${rule.handle})`, savedChain("-", [rule]));
      }
    }
    return saved;
  }

  /**
   * How these chains go, and with them the jumps of the kernel's chains to them.
   *
   * @param kept those of the chains that stay, because others lead to them
   * @param untouched those of the kept ones that keep their rules
   */
  removal(chains: readonly string[], kept: ReadonlyMap<string, string>, untouched: string): NativeRemoval {
    const own = new Set(chains);
    return {
      jumps: [...this.#chains].flatMap(([name, { isHooked, rules }]) =>
        !isHooked
          ? []
          : rules.filter((rule) => !isMap(rule) && rule.targets.some((target) => own.has(target)))
            .map(({ handle }) => `delete rule ${this.#name} ${name} handle ${handle}`)
      ),
      flushes: chains.filter((chain) => chain !== untouched || !kept.has(chain))
        .map((chain) => `flush chain ${this.#name} ${chain}`),
      deletions: chains.filter((chain) => !kept.has(chain))
        .map((chain) => `delete chain ${this.#name} ${chain}`),
    };
  }
}

function isMap({ text, targets }: NftListedRule): boolean {
  return targets.length > 1 || (targets.length === 1 && /\bvmap\b/.test(text));
}

function savedChain(policy: string, rules: readonly NftListedRule[]): SavedChain {
  return {
    policy,
    packets: 0,
    bytes: 0,
    rules: rules.flatMap(({ text, targets }) =>
      targets.length === 0 ? [text] : targets.map((target) => `-j ${target}`)
    ),
  };
}
