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
import type { RuleHit } from "./flow.ts";
import { formatFraction, probabilityFraction } from "./fraction.ts";
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

function iptablesWords(text: string): Words {
  try {
    const { matches, target } = parseIptablesRule(text);
    return { conditions: matches.map(matchWords), actions: [target === null ? "" : targetWords(target)] };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { conditions: [], actions: ["it cannot be read"] };
  }
}

function matchWords(match: RuleMatch): string {
  const not = "not" in match && match.not ? "not " : "";
  switch (match.kind) {
    case "comment":
    case "module":
    case "nfacct":
      return "";
    case "protocol":
      return `${not}${match.protocol}`;
    case "source":
      return `${not}from ${match.address}`;
    case "destination":
      return `${not}to ${match.address}`;
    case "inInterface":
      return `${not}in through ${match.name}`;
    case "outInterface":
      return `${not}out through ${match.name}`;
    case "sourcePort":
      return `${not}from port ${match.ports}`;
    case "destinationPort":
      return `${not}port ${match.ports}`;
    case "conntrack":
      return `${not}state ${match.states.join(" or ")}`;
    case "mark":
      return `${not}marked ${hex(match.value)}`;
    case "addrtype":
      return `${not}${
        match.side === "source" ? "from" : "to"
      } an address of type ${match.type.toLowerCase()}`;
    case "statistic":
      return `by chance ${formatFraction(probabilityFraction(match.probability))}`;
    case "recent":
      return match.action === "set"
        ? `remembered in ${match.list}`
        : `${not}seen in ${match.list} within ${match.seconds} s`;
    case "physdevIsIn":
      return `${not}through a port of a bridge`;
    case "set":
      return `${not}in set ${match.set}`;
    case "ipvs":
      return `through virtual server ${match.address}:${match.port}`;
    case "opaque":
      return match.words.join(" ");
    default:
      return match satisfies never;
  }
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}

function targetWords(target: RuleTarget): string {
  switch (target.kind) {
    case "chain":
      return `go ${target.goto ? "to" : "through"} ${target.chain}`;
    case "verdict":
      return target.verdict === "RETURN" ? "go back" : target.verdict.toLowerCase();
    case "reject":
      return `refuse${target.with === null ? "" : ` with ${target.with}`}`;
    case "dnat":
      return `send to ${target.to}`;
    case "redirect":
      return `send to the node itself${target.port === 0 ? "" : `, port ${target.port}`}`;
    case "masquerade":
      return "masquerade";
    case "setMark":
      return `mark ${hex(target.value)} (${target.operation})`;
    case "opaque":
      return `${target.name} ${target.words.join(" ")}`.trimEnd();
    default:
      return target satisfies never;
  }
}

function nftWords(statements: readonly NftStatement[]): Words {
  const conditions: string[] = [];
  const actions: string[] = [];
  for (const statement of statements) {
    const { isCondition, text } = statementWords(statement);
    (isCondition ? conditions : actions).push(text);
  }
  return { conditions, actions };
}

function statementWords(statement: NftStatement): { readonly isCondition: boolean; readonly text: string } {
  const when = (text: string): { isCondition: boolean; text: string } => ({ isCondition: true, text });
  const then = (text: string): { isCondition: boolean; text: string } => ({ isCondition: false, text });
  const not = "not" in statement && statement.not ? "not " : "";
  switch (statement.kind) {
    case "match":
      return when(
        `${keyWords(statement.key)} ${not}${statement.operand.kind === "named" ? "in" : "is"} ${
          operandWords(statement.operand)
        }`,
      );
    case "state":
      return when(`${not}state ${statement.states.join(" or ")}`);
    case "status":
      return when(`${not}${statement.status === "dnat" ? "destination" : "source"} translated`);
    case "direction":
      return when(`${not}${statement.direction === "original" ? "from who began" : "an answer"}`);
    case "addressType":
      return when(`${not}${statement.side === "source" ? "from" : "to"} an address of the node`);
    case "mark":
      // `mark and 0x4000 != 0` is how a rule asks for a bit.
      return when(
        statement.not && statement.value === 0
          ? `marked ${hex(statement.mask)}`
          : `${not}marked ${hex(statement.value)}`,
      );
    case "setMark":
      return then(`mark ${hex(statement.flip)} (keep ${hex(statement.keep)})`);
    case "verdict":
      return then(verdictWords(statement.verdict));
    case "verdictMap":
      return then(`do what ${operandWords(statement.operand)} says for ${keyWords(statement.key)}`);
    case "dnat":
      return then(`send to ${statement.ip}${statement.port === null ? "" : ` port ${statement.port}`}`);
    case "dnatMap":
      return then(`send to what ${operandWords(statement.operand)} says for ${keyWords(statement.key)}`);
    case "masquerade":
      return then("masquerade");
    case "reject":
      return then(`refuse${statement.with === null ? "" : ` with ${statement.with}`}`);
    case "remember":
      return then(`remember the source in ${statement.set}`);
    case "notrack":
      return then("leave it to no connection, so that nothing translates it");
    case "note":
      return then("");
    case "unread":
      return then("the rest of the rule cannot be read");
    default:
      return statement satisfies never;
  }
}

function verdictWords(verdict: NftVerdict): string {
  switch (verdict.kind) {
    case "jump":
      return `go through ${verdict.chain}`;
    case "goto":
      return `go to ${verdict.chain}`;
    case "return":
      return "go back";
    case "continue":
      return "go on";
    default:
      return verdict.kind;
  }
}

function operandWords(operand: NftOperand): string {
  if (operand.kind === "named") return operand.name;
  const keys = [...operand.elements.keys()];
  return keys.length > 4 ? `one of ${keys.length}` : keys.join(" or ");
}

function keyWords(key: readonly NftExpression[]): string {
  return key.map(expressionWords).join(" and ");
}

function expressionWords(expression: NftExpression): string {
  switch (expression.kind) {
    case "source":
    case "destination":
    case "protocol":
      return expression.kind;
    case "destinationPort":
      return expression.only === null ? "port" : `${expression.only} port`;
    case "originalDestination":
      return "original destination";
    case "originalPort":
      return "original port";
    case "inInterface":
      return "incoming interface";
    case "outInterface":
      return "outgoing interface";
    case "random":
      return `a random number below ${expression.modulus}`;
    default:
      return expression satisfies never;
  }
}
