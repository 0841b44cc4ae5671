/**
 * The tables of the fake iptables: one family's rules in memory, and the commands that change them with the error
 * texts and statuses of the real programs.
 *
 * @module
 */
import type { IptablesVariant } from "../../lib/kernel/iptables.ts";
import { parseCidr, parseIp } from "../../lib/model/ip.ts";
import type { SavedTable } from "../../lib/netfilter/iptables_save.ts";
import { quoteWord } from "../../lib/netfilter/iptables_rule.ts";
import { canonicalRule } from "./canonical_rule.ts";

/** A command that the real program would refuse. */
export class Refusal extends Error {
  readonly code: number;
  /** True if the program's own parser refuses it (with name and version in front), not the kernel. */
  readonly parser: boolean;
  /** True if the kernel refuses it when the transaction is committed. */
  readonly kernel: boolean;
  /** True if the message names line numbers. */
  readonly lines: boolean;

  constructor(code: number, message: string, kind: "parser" | "kernel" | "table" | "lines" = "table") {
    super(message);
    this.lines = kind === "lines";
    this.code = code;
    this.parser = kind === "parser";
    this.kernel = kind === "kernel";
  }
}

/** Built-in chains of each table, in the order the programs print them. */
export const BUILTIN_CHAINS: Readonly<Record<string, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  raw: ["PREROUTING", "OUTPUT"],
  security: ["INPUT", "FORWARD", "OUTPUT"],
};

const VERDICTS = new Set(["ACCEPT", "DROP", "RETURN", "QUEUE"]);
const EXTENSIONS = new Set(["MARK", "REJECT", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "LOG"]);
const NOT_FOUND = "No chain/target/match by that name.";
const BAD_RULE = "Bad rule (does a matching rule exist in that chain?).";

interface Rule {
  /** The rule as written, words joined by single spaces. */
  readonly text: string;
  /** Equal for rules that the kernel treats as the same. */
  readonly key: string;
  readonly target: string | null;
}

interface Chain {
  /** Policy; null for a user chain. */
  readonly policy: string | null;
  readonly rules: readonly Rule[];
}

/** A table. Drafts of it can be edited and dropped, which makes transactions. */
export class FakeTable {
  readonly name: string;
  readonly #variant: IptablesVariant;
  readonly #chains: Map<string, Chain>;
  /** Rule lists that belong to this draft alone, by chain. */
  readonly #own = new Map<string, Rule[]>();
  readonly #references: Map<string, number>;

  constructor(name: string, variant: IptablesVariant, from?: FakeTable) {
    this.name = name;
    this.#variant = variant;
    this.#chains = from === undefined
      ? new Map((BUILTIN_CHAINS[name] ?? []).map((chain) => [chain, { policy: "ACCEPT", rules: [] }]))
      : new Map(from.#chains);
    this.#references = from === undefined ? new Map() : new Map(from.#references);
  }

  /** A copy that can be edited without changing this one. */
  draft(): FakeTable {
    return new FakeTable(this.name, this.#variant, this);
  }

  /** Empties the table, as a restore without `--noflush` does. */
  reset(): void {
    for (const [name, chain] of [...this.#chains]) {
      this.#write(name, chain.policy, []);
      if (chain.policy === null) this.#chains.delete(name);
    }
    this.#references.clear();
  }

  /** Handles a `:CHAIN POLICY` line: creates the chain, or flushes it. */
  declare(chain: string, policy: string): void {
    const found = this.#chains.get(chain);
    checkName(chain);
    if (found?.policy === undefined || found.policy === null) {
      if (found !== undefined) this.flush(chain);
      else this.#chains.set(chain, { policy: null, rules: [] });
    } else {
      this.#chains.set(chain, { ...found, policy });
    }
  }

  create(chain: string): void {
    checkName(chain);
    if (this.#chains.has(chain)) throw new Refusal(1, "Chain already exists.");
    this.#chains.set(chain, { policy: null, rules: [] });
  }

  flush(chain: string): void {
    const { policy, rules } = this.#existing(chain);
    for (const rule of rules) this.#count(rule, -1);
    this.#write(chain, policy, []);
  }

  remove(chain: string): void {
    const found = this.#existing(chain);
    const referenced = (this.#references.get(chain) ?? 0) > 0;
    if (found.policy !== null || referenced || found.rules.length > 0) {
      if (this.#variant === "nft") {
        throw new Refusal(4, `CHAIN_DEL failed (Device or resource busy): chain ${chain}`, "kernel");
      }
      throw new Refusal(
        1,
        referenced
          ? "Too many links."
          : found.policy === null
          ? "Directory not empty."
          : "Invalid argument. Run `dmesg' for more information.",
      );
    }
    this.#chains.delete(chain);
    this.#own.delete(chain);
  }

  /** Inserts a rule at 1-based `index`; without it the rule is appended. */
  insert(chain: string, words: readonly string[], index?: number): void {
    const rule = this.#rule(words);
    const { policy, rules } = this.#existing(chain);
    if (index !== undefined && (index < 1 || index > rules.length + 1)) {
      throw new Refusal(1, "Index of insertion too big.");
    }
    const own = this.#ownRules(chain, rules);
    if (index === undefined) own.push(rule);
    else own.splice(index - 1, 0, rule);
    this.#count(rule, 1);
    this.#chains.set(chain, { policy, rules: own });
  }

  replace(chain: string, index: number, words: readonly string[]): void {
    const rule = this.#rule(words);
    const { policy, rules } = this.#existing(chain);
    const old = rules[index - 1];
    if (old === undefined) throw new Refusal(1, "Index of replacement too big.");
    const own = this.#ownRules(chain, rules);
    own[index - 1] = rule;
    this.#count(old, -1);
    this.#count(rule, 1);
    this.#chains.set(chain, { policy, rules: own });
  }

  deleteAt(chain: string, index: number): void {
    const { policy, rules } = this.#existing(chain);
    const old = rules[index - 1];
    if (old === undefined) {
      throw new Refusal(
        1,
        this.#variant === "nft" ? "Index of deletion too big." : "Index of deletion too big.",
      );
    }
    const own = this.#ownRules(chain, rules);
    own.splice(index - 1, 1);
    this.#count(old, -1);
    this.#chains.set(chain, { policy, rules: own });
  }

  deleteRule(chain: string, words: readonly string[]): void {
    this.deleteAt(chain, this.check(chain, words));
  }

  /** The 1-based position of the first equal rule. */
  check(chain: string, words: readonly string[]): number {
    const { key } = this.#rule(words);
    const found = this.#chains.get(chain)?.rules.findIndex((rule) => rule.key === key) ?? -1;
    if (found >= 0) return found + 1;
    throw new Refusal(1, this.#variant === "nft" || !this.#chains.has(chain) ? BAD_RULE : NOT_FOUND);
  }

  /** Output of `-S CHAIN`. */
  list(chain: string): string {
    const found = this.#chains.get(chain);
    if (found === undefined) {
      if (this.#variant === "legacy") throw new Refusal(1, NOT_FOUND);
      throw new Refusal(
        1,
        `chain \`${chain}' in table \`${this.name}' is incompatible, use 'nft' tool.`,
        "parser",
      );
    }
    const head = found.policy === null ? `-N ${chain}` : `-P ${chain} ${found.policy}`;
    return [head, ...found.rules.map((rule) => addLine(chain, rule))].join("\n") + "\n";
  }

  /** Output of `-S`. */
  listAll(): string {
    const names = this.#names();
    const heads = names.map((name) => {
      const policy = this.#chains.get(name)?.policy ?? null;
      return policy === null ? `-N ${name}` : `-P ${name} ${policy}`;
    });
    return [...heads, ...this.#ruleLines(names)].join("\n") + "\n";
  }

  /** The chains as read from iptables-save. */
  get chains(): SavedTable {
    return new Map(
      [...this.#chains].map(([name, { policy, rules }]) => [
        name,
        { policy: policy ?? "-", rules: rules.map(({ text }) => text) },
      ]),
    );
  }

  /** The table's part of iptables-save's output. */
  save(): string {
    const names = this.#names();
    const heads = names.map((name) => `:${name} ${this.#chains.get(name)?.policy ?? "-"} [0:0]`);
    return [`*${this.name}`, ...heads, ...this.#ruleLines(names), "COMMIT"].join("\n") + "\n";
  }

  #names(): string[] {
    const builtin = BUILTIN_CHAINS[this.name] ?? [];
    const user = [...this.#chains.keys()].filter((name) => !builtin.includes(name)).sort();
    return [...builtin, ...user];
  }

  #ruleLines(names: readonly string[]): string[] {
    return names.flatMap((name) => (this.#chains.get(name)?.rules ?? []).map((rule) => addLine(name, rule)));
  }

  #existing(chain: string): Chain {
    const found = this.#chains.get(chain);
    if (found === undefined) throw new Refusal(1, NOT_FOUND);
    return found;
  }

  #ownRules(chain: string, rules: readonly Rule[]): Rule[] {
    const own = this.#own.get(chain) ?? [...rules];
    this.#own.set(chain, own);
    return own;
  }

  #write(chain: string, policy: string | null, rules: Rule[]): void {
    this.#own.set(chain, rules);
    this.#chains.set(chain, { policy, rules });
  }

  #count(rule: Rule, by: number): void {
    if (rule.target === null) return;
    this.#references.set(rule.target, (this.#references.get(rule.target) ?? 0) + by);
  }

  #rule(words: readonly string[]): Rule {
    const text = words.map(quoteWord).join(" ");
    const at = words.findIndex((word) => word === "-j" || word === "-g");
    checkValues(words);
    const target = at < 0 ? null : words[at + 1] ?? null;
    if (target !== null && !VERDICTS.has(target) && !EXTENSIONS.has(target) && !this.#chains.has(target)) {
      throw new Refusal(
        2,
        this.#variant === "nft"
          ? `Chain '${target}' does not exist`
          : `Couldn't load target \`${target}':No such file or directory\n`,
        "parser",
      );
    }
    try {
      return { text, key: canonicalRule(text), target };
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new Refusal(2, error.message, "parser");
    }
  }
}

function addLine(chain: string, rule: Rule): string {
  return rule.text === "" ? `-A ${chain}` : `-A ${chain} ${rule.text}`;
}

/** Checks values as the programs' parsers do. */
function checkValues(words: readonly string[]): void {
  for (const [index, word] of words.entries()) {
    const value = words[index + 1] ?? "";
    if ((word === "-s" || word === "-d") && parseCidr(value) === null && parseIp(value) === null) {
      throw new Refusal(2, `host/network \`${value}' not found`, "parser");
    }
    if ((word === "--dport" || word === "--sport") && Number(value) > 65_535) {
      throw new Refusal(2, `invalid port/service \`${value}' specified`, "parser");
    }
    if (word === "--seconds" && !(Number(value) >= 1 && Number(value) <= 0xffffffff)) {
      const range = 'recent: bad value for option "--seconds", or out of range (1-4294967295).\n';
      throw new Refusal(2, range, "parser");
    }
  }
}

function checkName(chain: string): void {
  if (chain.length > 28) {
    throw new Refusal(2, `chain name \`${chain}' too long (must be under 29 chars)`, "parser");
  }
}
