/**
 * The part of `iptables-restore --noflush` that the planner uses, in memory and stricter than the real tool: rules are plain
 * text. Used where thousands of texts are tried; that the real tool agrees is shown by the golden cases.
 *
 * @module
 */

/** A line the tool would refuse. The table is then as it was before the block. */
class RestoreError extends Error {
  constructor(line: string, reason: string) {
    super(`${line}: ${reason}`);
    this.name = "RestoreError";
  }
}

const BUILTIN_CHAINS: Readonly<Record<string, readonly string[]>> = {
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};
const BUILTIN_TARGETS = new Set([
  "ACCEPT",
  "DROP",
  "REJECT",
  "RETURN",
  "MARK",
  "MASQUERADE",
  "DNAT",
  "REDIRECT",
]);

type Chains = Map<string, string[]>;

/** The chain that a rule jumps to; null if it jumps to none of the users'. */
export function jumpTarget(rule: string): string | null {
  const target = / -j (\S+)/.exec(` ${rule}`)?.[1] ?? null;
  return target === null || BUILTIN_TARGETS.has(target) ? null : target;
}

/** The tables of one family. */
export class RestoreInterpreter {
  readonly #tables = new Map<string, Chains>(
    Object.entries(BUILTIN_CHAINS).map((
      [table, chains],
    ) => [table, new Map(chains.map((name) => [name, []]))]),
  );

  /** Chain → its rules, without `-A CHAIN `. */
  chains(table: string): ReadonlyMap<string, readonly string[]> {
    return this.#tables.get(table) ?? new Map();
  }

  /**
   * Applies the blocks of a restore text, each all or nothing.
   *
   * @throws {RestoreError} at the first line that is refused; earlier blocks stay applied
   */
  restore(text: string): void {
    let table = "";
    let draft: Chains | null = null;
    const lines = text.split("\n");
    if (lines.pop() !== "") throw new RestoreError(text, "no newline at the end");
    for (const line of lines) {
      if (line.startsWith("*")) {
        if (draft !== null) throw new RestoreError(line, "no COMMIT before it");
        table = line.slice(1);
        draft = new Map([...this.chains(table)].map(([name, rules]) => [name, [...rules]]));
        if (draft.size === 0) throw new RestoreError(line, "no such table");
      } else if (draft === null) {
        throw new RestoreError(line, "outside of a table");
      } else if (line === "COMMIT") {
        checkJumps(draft);
        this.#tables.set(table, draft);
        draft = null;
      } else {
        applyLine(draft, line);
      }
    }
    if (draft !== null) throw new RestoreError(`*${table}`, "no COMMIT");
  }
}

function applyLine(chains: Chains, line: string): void {
  const declared = /^:(\S+) - \[0:0\]$/.exec(line)?.[1];
  if (declared !== undefined) {
    if (declared.length > 28) throw new RestoreError(line, "name too long");
    chains.set(declared, []);
    return;
  }
  const [, command, name, rest] = /^-([AIDX]) (\S+) ?(.*)$/.exec(line) ?? [];
  const chain = chains.get(name ?? "");
  if (command === undefined || rest === undefined) throw new RestoreError(line, "not understood");
  if (chain === undefined) throw new RestoreError(line, "no such chain");
  if (command === "A") chain.push(rest);
  else if (command === "I") insert(chain, rest, line);
  else if (command === "D") remove(chain, rest, line);
  else deleteChain(chains, name!, line);
}

function insert(chain: string[], rest: string, line: string): void {
  const [, number, rule] = /^(\d+) (.*)$/.exec(rest) ?? [, "1", rest];
  const index = Number(number) - 1;
  if (index > chain.length) throw new RestoreError(line, "number too big");
  chain.splice(index, 0, rule!);
}

function remove(chain: string[], rest: string, line: string): void {
  const index = /^\d+$/.test(rest) ? Number(rest) - 1 : chain.indexOf(rest);
  if (index < 0 || index >= chain.length) throw new RestoreError(line, "no such rule");
  chain.splice(index, 1);
}

function deleteChain(chains: Chains, name: string, line: string): void {
  if (chains.get(name)!.length > 0) throw new RestoreError(line, "not empty");
  for (const [other, rules] of chains) {
    if (rules.some((rule) => jumpTarget(rule) === name)) throw new RestoreError(line, `${other} jumps to it`);
  }
  chains.delete(name);
}

function checkJumps(chains: Chains): void {
  for (const [name, rules] of chains) {
    for (const rule of rules) {
      const target = jumpTarget(rule);
      if (target !== null && !chains.has(target)) {
        throw new RestoreError(`-A ${name} ${rule}`, "no such target");
      }
    }
  }
}
