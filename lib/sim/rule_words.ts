/**
 * A rule in words: which packets it matches, and what it does with them.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import {
  matchWords,
  optionWords,
  parseIptablesRule,
  parseMark,
  type RuleMatch,
  type RuleTarget,
} from "../netfilter/iptables_rule.ts";
import {
  expressionText,
  type NftExpression,
  type NftOperand,
  type NftStatement,
  type NftVerdict,
} from "../netfilter/nft_rule.ts";
import { readNftRule } from "../netfilter/parse_nft_rule.ts";
import { formatFraction, probabilityFraction, type RuleHit } from "./flow.ts";
import { conditionsOf, targetStatements } from "./iptables_match.ts";
import { PORTAL_TABLE } from "./portals.ts";

/** E.g. `to 10.96.0.1, tcp, port 80: go through KUBE-SVC-X`; `""` for a hit that is no rule. */
export function ruleWords({ table, rule, index }: RuleHit, family: IpFamily): string {
  if (index === 0 || table === "ipvs" || table === PORTAL_TABLE) return "";
  const isNft = table.includes(" ");
  const { conditions, actions } = isNft
    ? nftWords(readNftRule(rule, family, table.startsWith("inet ")))
    : iptablesWords(rule);
  const when = conditions.filter((text) => text !== "").join(", ");
  const then = actions.filter((text) => text !== "").join(", then ") || "only look";
  return when === "" ? then : `${when}: ${then}`;
}

interface Words {
  readonly conditions: readonly string[];
  readonly actions: readonly string[];
}

/** For each kind, a function that yields its words. */
type WordsOf<Of extends { readonly kind: string }> = {
  readonly [Kind in Of["kind"]]: (of: Of & { readonly kind: Kind }) => string;
};

function wordsOf<Of extends { readonly kind: string }>(words: WordsOf<Of>, of: Of): string {
  return (words[of.kind as Of["kind"]] as (of: Of) => string)(of);
}

function iptablesWords(text: string): Words {
  try {
    const { matches, target } = parseIptablesRule(text);
    return {
      conditions: matches.map(matchInWords),
      actions: [target === null ? "" : targetInWords(target)],
    };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { conditions: [], actions: ["it cannot be read"] };
  }
}

function not(of: { readonly not?: boolean }): string {
  return of.not === true ? "not " : "";
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}

/** Words of options, by module and option. `""`: nothing that a reader needs; undefined: shown as written. */
const OPTIONS = new Map<string, (value: string) => string | undefined>([
  ["comment --comment", () => ""],
  ["nfacct --nfacct-name", () => ""],
  ["-p", (protocol) => protocol],
  ["-s", (address) => `from ${address}`],
  ["-d", (address) => `to ${address}`],
  ["-i", (name) => `in through ${name}`],
  ["-o", (name) => `out through ${name}`],
  ["--sport", (ports) => `from port ${ports}`],
  ["--dport", (ports) => `port ${ports}`],
  ["conntrack --ctstate", (states) => `state ${states.replaceAll(",", " or ")}`],
  ["mark --mark", (text) => {
    const mark = parseMark(text);
    return mark === null ? undefined : `marked ${hex(mark.value)}`;
  }],
  ["addrtype --src-type", (type) => `from an address of type ${type.toLowerCase()}`],
  ["addrtype --dst-type", (type) => `to an address of type ${type.toLowerCase()}`],
  ["physdev --physdev-is-in", () => "through a port of a bridge"],
  ["set --match-set", (set) => `in set ${set}`],
]);

function matchInWords(match: RuleMatch): string {
  const conditions = conditionsOf(match);
  const [first] = conditions;
  if (first?.kind === "chance") return `by chance ${formatFraction(probabilityFraction(first.probability))}`;
  if (first?.kind === "recent") {
    const { action, not, list, seconds } = first;
    return action === "set"
      ? `remembered in ${list}`
      : `${not ? "not " : ""}seen in ${list} within ${seconds} s`;
  }
  const { module, options } = match;
  if (module === "ipvs" && first?.kind === "option" && options.every(({ not }) => !not)) {
    const [address, port] = ["--vaddr", "--vport"].map((wanted) =>
      options.find(({ name }) => name === wanted)?.values[0]
    );
    return `through virtual server ${address}:${port}`;
  }
  const words = options.map(({ not, name, values: [value = ""] }) => {
    const text = OPTIONS.get(`${module} ${name}`.trim())?.(value);
    return text === undefined || text === "" ? text : `${not ? "not " : ""}${text}`;
  });
  if (conditions.length === 0) return "";
  return words.length === 0 || words.includes(undefined) ? matchWords(match).join(" ") : words.join(", ");
}

function targetInWords(target: RuleTarget): string {
  const { name, goto, options } = target;
  const [{ name: option = "", values: [value = ""] = [] } = {}] = options;
  const text = `${name} ${optionWords(options).join(" ")}`.trimEnd();
  if (targetStatements(target).some(({ kind }) => kind === "unknown")) return text;
  switch (name) {
    case "ACCEPT":
    case "DROP":
    case "MASQUERADE":
      return name.toLowerCase();
    case "RETURN":
      return "go back";
    case "REJECT":
      return refuse({ with: value === "" ? null : value });
    case "DNAT":
      return `send to ${value}`;
    case "REDIRECT":
      return `send to the node itself${value === "" ? "" : `, port ${value}`}`;
    case "MARK": {
      const mark = parseMark(value);
      const operation = option === "--set-xmark" ? "setXmark" : option.slice(2).replace(/-mark$/, "");
      return mark === null ? text : `mark ${hex(mark.value)} (${operation})`;
    }
    default:
      return options.length > 0 ? text : `go ${goto ? "to" : "through"} ${name}`;
  }
}

function refuse(of: { readonly with: string | null }): string {
  return `refuse${of.with === null ? "" : ` with ${of.with}`}`;
}

const NFT_CONDITIONS: ReadonlySet<NftStatement["kind"]> = new Set<NftStatement["kind"]>(["match", "mark"]);

function nftWords(statements: readonly NftStatement[]): Words {
  const [conditions, actions] = [true, false].map((isCondition) =>
    statements.filter(({ kind }) => NFT_CONDITIONS.has(kind) === isCondition)
      .map((one) => wordsOf<NftStatement>(STATEMENTS, one))
  );
  return { conditions: conditions ?? [], actions: actions ?? [] };
}

/** Wording of the kinds whose values are not shown as they are. */
const FACTS: Readonly<Record<string, (values: string) => string>> = {
  state: (values) => `state ${values.toUpperCase().replaceAll(" OR ", " or ")}`,
  status: (values) => `${values.replaceAll("dnat", "destination").replaceAll("snat", "source")} translated`,
  direction: (values) => values === "original" ? "from who began" : "an answer",
  sourceType: () => "from an address of the node",
  destinationType: () => "to an address of the node",
};

const STATEMENTS: WordsOf<NftStatement> = {
  match: (one) => {
    const { key: [first], operand } = one;
    const values = operandWords(operand);
    const fact = first === undefined ? undefined : FACTS[first.kind];
    if (fact !== undefined) return `${not(one)}${fact(values)}`;
    return `${keyWords(one.key)} ${not(one)}${operand.kind === "named" ? "in" : "is"} ${values}`;
  },
  // `mark and 0x4000 != 0` tests a single bit.
  mark: (one) =>
    one.not && one.value === 0 ? `marked ${hex(one.mask)}` : `${not(one)}marked ${hex(one.value)}`,
  setMark: ({ flip, keep }) => `mark ${hex(flip)} (keep ${hex(keep)})`,
  verdict: ({ verdict }) => wordsOf<NftVerdict>(VERDICTS, verdict),
  verdictMap: ({ operand, key }) => `do what ${operandWords(operand)} says for ${keyWords(key)}`,
  dnat: ({ ip, port }) => `send to ${ip}${port === null ? "" : ` port ${port}`}`,
  dnatMap: ({ operand, key }) => `send to what ${operandWords(operand)} says for ${keyWords(key)}`,
  masquerade: () => "masquerade",
  reject: refuse,
  remember: ({ set }) => `remember the source in ${set}`,
  notrack: () => "leave it to no connection, so that nothing translates it",
  note: () => "",
  unread: () => "the rest of the rule cannot be read",
};

const VERDICTS: WordsOf<NftVerdict> = {
  accept: ({ kind }) => kind,
  drop: ({ kind }) => kind,
  jump: ({ chain }) => `go through ${chain}`,
  goto: ({ chain }) => `go to ${chain}`,
  return: () => "go back",
  continue: () => "go on",
};

function operandWords(operand: NftOperand): string {
  if (operand.kind === "named") return operand.name;
  const keys = [...operand.elements.keys()];
  return keys.length > 4 ? `one of ${keys.length}` : keys.join(" or ");
}

function keyWords(key: readonly NftExpression[]): string {
  return key.map(expressionText).join(" and ");
}
