/**
 * Reads the text of an nftables rule, as proxies write it and as `nft list` prints it.
 *
 * @module
 */
import type { IpFamily } from "../model/objects.ts";
import { parseIp } from "../model/ip.ts";
import {
  KNOWN_WORDS,
  type NftExpression,
  type NftKey,
  type NftOperand,
  type NftStatement,
  type NftVerdict,
  wordsToAsk,
} from "./nft_rule.ts";
import { NftWords, unquoted } from "./nft_words.ts";

const VERDICTS: ReadonlySet<string> = new Set(["accept", "drop", "return", "continue", "jump", "goto"]);
const ALL_BITS = 0xffffffff;

/** A condition that no packet meets. */
const NEVER: NftStatement = {
  kind: "match",
  not: false,
  key: [],
  operand: { kind: "inline", elements: new Map() },
};
const OF_FAMILY: Readonly<Record<IpFamily, RegExp>> = {
  IPv4: /^(?:ip|icmp|meta nfproto ipv4)\b/,
  IPv6: /^(?:ip6|icmpv6|meta nfproto ipv6)\b/,
};

/**
 * Statements of any program's rule: from the first words that are not understood on it is `unread`.
 *
 * @param text without `add rule …` and without handle
 * @param isInet true: a table of family inet, with packets of both families and rules about either
 */
export function readNftRule(text: string, family: IpFamily, isInet: boolean): NftStatement[] {
  const statements: NftStatement[] = [];
  let words: NftWords;
  try {
    words = new NftWords(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return [{ kind: "unread", text }];
  }
  while (!words.atEnd) {
    const rest = [0, 1, 2].map((ahead) => words.peek(ahead)).join(" ");
    if (isInet) {
      if (OF_FAMILY[family === "IPv4" ? "IPv6" : "IPv4"].test(rest)) return [...statements, NEVER];
      if (words.takeIf("meta", "nfproto", family === "IPv4" ? "ipv4" : "ipv6")) continue;
    }
    try {
      statements.push(takeStatement(words, family));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      return [...statements, { kind: "unread", text }];
    }
  }
  return statements;
}

/**
 * Elements in braces, as written but without comments.
 *
 * @throws {SyntaxError} if the list does not end, or holds a key twice
 */
function takeElements(words: NftWords): Map<string, string> {
  words.expect("{");
  const elements = new Map<string, string>();
  while (!words.takeIf("}")) {
    const key = takePart(words, [":", ",", "}"]);
    const value = words.takeIf(":") ? takePart(words, [",", "}"]) : "";
    if (key === "" || elements.has(key)) throw words.refusal(`has an element "${key}" that cannot be`);
    elements.set(key, value);
    if (words.peek() !== "}") words.expect(",");
  }
  return elements;
}

/** Words up to one of `ends`, joined by blanks; a comment is left out. */
function takePart(words: NftWords, ends: readonly string[]): string {
  const part: string[] = [];
  while (!ends.includes(words.peek())) {
    if (words.takeIf("comment")) words.take();
    else part.push(unquoted(words.take()));
  }
  return part.join(" ");
}

/**
 * Verdict of a verdict map's element: `accept`, `goto chain` and the like.
 *
 * @throws {SyntaxError} if it is no verdict
 */
export function parseNftVerdict(text: string): NftVerdict {
  const words = new NftWords(text);
  const verdict = takeVerdict(words);
  if (!words.atEnd) throw words.refusal("goes on after its verdict");
  return verdict;
}

function takeVerdict(words: NftWords): NftVerdict {
  const kind = words.take();
  switch (kind) {
    case "accept":
    case "drop":
    case "return":
    case "continue":
      return { kind };
    case "jump":
    case "goto":
      return { kind, chain: unquoted(words.take()) };
    default:
      throw words.refusal("has no verdict", -1);
  }
}

function takeStatement(words: NftWords, family: IpFamily): NftStatement {
  const word = words.peek();
  if (VERDICTS.has(word)) return { kind: "verdict", verdict: takeVerdict(words) };
  switch (word) {
    case "dnat":
      return takeDnat(words, family);
    case "masquerade":
      return takeMasquerade(words);
    case "reject":
      return takeReject(words);
    case "update":
    case "add":
      return takeRemember(words, family);
    case "notrack":
      words.expect("notrack");
      return { kind: "notrack" };
    case "log":
    case "counter":
    case "comment":
      return takeNote(words);
    case "mark":
      return takeMark(words);
    case "meta":
      if (words.peek(1) === "mark") return takeMark(words);
  }
  const key = takeKey(words, family);
  const statement = takeLookup(words, key);
  for (const [kind, known] of KNOWN_WORDS) {
    if (!key.some((one) => one.kind === kind)) continue;
    if (key.length > 1 || !isOf(known, statement.operand)) throw words.refusal(`has an unknown ${kind}`, -1);
    // A packet has several statuses at once.
    if (kind === "status" && statement.operand.kind === "named") {
      throw words.refusal("looks a status up", -1);
    }
  }
  return statement;
}

/** True if all inline elements are known words. */
function isOf(known: readonly string[], operand: NftOperand): boolean {
  return operand.kind === "named" || operand.elements.keys().every((key) => known.includes(key));
}

function takeLookup(
  words: NftWords,
  key: NftKey,
): NftStatement & { readonly kind: "match" | "verdictMap" } {
  if (words.takeIf("vmap")) return { kind: "verdictMap", key, operand: takeNamedOrInline(words) };
  const not = takeNot(words);
  const named = words.peek().startsWith("@") || words.peek() === "{";
  return { kind: "match", not, key, operand: named ? takeNamedOrInline(words) : takeLiterals(words) };
}

function takeNot(words: NftWords): boolean {
  if (words.takeIf("!=")) return true;
  words.takeIf("==");
  return false;
}

/** A single key, or several words with commas between them. */
function takeLiterals(words: NftWords): NftOperand {
  const elements = new Map<string, string>();
  do {
    const parts = [unquoted(words.take())];
    while (words.takeIf(".")) parts.push(unquoted(words.take()));
    elements.set(parts.join(" . "), "");
  } while (words.takeIf(","));
  return { kind: "inline", elements };
}

function takeNamedOrInline(words: NftWords): NftOperand {
  if (words.peek() === "{") return { kind: "inline", elements: takeElements(words) };
  const name = words.take();
  if (!/^@./.test(name)) throw words.refusal("wants a set or map", -1);
  return { kind: "named", name: name.slice(1) };
}

/** A key: expressions joined by dots. */
export function takeKey(words: NftWords, family: IpFamily): NftKey {
  const key = [takeExpression(words, family)];
  while (words.takeIf(".")) key.push(takeExpression(words, family));
  return key;
}

const ASKED = { IPv4: wordsToAsk("IPv4"), IPv6: wordsToAsk("IPv6") };

function takeExpression(words: NftWords, family: IpFamily): NftExpression {
  const found = ASKED[family].find(([, asked]) => words.takeIf(...asked));
  if (found !== undefined) return { kind: found[0] };
  if (words.takeIf("th", "dport")) return { kind: "destinationPort", only: null };
  for (const only of ["tcp", "udp", "sctp"] as const) {
    if (words.takeIf(only, "dport")) return { kind: "destinationPort", only };
  }
  if (words.takeIf("numgen", "random", "mod")) {
    const modulus = words.takeNumber();
    if (modulus === 0) throw words.refusal("chooses among none", -1);
    return { kind: "random", modulus };
  }
  throw words.refusal("is not understood");
}

/** Effect of `OPERATOR NUMBER` on a mark. */
function takeMarkOperation(words: NftWords): { keep: number; flip: number } {
  const operator = words.take();
  const bits = words.takeNumber();
  switch (operator) {
    case "or":
    case "|":
      return { keep: (ALL_BITS & ~bits) >>> 0, flip: bits };
    case "xor":
    case "^":
      return { keep: ALL_BITS, flip: bits };
    case "and":
    case "&":
      return { keep: bits, flip: 0 };
    default:
      throw words.refusal("has an unknown operation on the mark", -2);
  }
}

function takeMark(words: NftWords): NftStatement {
  words.takeIf("meta");
  words.expect("mark");
  if (words.takeIf("set")) {
    if (words.takeIf("meta", "mark") || words.takeIf("mark")) {
      return { kind: "setMark", ...takeMarkOperation(words) };
    }
    return { kind: "setMark", keep: 0, flip: words.takeNumber() };
  }
  let mask = ALL_BITS;
  if (words.takeIf("and") || words.takeIf("&")) mask = words.takeNumber();
  const not = takeNot(words);
  const [, value, bits] = /^(\S+)\/(\d|[12]\d|3[0-2])$/.exec(words.peek()) ?? [];
  if (value === undefined) return { kind: "mark", not, mask, value: words.takeNumber() };
  // nft prints a mask of leading bits as a prefix length.
  words.take();
  const upper = bits === "0" ? 0 : ALL_BITS << (32 - Number(bits));
  return { kind: "mark", not, mask: (mask & upper) >>> 0, value: Number(value) };
}

function takeDnat(words: NftWords, family: IpFamily): NftStatement {
  words.expect("dnat");
  words.takeIf(family === "IPv4" ? "ip" : "ip6");
  words.takeIf("addr", ".", "port");
  words.expect("to");
  if (/^(?:ip6?|meta|th|tcp|udp|sctp|numgen)$/.test(words.peek())) {
    const key = takeKey(words, family);
    words.expect("map");
    return { kind: "dnatMap", key, operand: takeNamedOrInline(words) };
  }
  const word = words.take();
  const [, bracketed, plain, port] =
    /^(?:\[([^\]]+)\]|([^:]+|[0-9a-fA-F:]+?:[0-9a-fA-F:]+))(?::(\d+))?$/.exec(word) ??
      [];
  const ip = parseIp(bracketed ?? plain ?? "");
  if (ip?.family !== family) throw words.refusal("has no destination of this family", -1);
  return { kind: "dnat", ip: ip.text, port: port === undefined ? null : Number(port) };
}

function takeMasquerade(words: NftWords): NftStatement {
  words.expect("masquerade");
  for (const flag of ["fully-random", "random", "persistent"]) words.takeIf(flag);
  return { kind: "masquerade" };
}

function takeReject(words: NftWords): NftStatement {
  words.expect("reject");
  if (!words.takeIf("with")) return { kind: "reject", with: null };
  if (words.takeIf("tcp", "reset")) return { kind: "reject", with: "tcp-reset" };
  const protocol = words.take();
  const prefix = { icmp: "icmp", icmpv6: "icmp6" }[protocol];
  if (prefix === undefined) throw words.refusal("refuses in an unknown way", -1);
  words.takeIf("type");
  return { kind: "reject", with: `${prefix}-${words.take()}` };
}

function takeRemember(words: NftWords, family: IpFamily): NftStatement {
  const refresh = words.take() === "update";
  const set = words.take();
  if (!/^@./.test(set)) throw words.refusal("wants a set", -1);
  words.expect("{");
  const [expression, ...others] = takeKey(words, family);
  if (expression?.kind !== "source" || others.length > 0) {
    throw words.refusal("remembers something unknown", -1);
  }
  words.expect("}");
  return { kind: "remember", set: set.slice(1), refresh };
}

/** Options of `log`, each with one value. */
const LOG_OPTIONS: ReadonlySet<string> = new Set(["prefix", "level", "group", "snaplen", "queue-threshold"]);

function takeNote(words: NftWords): NftStatement {
  if (words.takeIf("comment")) {
    words.take();
    return { kind: "note" };
  }
  if (words.takeIf("log")) {
    while (LOG_OPTIONS.has(words.peek())) {
      words.take();
      words.take();
    }
    return { kind: "note" };
  }
  words.expect("counter");
  if (words.takeIf("name")) words.take();
  else if (words.takeIf("packets")) {
    words.takeNumber();
    words.expect("bytes");
    words.takeNumber();
  }
  return { kind: "note" };
}
