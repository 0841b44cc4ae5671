/**
 * A rule in words: what a packet has met, and what the rule does with it.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import type { RuleMatch, RuleTarget } from "../netfilter/iptables_rule.ts";
import type { NftExpression, NftOperand, NftStatement, NftVerdict } from "../netfilter/nft_rule.ts";
import { parseIptablesRule } from "../netfilter/parse_iptables_rule.ts";
import { readNftRule } from "../netfilter/parse_nft_rule.ts";
import { formatFraction, probabilityFraction, type RuleHit } from "./flow.ts";
import { PORTAL_TABLE } from "./portals.ts";

/** E.g. `to 10.96.0.1, tcp, port 80: go through KUBE-SVC-X`; `""` for what is no rule. */
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

/** For each kind, its words. */
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
      conditions: matches.map((match) => wordsOf<RuleMatch>(MATCHES, match)),
      actions: [target === null ? "" : wordsOf<RuleTarget>(TARGETS, target)],
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

const MATCHES: WordsOf<RuleMatch> = {
  comment: () => "",
  module: () => "",
  nfacct: () => "",
  protocol: (match) => `${not(match)}${match.protocol}`,
  source: (match) => `${not(match)}from ${match.address}`,
  destination: (match) => `${not(match)}to ${match.address}`,
  inInterface: (match) => `${not(match)}in through ${match.name}`,
  outInterface: (match) => `${not(match)}out through ${match.name}`,
  sourcePort: (match) => `${not(match)}from port ${match.ports}`,
  destinationPort: (match) => `${not(match)}port ${match.ports}`,
  conntrack: (match) => `${not(match)}state ${match.states.join(" or ")}`,
  mark: (match) => `${not(match)}marked ${hex(match.value)}`,
  addrtype: (match) => `${not(match)}${side(match)} an address of type ${match.type.toLowerCase()}`,
  statistic: (match) => `by chance ${formatFraction(probabilityFraction(match.probability))}`,
  recent: (match) =>
    match.action === "set"
      ? `remembered in ${match.list}`
      : `${not(match)}seen in ${match.list} within ${match.seconds} s`,
  physdevIsIn: (match) => `${not(match)}through a port of a bridge`,
  set: (match) => `${not(match)}in set ${match.set}`,
  ipvs: ({ address, port }) => `through virtual server ${address}:${port}`,
  opaque: ({ words }) => words.join(" "),
};

function side(of: { readonly side: "source" | "destination" }): string {
  return of.side === "source" ? "from" : "to";
}

function refuse(of: { readonly with: string | null }): string {
  return `refuse${of.with === null ? "" : ` with ${of.with}`}`;
}

const TARGETS: WordsOf<RuleTarget> = {
  chain: ({ goto, chain }) => `go ${goto ? "to" : "through"} ${chain}`,
  verdict: ({ verdict }) => verdict === "RETURN" ? "go back" : verdict.toLowerCase(),
  reject: refuse,
  dnat: ({ to }) => `send to ${to}`,
  redirect: ({ port }) => `send to the node itself${port === 0 ? "" : `, port ${port}`}`,
  masquerade: () => "masquerade",
  setMark: ({ value, operation }) => `mark ${hex(value)} (${operation})`,
  opaque: ({ name, words }) => `${name} ${words.join(" ")}`.trimEnd(),
};

const NFT_CONDITIONS: ReadonlySet<NftStatement["kind"]> = new Set<NftStatement["kind"]>([
  "match",
  "state",
  "status",
  "direction",
  "addressType",
  "mark",
]);

function nftWords(statements: readonly NftStatement[]): Words {
  const [conditions, actions] = [true, false].map((isCondition) =>
    statements.filter(({ kind }) => NFT_CONDITIONS.has(kind) === isCondition)
      .map((one) => wordsOf<NftStatement>(STATEMENTS, one))
  );
  return { conditions: conditions ?? [], actions: actions ?? [] };
}

const STATEMENTS: WordsOf<NftStatement> = {
  match: (one) =>
    `${keyWords(one.key)} ${not(one)}${one.operand.kind === "named" ? "in" : "is"} ${
      operandWords(one.operand)
    }`,
  state: (one) => `${not(one)}state ${one.states.join(" or ")}`,
  status: (one) => `${not(one)}${one.status === "dnat" ? "destination" : "source"} translated`,
  direction: (one) => `${not(one)}${one.direction === "original" ? "from who began" : "an answer"}`,
  addressType: (one) => `${not(one)}${side(one)} an address of the node`,
  // `mark and 0x4000 != 0` is how a rule asks for a bit.
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
  return key.map((one) => wordsOf<NftExpression>(EXPRESSIONS, one)).join(" and ");
}

const EXPRESSIONS: WordsOf<NftExpression> = {
  source: ({ kind }) => kind,
  destination: ({ kind }) => kind,
  protocol: ({ kind }) => kind,
  destinationPort: ({ only }) => only === null ? "port" : `${only} port`,
  originalDestination: () => "original destination",
  originalPort: () => "original port",
  inInterface: () => "incoming interface",
  outInterface: () => "outgoing interface",
  random: ({ modulus }) => `a random number below ${modulus}`,
};
