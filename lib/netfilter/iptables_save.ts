/**
 * The text of `iptables-save` (and of a whole `iptables-restore` input) → tables, chains and rules.
 *
 * Rules stay text, because a node may hold 100,000 of them and most readers want the names of the chains or one chain;
 * `parseIptablesRule` reads one.
 *
 * @module
 */

/** One chain. */
export interface SavedChain {
  /** `ACCEPT` or `DROP` of a built-in chain; `-` for a user chain. */
  readonly policy: string;
  /** Packets that its policy has decided about. */
  readonly packets: number;
  /** Their bytes. */
  readonly bytes: number;
  /** In order, each without `-A CHAIN `. */
  readonly rules: readonly string[];
  /** True if its rules are these lines, each with `-A CHAIN `, as they were printed: far cheaper than `rules`, where it is offered. */
  readonly holdsText?: (lines: string) => boolean;
}

/** Chain name → chain, in the order of the text. */
export type SavedTable = ReadonlyMap<string, SavedChain>;

/** Table name → table, in the order of the text. */
export type IptablesRuleset = ReadonlyMap<string, SavedTable>;

type OpenTable = Map<string, SavedChain & { readonly rules: string[] }>;

/** The line of a chain: name, policy, and packets and bytes where they are counted. */
export const CHAIN_LINE_REGEXP = /^:(\S+)\s+(\S+)(?:\s+\[(\d+):(\d+)\])?\s*$/;
// `iptables-save -c` puts the rule's counters in front.
const RULE_LINE_REGEXP = /^(?:\[\d+:\d+\]\s+)?-A\s+(\S+)(?:\s+(.*?))?\s*$/;

function addLine(table: OpenTable, line: string, fail: (problem: string) => never): void {
  if (line.startsWith(":")) {
    const [, name, policy, packets, bytes] = CHAIN_LINE_REGEXP.exec(line) ?? [];
    if (name === undefined || policy === undefined) fail("a chain line is `:NAME POLICY [packets:bytes]`");
    if (table.has(name)) fail(`chain "${name}" is declared twice`);
    table.set(name, { policy, packets: Number(packets ?? 0), bytes: Number(bytes ?? 0), rules: [] });
    return;
  }
  const [, name, rule = ""] = RULE_LINE_REGEXP.exec(line) ?? [];
  if (name === undefined) fail("it is neither a chain nor an added rule");
  const chain = table.get(name);
  if (chain === undefined) fail(`chain "${name}" is not declared`);
  chain.rules.push(rule);
}

/**
 * Reads one or more tables. Counters of rules are dropped.
 *
 * @throws {SyntaxError} with the line number, for a line that is no chain, rule, table, `COMMIT`, comment or blank, a rule of a
 * chain that was not declared, or a table without `COMMIT`
 */
export function parseIptablesSave(text: string): IptablesRuleset {
  const tables = new Map<string, SavedTable>();
  let table: OpenTable | null = null;
  let tableName = "";
  let lineNumber = 0;
  for (const rawLine of text.split("\n")) {
    lineNumber++;
    const line = rawLine.endsWith("\r") ? rawLine.slice(0, -1) : rawLine;
    const fail = (problem: string): never => {
      throw new SyntaxError(`iptables rules, line ${lineNumber} ("${line}"): ${problem}`);
    };
    if (line.trim() === "" || line.startsWith("#")) continue;
    if (line.startsWith("*")) {
      if (table !== null) fail(`table "${tableName}" has no COMMIT`);
      tableName = line.slice(1).trim();
      if (tables.has(tableName)) fail(`table "${tableName}" appears twice`);
      table = new Map();
    } else if (table === null) {
      fail("it stands outside of any table");
    } else if (line.trim() === "COMMIT") {
      tables.set(tableName, table);
      table = null;
    } else {
      addLine(table, line, fail);
    }
  }
  if (table !== null) throw new SyntaxError(`iptables rules: table "${tableName}" has no COMMIT`);
  return tables;
}

const BEFORE_NAME = "# Table `";
const AFTER_NAME = "' is incompatible, use 'nft' tool.";
const NOTICE_REGEXP = new RegExp(`^${BEFORE_NAME}(\\w+)${AFTER_NAME.replace(".", "\\.")}$`, "gm");

/** The line that iptables-save writes, with status 0, in the place of a table that holds what it has no words for. */
export function unreadableNotice(table: string): string {
  return BEFORE_NAME + table + AFTER_NAME;
}

/** The tables that iptables-save names instead of printing them. */
export function unreadableTables(saveText: string): ReadonlySet<string> {
  // Long texts are the rule, such tables are not.
  if (!saveText.includes(AFTER_NAME)) return new Set();
  return new Set([...saveText.matchAll(NOTICE_REGEXP)].map(([, table = ""]) => table));
}
