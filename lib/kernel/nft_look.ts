/**
 * Looks at parts of nftables without loading all of it: nft 1.0.6 loads every element of every set for nearly everything that it
 * prints, which takes seconds where there are 100,000 of them.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, type ExecOptions, runOk } from "./exec.ts";
import { nftErrors } from "./nft_failure.ts";

/** A table of any family. */
export interface NftTableName {
  /** nft's word: `ip`, `inet`, `netdev`, … */
  readonly word: string;
  readonly name: string;
}

/** Reads; every method throws {@linkcode ExecError} if nft fails. */
export class NftLook {
  readonly #exec: Exec;
  readonly #options: Pick<ExecOptions, "signal">;

  constructor(exec: Exec, options: Pick<ExecOptions, "signal"> = {}) {
    this.#exec = exec;
    this.#options = options;
  }

  /**
   * All tables. By way of their flowtables: `nft list tables` loads everything, and this prints each table, with none in most.
   */
  async tables(): Promise<readonly NftTableName[]> {
    const text = await this.#print(["list", "flowtables"]);
    return Array.from(
      text.matchAll(/^table (\w+) (\S+) \{/gm),
      ([, word = "", name = ""]) => ({ word, name }),
    );
  }

  /** One set or map with all of its elements, within its table; none of any other is loaded. */
  async container({ word, name }: NftTableName, kind: "set" | "map", container: string): Promise<string> {
    return await this.#print(["list", kind, word, name, container]);
  }

  /**
   * Which of the commands the kernel would refuse, and why, by their position; a dry run, which changes nothing. Unlike a listing it
   * takes as long for 100,000 elements as for ten.
   */
  async refusals(commands: readonly string[]): Promise<ReadonlyMap<number, string>> {
    if (commands.length === 0) return new Map();
    const argv = ["nft", "-c", "-f", "-"];
    const stdin = `${commands.join("\n")}\n`;
    const { code, stderr } = await this.#exec.run(argv, { stdin, ...this.#options });
    if (code === 0) return new Map();
    const refusals = new Map(nftErrors(stderr).map(({ line, message }) => [line - 1, message]));
    if (refusals.size === 0) throw new ExecError(argv, code, stderr);
    return refusals;
  }

  #print(args: readonly string[]): Promise<string> {
    return runOk(this.#exec, ["nft", ...args], this.#options);
  }
}
