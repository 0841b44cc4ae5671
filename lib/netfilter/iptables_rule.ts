/**
 * One iptables rule as data: what it matches, in the order written, and where it sends the packet.
 *
 * @module
 */

interface Negatable {
  /** True if `!` stands before the option. */
  readonly not: boolean;
}

/** One condition of a rule. Everything kproxy or a simulator need not understand is kept as `opaque` words. */
export type RuleMatch =
  | { readonly kind: "comment"; readonly text: string }
  /** `-m tcp`: loads a protocol's options, matches nothing by itself. */
  | { readonly kind: "module"; readonly name: string }
  | (Negatable & { readonly kind: "protocol"; readonly protocol: string })
  | (Negatable & { readonly kind: "source" | "destination"; readonly address: string })
  /** A trailing `+` stands for any ending. */
  | (Negatable & { readonly kind: "inInterface" | "outInterface"; readonly name: string })
  /** One port, or `first:last`. */
  | (Negatable & { readonly kind: "sourcePort" | "destinationPort"; readonly ports: string })
  | (Negatable & { readonly kind: "conntrack"; readonly states: readonly string[] })
  | (Negatable & { readonly kind: "mark"; readonly value: number; readonly mask: number })
  | (Negatable & {
    readonly kind: "addrtype";
    readonly side: "source" | "destination";
    readonly type: string;
  })
  /** `--mode random`; decimal text, as written. */
  | (Negatable & { readonly kind: "statistic"; readonly probability: string })
  | (Negatable & {
    readonly kind: "recent";
    readonly action: "set" | "rcheck" | "update" | "remove";
    readonly list: string;
    /** 0 if not given. */
    readonly seconds: number;
    readonly reap: boolean;
  })
  | { readonly kind: "nfacct"; readonly name: string }
  /** Looks the packet's `src` or `dst` address or port up in a set of ipset, one word for each part of an entry. */
  | (Negatable & { readonly kind: "set"; readonly set: string; readonly directions: readonly string[] })
  /** `--physdev-is-in`: came in through a port of a bridge. */
  | (Negatable & { readonly kind: "physdevIsIn" })
  /** Goes through this virtual server of IPVS. */
  | {
    readonly kind: "ipvs";
    readonly address: string;
    /** Name or number. */
    readonly protocol: string;
    readonly port: string;
  }
  | { readonly kind: "opaque"; readonly words: readonly string[] };

export type MarkOperation = "or" | "xor" | "and" | "set" | "setXmark";

/** Where a rule sends the packet. */
export type RuleTarget =
  /** A user chain, or an extension without options that is not one of those below. */
  | { readonly kind: "chain"; readonly chain: string; readonly goto: boolean }
  | { readonly kind: "verdict"; readonly verdict: "ACCEPT" | "DROP" | "RETURN" }
  /** null: the kernel's default (port unreachable). */
  | { readonly kind: "reject"; readonly with: string | null }
  | { readonly kind: "dnat"; readonly to: string; readonly options: readonly string[] }
  /** To the node itself; port 0: the packet's own. */
  | { readonly kind: "redirect"; readonly port: number }
  | { readonly kind: "masquerade"; readonly randomFully: boolean }
  | {
    readonly kind: "setMark";
    readonly operation: MarkOperation;
    readonly value: number;
    readonly mask: number;
  }
  | { readonly kind: "opaque"; readonly name: string; readonly words: readonly string[] };

/** A rule without its place (table, chain, position). */
export interface IptablesRule {
  readonly matches: readonly RuleMatch[];
  /** null: the rule only counts packets. */
  readonly target: RuleTarget | null;
}

const ALL_BITS = 0xffffffff;

const MARK_FLAGS: Readonly<Record<MarkOperation, string>> = {
  or: "--or-mark",
  xor: "--xor-mark",
  and: "--and-mark",
  set: "--set-mark",
  setXmark: "--set-xmark",
};

function hex(value: number): string {
  return `0x${(value >>> 0).toString(16).padStart(8, "0")}`;
}

function markText(value: number, mask: number): string {
  return mask === ALL_BITS ? hex(value) : `${hex(value)}/${hex(mask)}`;
}

/** The words of one condition, not yet quoted. */
function matchWords(match: RuleMatch): readonly string[] {
  const negation = "not" in match && match.not ? ["!"] : [];
  switch (match.kind) {
    case "comment":
      return ["-m", "comment", "--comment", match.text];
    case "module":
      return ["-m", match.name];
    case "protocol":
      return [...negation, "-p", match.protocol];
    case "source":
      return [...negation, "-s", match.address];
    case "destination":
      return [...negation, "-d", match.address];
    case "inInterface":
      return [...negation, "-i", match.name];
    case "outInterface":
      return [...negation, "-o", match.name];
    case "sourcePort":
      return [...negation, "--sport", match.ports];
    case "destinationPort":
      return [...negation, "--dport", match.ports];
    case "conntrack":
      return ["-m", "conntrack", ...negation, "--ctstate", match.states.join(",")];
    case "mark":
      return ["-m", "mark", ...negation, "--mark", markText(match.value, match.mask)];
    case "addrtype":
      return [
        "-m",
        "addrtype",
        ...negation,
        match.side === "source" ? "--src-type" : "--dst-type",
        match.type,
      ];
    case "statistic":
      return ["-m", "statistic", "--mode", "random", ...negation, "--probability", match.probability];
    case "recent":
      return [
        ...["-m", "recent", "--name", match.list, ...negation, `--${match.action}`],
        ...(match.seconds === 0 ? [] : ["--seconds", String(match.seconds)]),
        ...(match.reap ? ["--reap"] : []),
      ];
    case "nfacct":
      return ["-m", "nfacct", "--nfacct-name", match.name];
    case "set":
      return ["-m", "set", ...negation, "--match-set", match.set, match.directions.join(",")];
    case "physdevIsIn":
      return ["-m", "physdev", ...negation, "--physdev-is-in"];
    case "ipvs":
      return [
        ...["-m", "ipvs", "--vaddr", match.address, "--vproto", match.protocol, "--vport", match.port],
      ];
    case "opaque":
      return match.words;
    default:
      return match satisfies never;
  }
}

function targetWords(target: RuleTarget): readonly string[] {
  switch (target.kind) {
    case "chain":
      return [target.goto ? "-g" : "-j", target.chain];
    case "verdict":
      return ["-j", target.verdict];
    case "reject":
      return ["-j", "REJECT", ...(target.with === null ? [] : ["--reject-with", target.with])];
    case "dnat":
      return ["-j", "DNAT", "--to-destination", target.to, ...target.options];
    case "redirect":
      return ["-j", "REDIRECT", ...(target.port === 0 ? [] : ["--to-ports", String(target.port)])];
    case "masquerade":
      return ["-j", "MASQUERADE", ...(target.randomFully ? ["--random-fully"] : [])];
    case "setMark": {
      const plain = target.operation === "or" || target.operation === "xor" || target.operation === "and";
      const value = plain ? hex(target.value) : markText(target.value, target.mask);
      return ["-j", "MARK", MARK_FLAGS[target.operation], value];
    }
    case "opaque":
      return ["-j", target.name, ...target.words];
    default:
      return target satisfies never;
  }
}

/**
 * Prints the rule without its chain, in the form the planners write: `renderIptablesRule(parseIptablesRule(text))` is
 * `text` for every rule kproxy makes.
 */
export function renderIptablesRule(rule: IptablesRule): string {
  const words = [
    ...rule.matches.flatMap(matchWords),
    ...(rule.target === null ? [] : targetWords(rule.target)),
  ];
  return words.map(quoteWord).join(" ");
}

/**
 * Splits a line into words the way `iptables-restore` does: blanks separate, double quotes group, a backslash escapes
 * only inside quotes, a closing quote ends the word.
 *
 * @throws {SyntaxError} if a quote is not closed
 */
export function splitWords(line: string): string[] {
  // Nearly every line of a ruleset has no escapes, and this is the hot path of reading back 100,000 rules.
  if (!line.includes('"')) return line.split(/[ \t]+/).filter((word) => word !== "");
  const words: string[] = [];
  let word = "";
  let started = false;
  let quoted = false;
  const finish = () => {
    if (started) words.push(word);
    word = "";
    started = false;
  };
  for (let i = 0; i < line.length; i++) {
    const char = line.charAt(i);
    if (quoted) {
      if (char === '"') {
        quoted = false;
        finish();
      } else if (char === "\\" && i + 1 < line.length) {
        word += line.charAt(++i);
      } else {
        word += char;
      }
    } else if (char === '"') {
      quoted = true;
      started = true;
    } else if (char === " " || char === "\t") {
      finish();
    } else {
      word += char;
      started = true;
    }
  }
  if (quoted) throw new SyntaxError(`Quote is not closed in "${line}"`);
  finish();
  return words;
}

/** Yields the word as a restore line needs it: bare if it can be, else in double quotes. */
export function quoteWord(word: string): string {
  if (word !== "" && !/[\s"\\]/.test(word)) return word;
  return `"${word.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
