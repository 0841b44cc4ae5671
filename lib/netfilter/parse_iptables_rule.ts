/**
 * iptables rule text → data; reads what the planners write and what `iptables-save` prints.
 *
 * @module
 */
import {
  type IptablesRule,
  type MarkOperation,
  type RuleMatch,
  type RuleTarget,
  splitWords,
} from "./iptables_rule.ts";

/** One `[!] --option value…` of a module or target. */
interface Option {
  readonly not: boolean;
  readonly name: string;
  readonly values: readonly string[];
}

const ALL_BITS = 0xffffffff;
const PROTOCOL_MODULES: ReadonlySet<string> = new Set(["tcp", "udp", "sctp", "udplite", "dccp"]);
const PORT_OPTIONS: ReadonlyMap<string, "sourcePort" | "destinationPort"> = new Map([
  ["--sport", "sourcePort"],
  ["--source-port", "sourcePort"],
  ["--dport", "destinationPort"],
  ["--destination-port", "destinationPort"],
]);
const BASE_OPTIONS = new Map<string, (value: string, not: boolean) => RuleMatch>([
  ["-s", (address, not) => ({ kind: "source", not, address })],
  ["-d", (address, not) => ({ kind: "destination", not, address })],
  ["-i", (name, not) => ({ kind: "inInterface", not, name })],
  ["-o", (name, not) => ({ kind: "outInterface", not, name })],
  ["-p", (protocol, not) => ({ kind: "protocol", not, protocol })],
]);
const LONG_BASE_OPTIONS: ReadonlyMap<string, string> = new Map([
  ["--source", "-s"],
  ["--src", "-s"],
  ["--destination", "-d"],
  ["--dst", "-d"],
  ["--in-interface", "-i"],
  ["--out-interface", "-o"],
  ["--protocol", "-p"],
  ["--match", "-m"],
  ["--jump", "-j"],
  ["--goto", "-g"],
]);

/** The words of one rule and how far they were read. */
class WordReader {
  readonly #words: readonly string[];
  readonly #text: string;
  #next = 0;

  constructor(text: string) {
    this.#text = text;
    this.#words = splitWords(text);
  }

  peek(ahead = 0): string | undefined {
    const word = this.#words[this.#next + ahead];
    return word === undefined ? undefined : LONG_BASE_OPTIONS.get(word) ?? word;
  }

  take(wanted: string): string {
    const word = this.#words[this.#next];
    if (word === undefined) throw new SyntaxError(`Rule "${this.#text}" ends where ${wanted} is needed`);
    this.#next++;
    return LONG_BASE_OPTIONS.get(word) ?? word;
  }

  /** A word that is never read as an option. */
  takeValue(option: string): string {
    const word = this.#words[this.#next];
    if (word === undefined) throw new SyntaxError(`Rule "${this.#text}" ends where ${option} needs a value`);
    this.#next++;
    return word;
  }

  fail(problem: string): never {
    throw new SyntaxError(`Rule "${this.#text}": ${problem}`);
  }

  /** The options that follow directly: everything up to a word that belongs to the rule itself. */
  takeOptions(): Option[] {
    const options: Option[] = [];
    while (true) {
      const not = this.peek() === "!";
      const name = this.peek(not ? 1 : 0);
      if (name === undefined || !name.startsWith("--") || PORT_OPTIONS.has(name)) return options;
      if (not) this.take("an option");
      this.take("an option");
      options.push({ not, name, values: this.takeValues(name) });
    }
  }

  /** The words up to the next option. */
  takeValues(option: string): string[] {
    // These take exactly one word, whatever it looks like; a comment may begin with a dash.
    if (option === "--comment" || option === "--log-prefix") return [this.takeValue(option)];
    const values: string[] = [];
    for (
      let word = this.peek();
      word !== undefined && word !== "!" && !word.startsWith("-");
      word = this.peek()
    ) {
      values.push(this.takeValue(option));
    }
    return values;
  }
}

/** A number in any of C's notations, within 32 bits; null if it is none. */
function parseNumber(text: string): number | null {
  if (!/^(0x[0-9a-fA-F]+|[0-9]+)$/.test(text)) return null;
  const value = /^0[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number(text);
  return value <= ALL_BITS ? value : null;
}

function parseMark(text: string): { value: number; mask: number } | null {
  const [valueText = "", maskText, ...rest] = text.split("/");
  const value = parseNumber(valueText);
  const mask = maskText === undefined ? ALL_BITS : parseNumber(maskText);
  return value === null || mask === null || rest.length > 0 ? null : { value, mask };
}

/** The only option, with its only value, if it has that name. */
function single(options: readonly Option[], name: string): { not: boolean; value: string } | null {
  const [option, ...others] = options;
  const [value, ...more] = option?.values ?? [];
  if (option?.name !== name || value === undefined || others.length > 0 || more.length > 0) return null;
  return { not: option.not, value };
}

function parseStatistic(options: readonly Option[]): RuleMatch | null {
  const mode = options.find((option) => option.name === "--mode");
  const probability = options.find((option) => option.name === "--probability");
  const text = probability?.values[0];
  if (options.length !== 2 || mode?.values.join() !== "random" || probability === undefined) return null;
  if (text === undefined || !/^[0-9]*\.?[0-9]+$/.test(text)) return null;
  return { kind: "statistic", not: probability.not, probability: text };
}

const RECENT_ACTIONS: ReadonlyMap<string, "set" | "rcheck" | "update" | "remove"> = new Map([
  ["--set", "set"],
  ["--rcheck", "rcheck"],
  ["--update", "update"],
  ["--remove", "remove"],
]);

function parseRecent(options: readonly Option[]): RuleMatch | null {
  let action: "set" | "rcheck" | "update" | "remove" | null = null;
  let not = false;
  let list = "DEFAULT";
  let seconds = 0;
  let reap = false;
  for (const option of options) {
    const value = option.values.join(" ");
    const known = RECENT_ACTIONS.get(option.name);
    if (known !== undefined) {
      action = known;
      not = option.not;
    } else if (option.name === "--name") list = value;
    else if (option.name === "--seconds") seconds = Number(value);
    else if (option.name === "--reap") reap = true;
    // Both are what iptables-save adds by itself; anything else changes the meaning.
    else if (option.name === "--mask" && /^(255\.255\.255\.255|(ffff:){7}ffff)$/.test(value)) continue;
    else if (option.name !== "--rsource") return null;
  }
  if (action === null || !Number.isInteger(seconds)) return null;
  return { kind: "recent", not, action, list, seconds, reap };
}

function parseAddrtype(options: readonly Option[]): RuleMatch[] | null {
  const matches: RuleMatch[] = [];
  for (const { name, not, values: [type, ...more] } of options) {
    if ((name !== "--src-type" && name !== "--dst-type") || type === undefined || more.length > 0) {
      return null;
    }
    matches.push({ kind: "addrtype", not, side: name === "--src-type" ? "source" : "destination", type });
  }
  return matches.length === 0 ? null : matches;
}

/** Exactly the three options that name a virtual server, in any order. */
function parseIpvs(options: readonly Option[]): RuleMatch | null {
  const values = new Map(options.map(({ name, values }) => [name, values.join(" ")]));
  const [address, protocol, port] = [values.get("--vaddr"), values.get("--vproto"), values.get("--vport")];
  if (options.length !== 3 || options.some(({ not }) => not)) return null;
  if (address === undefined || protocol === undefined || port === undefined) return null;
  return { kind: "ipvs", address, protocol, port };
}

function parseSet(options: readonly Option[]): RuleMatch | null {
  const [option, ...others] = options;
  const [set, directions, ...more] = option?.values ?? [];
  if (option?.name !== "--match-set" || others.length > 0 || more.length > 0) return null;
  if (set === undefined || directions === undefined) return null;
  return { kind: "set", not: option.not, set, directions: directions.split(",") };
}

/** What a module's options mean, or null if this reader does not know them all. */
const MODULES: Readonly<
  Record<string, (options: readonly Option[]) => RuleMatch | readonly RuleMatch[] | null>
> = {
  comment(options) {
    const text = single(options, "--comment");
    return text === null ? null : { kind: "comment", text: text.value };
  },
  conntrack(options) {
    const state = single(options, "--ctstate");
    return state === null ? null : { kind: "conntrack", not: state.not, states: state.value.split(",") };
  },
  mark(options) {
    const mark = single(options, "--mark");
    const parsed = mark === null ? null : parseMark(mark.value);
    return mark === null || parsed === null ? null : { kind: "mark", not: mark.not, ...parsed };
  },
  addrtype: parseAddrtype,
  statistic: parseStatistic,
  recent: parseRecent,
  nfacct(options) {
    const name = single(options, "--nfacct-name");
    return name === null ? null : { kind: "nfacct", name: name.value };
  },
  set: parseSet,
  physdev(options) {
    const [option, ...others] = options;
    const only = others.length === 0 && option?.name === "--physdev-is-in" && option.values.length === 0;
    return only ? { kind: "physdevIsIn", not: option.not } : null;
  },
  ipvs: parseIpvs,
};

function optionWords(options: readonly Option[]): string[] {
  return options.flatMap((option) => [...(option.not ? ["!"] : []), option.name, ...option.values]);
}

function takeModule(reader: WordReader): readonly RuleMatch[] {
  const name = reader.takeValue("-m");
  if (PROTOCOL_MODULES.has(name)) return [{ kind: "module", name }];
  const options = reader.takeOptions();
  const parse = Object.hasOwn(MODULES, name) ? MODULES[name] : undefined;
  const parsed = parse?.(options) ?? null;
  if (parsed === null) return [{ kind: "opaque", words: ["-m", name, ...optionWords(options)] }];
  return "kind" in parsed ? [parsed] : parsed;
}

const MARK_OPERATIONS: ReadonlyMap<string, MarkOperation> = new Map([
  ["--or-mark", "or"],
  ["--xor-mark", "xor"],
  ["--and-mark", "and"],
  ["--set-mark", "set"],
  ["--set-xmark", "setXmark"],
]);

function parseMarkTarget(options: readonly Option[]): RuleTarget | null {
  const name = options[0]?.name ?? "";
  const operation = MARK_OPERATIONS.get(name);
  const mark = parseMark(single(options, name)?.value ?? "");
  return operation === undefined || mark === null ? null : { kind: "setMark", operation, ...mark };
}

/** What a target's options mean, or null if this reader does not know them all. */
const TARGETS: Readonly<Record<string, (options: readonly Option[]) => RuleTarget | null>> = {
  REJECT(options) {
    if (options.length === 0) return { kind: "reject", with: null };
    const type = single(options, "--reject-with");
    return type === null ? null : { kind: "reject", with: type.value };
  },
  DNAT(options) {
    const [first, ...others] = options;
    const to = single(first === undefined ? [] : [first], "--to-destination");
    return to === null ? null : { kind: "dnat", to: to.value, options: optionWords(others) };
  },
  REDIRECT(options) {
    if (options.length === 0) return { kind: "redirect", port: 0 };
    // One of several ports, and one by chance, are kept as words.
    const ports = single(options, "--to-ports")?.value ?? "";
    return /^[1-9]\d{0,4}$/.test(ports) ? { kind: "redirect", port: Number(ports) } : null;
  },
  MASQUERADE(options) {
    if (options.length === 0) return { kind: "masquerade", randomFully: false };
    const randomFully = options.length === 1 && options[0]?.name === "--random-fully";
    return randomFully ? { kind: "masquerade", randomFully } : null;
  },
  MARK: parseMarkTarget,
};

function takeTarget(reader: WordReader, goto: boolean): RuleTarget {
  const name = reader.takeValue(goto ? "-g" : "-j");
  if (name === "ACCEPT" || name === "DROP" || name === "RETURN") return { kind: "verdict", verdict: name };
  const options = reader.takeOptions();
  const parse = Object.hasOwn(TARGETS, name) ? TARGETS[name] : undefined;
  const target = parse?.(options) ?? null;
  if (target !== null) return target;
  if (options.length > 0 || parse !== undefined) return { kind: "opaque", name, words: optionWords(options) };
  return { kind: "chain", chain: name, goto };
}

/**
 * Reads the words of a rule that stand after `-A CHAIN`. Matches and targets it does not know are kept as words.
 *
 * @throws {SyntaxError} if a word belongs nowhere or a value is missing
 */
export function parseIptablesRule(text: string): IptablesRule {
  const reader = new WordReader(text);
  const matches: RuleMatch[] = [];
  let target: RuleTarget | null = null;
  while (reader.peek() !== undefined) {
    const not = reader.peek() === "!";
    if (not) reader.take("an option");
    const option = reader.take("an option");
    const base = BASE_OPTIONS.get(option);
    const port = PORT_OPTIONS.get(option);
    if (base !== undefined) matches.push(base(reader.takeValue(option), not));
    else if (port !== undefined) matches.push({ kind: port, not, ports: reader.takeValue(option) });
    else if (not && !option.startsWith("--")) reader.fail(`"!" cannot stand before "${option}"`);
    else if (option === "-m") matches.push(...takeModule(reader));
    else if (option === "-j" || option === "-g") {
      if (target !== null) reader.fail("it has two targets");
      target = takeTarget(reader, option === "-g");
    } else if (option.startsWith("-") && option !== "-") {
      matches.push({ kind: "opaque", words: [...(not ? ["!"] : []), option, ...reader.takeValues(option)] });
    } else reader.fail(`"${option}" belongs to no option`);
  }
  return { matches, target };
}
