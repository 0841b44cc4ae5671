/**
 * Chains of iptables (nft variant) of one family, each listed by its name when a packet reaches it.
 *
 * @module
 */
import { ExecError } from "../../errors.ts";
import type { Exec, ExecOptions } from "../../kernel/exec.ts";
import { iptablesPrograms } from "../../kernel/iptables_variant.ts";
import type { IpFamily } from "../../model/objects.ts";
import { type ListedChain, parseListedChains } from "../../netfilter/iptables_save.ts";
import { NotPartialError, PartialMap } from "./partial_map.ts";

/** A chain of a table. */
export interface ChainName {
  readonly table: string;
  readonly chain: string;
}

/** Those that the kernel sends packets to. */
export const BUILTIN_CHAINS: readonly string[] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/** Chains that may be missing without anything being wrong: no rule jumps to them just because they have these names. */
const PROXY_CHAIN = /^KUBE-/;

/** Chains as they were listed, and what has been asked for since. */
export class PartialIptables {
  /** Table → chain. */
  readonly tables: ReadonlyMap<string, PartialMap<ListedChain>>;
  readonly #exec: Exec;
  readonly #argv: readonly string[];
  readonly #options: Pick<ExecOptions, "signal">;

  /** @param builtin the tables that there are, with the chains that the kernel sends packets to */
  constructor(
    exec: Exec,
    family: IpFamily,
    builtin: ReadonlyMap<string, readonly string[]>,
    options: Pick<ExecOptions, "signal"> = {},
  ) {
    this.#exec = exec;
    this.#argv = [iptablesPrograms(family, "nft").restore, "--noflush"];
    this.#options = options;
    this.tables = new Map(
      builtin.entries().map(([table, chains]) => {
        const asking = new PartialMap<ListedChain>();
        for (const chain of BUILTIN_CHAINS) {
          if (chains.includes(chain)) asking.asked.add(chain);
          else asking.answer(chain, undefined);
        }
        return [table, asking];
      }),
    );
  }

  /** Asks for chains that will be wanted, so that one program can list them with others. */
  expect(chains: Iterable<ChainName>): void {
    for (const { table, chain } of chains) this.tables.get(table)?.get(chain);
  }

  /** Lists what was asked for; false if that is nothing. */
  async more(): Promise<boolean> {
    const asked = this.tables.entries().flatMap(([table, { asked }]) =>
      [...asked].map((chain): ChainName => ({ table, chain }))
    ).toArray();
    if (asked.length === 0) return false;
    await this.#list(asked);
    return true;
  }

  /** In as few runs as it takes: iptables says nothing of the others if one of them is not there. */
  async #list(asked: readonly ChainName[]): Promise<void> {
    const text = await this.#print(asked);
    if (text !== null) {
      const listed = parseListedChains(text);
      for (const [index, { table, chain }] of asked.entries()) {
        const found = listed[index];
        if (found?.name !== chain) throw new NotPartialError(`iptables says nothing of chain ${chain}`);
        this.tables.get(table)?.answer(chain, found.chain);
      }
      return;
    }
    const [first] = asked;
    if (first !== undefined && asked.length === 1) return this.#answerMissing(first);
    const middle = asked.length >> 1;
    await Promise.all([asked.slice(0, middle), asked.slice(middle)].map((part) => this.#list(part)));
  }

  /** iptables prints the same for a chain that is not there and for one with rules that it has no words for. */
  #answerMissing({ table, chain }: ChainName): void {
    const isJumpedTo = this.tables.get(table)?.values().some(({ rules }) =>
      rules.some((rule) => / -[jg] (\S+)/.exec(` ${rule}`)?.[1] === chain)
    );
    if (isJumpedTo === true || !PROXY_CHAIN.test(chain)) {
      throw new NotPartialError(`iptables cannot list chain ${chain} of table ${table}`);
    }
    this.tables.get(table)?.answer(chain, undefined);
  }

  /** Null: it refuses. */
  async #print(asked: readonly ChainName[]): Promise<string | null> {
    const lines = Map.groupBy(asked, ({ table }) => table).entries().flatMap(([table, chains]) => [
      `*${table}`,
      ...chains.map(({ chain }) => `-v -S ${chain}`),
      "COMMIT",
    ]).toArray();
    const stdin = `${lines.join("\n")}\n`;
    try {
      const { code, stdout } = await this.#exec.run(this.#argv, { stdin, ...this.#options });
      return code === 0 ? stdout : null;
    } catch (error) {
      if (error instanceof ExecError) throw new NotPartialError(error.message, { cause: error });
      throw error;
    }
  }
}
