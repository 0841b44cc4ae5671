/**
 * Stand-in for the part of `jsr:@std/cli/parse-args` that kproxy uses, for builders that cannot reach JSR. Same
 * names, options and results as the real package; only the options used are there,
 * and names with dots stay whole.
 *
 * @module
 */

/** What {@linkcode parseArgs} yields: switches, texts, collected texts, the words that are no flags, and those after `--`. */
export type Args<B extends string, S extends string, C extends string> =
  & { [K in B]: boolean }
  & { [K in Exclude<S, C>]?: string }
  & { [K in C]: string[] }
  & { _: (string | number)[]; "--"?: string[] };

/** Options of {@linkcode parseArgs}. */
export interface ParseOptions<B extends string, S extends string, C extends string> {
  /** Flags without a value; `--no-x` needs {@linkcode ParseOptions.negatable}. */
  boolean?: readonly B[];
  /** Flags with a value. */
  string?: readonly S[];
  /** Flags with a value that may be given again; all values are kept. */
  collect?: readonly C[];
  /** Switches that `--no-x` turns off. */
  negatable?: readonly NoInfer<B>[];
  /** Values of flags that were not given. */
  default?: NoInfer<Partial<Record<B, boolean>> & Partial<Record<S, string>>>;
  /** Other names of flags: `{ help: "h" }`. */
  alias?: NoInfer<Partial<Record<B | S | C, string>>>;
  /** Whether everything after the first word that is no flag is left alone. @default {false} */
  stopEarly?: boolean;
  /** Whether words after `--` are put under `--` instead of `_`. @default {false} */
  "--"?: boolean;
  /** Called with every flag that is not listed; one for which it returns false is left out. */
  unknown?: (arg: string, key?: string, value?: unknown) => unknown;
}

/** `--name`, `--no-name` and `--name=value`, or the letters behind one dash. */
const FLAG = /^-(?:(-)(no-)?)?(.+?)(?:=(.*))?$/s;

/** Splits command-line words into flags and others. Numbers among the others become numbers, as in the real package. */
export function parseArgs<B extends string = never, S extends string = never, C extends string = never>(
  args: readonly string[],
  options: ParseOptions<B, S, C> = {},
): Args<B, S, C> {
  const reading = new Reading(options);
  const end = args.indexOf("--");
  reading.read(end < 0 ? args : args.slice(0, end), options.stopEarly ?? false);
  const rest = end < 0 ? [] : args.slice(end + 1);
  const result = {
    ...reading.found(),
    _: options["--"] ? reading.words : [...reading.words, ...rest],
    ...(options["--"] ? { "--": rest } : {}),
  };
  return result as Args<B, S, C>;
}

/** One command line, as far as it has been read. */
class Reading {
  readonly words: (string | number)[] = [];
  readonly #values = new Map<string, unknown>();
  readonly #switches: ReadonlySet<string>;
  readonly #texts: ReadonlySet<string>;
  readonly #lists: ReadonlySet<string>;
  readonly #negatable: ReadonlySet<string>;
  /** The other name, in both directions. */
  readonly #otherNames = new Map<string, string>();
  readonly #defaults: Readonly<Record<string, unknown>>;
  readonly #unknown: ((arg: string, key?: string, value?: unknown) => unknown) | undefined;

  constructor(options: ParseOptions<string, string, string>) {
    for (const [name, alias] of Object.entries(options.alias ?? {})) {
      if (alias === undefined) throw new TypeError("Alias value must be defined");
      this.#otherNames.set(name, alias).set(alias, name);
    }
    this.#switches = this.#bothNames(options.boolean);
    this.#texts = this.#bothNames(options.string);
    this.#lists = this.#bothNames(options.collect);
    this.#negatable = this.#bothNames(options.negatable);
    this.#defaults = options.default ?? {};
    this.#unknown = options.unknown;
  }

  #bothNames(names: readonly string[] = []): Set<string> {
    return new Set(names.flatMap((name) => [name, this.#otherNames.get(name) ?? name]));
  }

  read(args: readonly string[], stopEarly: boolean): void {
    for (let index = 0; index < args.length; index++) {
      const arg = args[index] ?? "";
      const match = FLAG.exec(arg);
      if (match !== null) {
        const takesNext = match[1] === undefined
          ? this.#letters(arg, args[index + 1])
          : this.#long(arg, match, args[index + 1]);
        if (takesNext) index++;
        continue;
      }
      if (this.#unknown?.(arg) !== false) this.words.push(this.#texts.has("_") ? arg : asNumber(arg));
      if (!stopEarly) continue;
      this.words.push(...args.slice(index + 1));
      return;
    }
  }

  /** Everything by name, with the values of flags that were not given. */
  found(): Record<string, unknown> {
    const defaults: Record<string, unknown> = {};
    for (const name of this.#switches) defaults[name] = this.#lists.has(name) ? [] : false;
    for (const name of this.#texts) if (this.#lists.has(name)) defaults[name] = [];
    for (const [name, value] of Object.entries(this.#defaults)) {
      defaults[name] = value;
      defaults[this.#otherNames.get(name) ?? name] = value;
    }
    return { ...defaults, ...Object.fromEntries(this.#values) };
  }

  /** @returns whether the next word is its value */
  #long(arg: string, [, , no, key = "", inline]: RegExpExecArray, next: string | undefined): boolean {
    if (inline !== undefined) {
      this.#put(key, this.#switches.has(key) ? inline !== "false" : inline, arg);
      return false;
    }
    if (no !== undefined && this.#negatable.has(key)) {
      this.#put(key, false, arg, false);
      return false;
    }
    return this.#withNext(`${no ?? ""}${key}`, arg, next, (word) => !word.startsWith("-"));
  }

  /** `-x`, `-xyz`, `-x2` and `-x=2`. @returns whether the next word is the last letter's value */
  #letters(arg: string, next: string | undefined): boolean {
    for (let at = 1; at < arg.length - 1; at++) {
      const letter = arg[at] ?? "";
      const rest = arg.slice(at + 1);
      if (rest === "-") {
        this.#put(letter, rest, arg);
        continue;
      }
      const value = lettersValue(letter, rest);
      this.#put(letter, value ?? (this.#texts.has(letter) ? "" : true), arg);
      if (value !== undefined) return false;
    }
    const last = arg.slice(-1);
    return last !== "-" && this.#withNext(last, arg, next, (word) => !/^--?[^-]/.test(word));
  }

  #withNext(key: string, arg: string, next: string | undefined, isValue: (word: string) => boolean): boolean {
    if (next !== undefined && next !== "") {
      if (!this.#switches.has(key) && isValue(next)) {
        this.#put(key, next, arg);
        return true;
      }
      if (next === "true" || next === "false") {
        this.#put(key, next === "true", arg);
        return true;
      }
    }
    this.#put(key, this.#texts.has(key) ? "" : true, arg);
    return false;
  }

  #put(key: string, value: string | boolean, arg: string, collects = true): void {
    const listed = [this.#switches, this.#texts, this.#lists, this.#otherNames].some((names) =>
      names.has(key)
    );
    if (!listed && this.#unknown?.(arg, key, value) === false) return;
    const read = typeof value === "string" && !this.#texts.has(key) ? asNumber(value) : value;
    const other = this.#otherNames.get(key);
    for (const name of other === undefined ? [key] : [key, other]) {
      const former = this.#values.get(name);
      const list = Array.isArray(former) ? former : [];
      this.#values.set(name, collects && this.#lists.has(key) ? [...list, read] : read);
    }
  }
}

/** What is a letter's value in the same word; undefined if the next character is a flag of its own. */
function lettersValue(letter: string, rest: string): string | undefined {
  if (rest === "=") return "";
  if (/[A-Za-z]/.test(letter)) {
    const [, value] = /=(.+)/.exec(rest) ?? [];
    if (value !== undefined) return value;
    if (/-?\d+(?:\.\d*)?(?:e-?\d+)?$/.test(rest)) return rest;
  }
  return /^\W/.test(rest) ? rest : undefined;
}

function asNumber(word: string): string | number {
  return /\S/.test(word) && Number.isFinite(Number(word)) ? Number(word) : word;
}
