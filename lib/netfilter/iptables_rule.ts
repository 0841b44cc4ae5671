/**
 * One iptables rule as data: its match options, in the order written, and its target. Reads what the planners
 * write and what `iptables-save` prints.
 *
 * @module
 */

/** One option of a rule, e.g. `! --dport 80`. */
export interface RuleOption {
  /** True if the option is negated by `!`. */
  readonly not: boolean;
  /** Name of the option, in its short form if it has one: `-s`, `--dport`. */
  readonly name: string;
  readonly values: readonly string[];
}

/** A condition: options of the rule itself, or of a match module (`-m`). */
export interface RuleMatch {
  /** Name of the module, e.g. `conntrack`; `""`: none. */
  readonly module: string;
  /** Options of the condition, all of which must hold. */
  readonly options: readonly RuleOption[];
}

/** Target of a rule. */
export interface RuleTarget {
  /** `-g` instead of `-j`. */
  readonly goto: boolean;
  /** A verdict, a target extension or a chain. */
  readonly name: string;
  readonly options: readonly RuleOption[];
}

/** A rule without its table, chain and position. */
export interface IptablesRule {
  readonly matches: readonly RuleMatch[];
  /** Null: the rule has no target, and only counts packets. */
  readonly target: RuleTarget | null;
}

const SHORT_NAMES: ReadonlyMap<string, string> = new Map([
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
  ["--source-port", "--sport"],
  ["--destination-port", "--dport"],
]);
const PORTS: ReadonlySet<string> = new Set(["--sport", "--dport"]);
/** Options whose value is never read as an option: a comment may begin with a dash. */
const OF_ONE_VALUE: ReadonlySet<string> = new Set([
  ...["-s", "-d", "-i", "-o", "-p", "-m", "-j", "-g", "--comment", "--log-prefix"],
  ...PORTS,
]);
/** Modules such as `-m tcp`, which match nothing by themselves; their options stand alone. */
export const PROTOCOL_MODULES: ReadonlySet<string> = new Set(["tcp", "udp", "sctp", "udplite", "dccp"]);

/** Words of a rule, and the reader's position. */
class WordReader {
  readonly #words: readonly string[];
  readonly #text: string;
  #next = 0;

  constructor(text: string) {
    this.#text = text;
    this.#words = splitWords(text);
  }

  get isAtEnd(): boolean {
    return this.#next === this.#words.length;
  }

  takeOption(): RuleOption {
    const not = this.#words[this.#next] === "!";
    if (not) this.#next++;
    const word = this.#take("where an option is needed");
    const name = shortName(word);
    if (!name.startsWith("-") || name === "-") this.fail(`"${word}" belongs to no option`);
    const values: string[] = [];
    if (OF_ONE_VALUE.has(name)) values.push(this.#take(`where ${name} needs a value`));
    else while (this.#isAtValue) values.push(this.#take(""));
    return { not, name, values };
  }

  /** Options up to the next one that belongs to the rule itself. */
  takeOptions(): readonly RuleOption[] {
    const options: RuleOption[] = [];
    for (;;) {
      const name = shortName(this.#words[this.#next + Number(this.#words[this.#next] === "!")] ?? "");
      if (!name.startsWith("--") || PORTS.has(name)) return options;
      options.push(this.takeOption());
    }
  }

  fail(problem: string): never {
    throw new SyntaxError(`Rule "${this.#text}": ${problem}`);
  }

  get #isAtValue(): boolean {
    const word = this.#words[this.#next];
    return word !== undefined && word !== "!" && !word.startsWith("-");
  }

  #take(place: string): string {
    const word = this.#words[this.#next++];
    if (word === undefined) throw new SyntaxError(`Rule "${this.#text}" ends ${place}`);
    return word;
  }
}

function shortName(word: string): string {
  return SHORT_NAMES.get(word) ?? word;
}

/**
 * Reads the words of a rule after `-A CHAIN`. What options of modules and targets mean is not checked.
 *
 * @throws {SyntaxError} if a word is unexpected or a value is missing
 */
export function parseIptablesRule(text: string): IptablesRule {
  const reader = new WordReader(text);
  const matches: RuleMatch[] = [];
  let target: RuleTarget | null = null;
  while (!reader.isAtEnd) {
    const option = reader.takeOption();
    const [first = ""] = option.values;
    const isMatch = option.name === "-m";
    if (!isMatch && option.name !== "-j" && option.name !== "-g") {
      matches.push({ module: "", options: [option] });
      continue;
    }
    if (option.not) reader.fail(`"!" cannot stand before "${option.name}"`);
    if (isMatch) {
      matches.push({ module: first, options: PROTOCOL_MODULES.has(first) ? [] : reader.takeOptions() });
    } else {
      if (target !== null) reader.fail("it has two targets");
      target = { goto: option.name === "-g", name: first, options: reader.takeOptions() };
    }
  }
  return { matches, target };
}

/** The words of options, not quoted. */
export function optionWords(options: readonly RuleOption[]): readonly string[] {
  return options.flatMap(({ not, name, values }) => [...not ? ["!"] : [], name, ...values]);
}

/** The words of a condition, not quoted. */
export function matchWords({ module, options }: RuleMatch): readonly string[] {
  return [...module === "" ? [] : ["-m", module], ...optionWords(options)];
}

/**
 * Prints the rule without its chain, in the form the planners write: `renderIptablesRule(parseIptablesRule(text))` is
 * `text` for every rule kproxy makes.
 */
export function renderIptablesRule({ matches, target }: IptablesRule): string {
  const words = matches.flatMap(matchWords);
  if (target !== null) words.push(target.goto ? "-g" : "-j", target.name, ...optionWords(target.options));
  return words.map(quoteWord).join(" ");
}

/** The value of the only option, if it has that name and one value. */
export function onlyValue(options: readonly RuleOption[], name: string): string | null {
  const [option, ...others] = options;
  const isOnly = option?.name === name && option.values.length === 1 && others.length === 0;
  return isOnly ? option.values[0]! : null;
}

/** A mask of all address bits, as `iptables-save` prints it. */
export const WHOLE_MASK = /^(255\.255\.255\.255|(ffff:){7}ffff)$/;

const ALL_BITS = 0xffffffff;

/** A value with a mask, e.g. `0x4000/0x4000`, in any of C's notations, each within 32 bits; null if it is invalid. */
export function parseMark(text: string): { readonly value: number; readonly mask: number } | null {
  const [value = null, mask = ALL_BITS, ...rest] = text.split("/").map(parseNumber);
  return value === null || mask === null || rest.length > 0 ? null : { value, mask };
}

function parseNumber(text: string): number | null {
  if (!/^(0x[0-9a-fA-F]+|[0-9]+)$/.test(text)) return null;
  const value = /^0[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number(text);
  return value <= ALL_BITS ? value : null;
}

/**
 * Splits a line into words the way `iptables-restore` does: blanks separate, double quotes group, a backslash escapes
 * only inside quotes, a closing quote ends the word.
 *
 * @throws {SyntaxError} if a quote is not closed
 */
export function splitWords(line: string): string[] {
  // Nearly every line of a ruleset has no quotes, and this is the hot path of reading back 100,000 rules.
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

/** The word as a restore line needs it: bare if possible, else in double quotes. */
export function quoteWord(word: string): string {
  if (word !== "" && !/[\s"\\]/.test(word)) return word;
  return `"${word.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
