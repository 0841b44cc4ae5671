/**
 * Stand-in for the part of `jsr:@std/cli/parse-args` that kproxy's tools use, for builders that cannot reach JSR. Same
 * names, options and results as the real package; only the options used are there.
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

/** Splits command-line words into flags and others. Numbers among the others become numbers, as in the real package. */
export function parseArgs<B extends string = never, S extends string = never, C extends string = never>(
  args: readonly string[],
  options: ParseOptions<B, S, C> = {},
): Args<B, S, C> {
  const switches = new Set<string>(options.boolean);
  const texts = new Set<string>([...options.string ?? [], ...options.collect ?? []]);
  const collected = new Set<string>(options.collect);
  const names = new Map<string, string>();
  for (const [name, alias] of Object.entries<string | undefined>(options.alias ?? {})) {
    if (alias !== undefined) names.set(alias, name);
  }
  const words: (string | number)[] = [];
  const found: Record<string, unknown> = {};
  for (const name of switches) found[name] = false;
  for (const name of collected) found[name] = [];
  Object.assign(found, options.default);

  const put = (name: string, value: unknown): void => {
    const list = found[name];
    if (collected.has(name) && Array.isArray(list)) list.push(value);
    else found[name] = value;
  };
  let rest: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index] ?? "";
    if (arg === "--") {
      rest = args.slice(index + 1);
      break;
    }
    const match = /^--?([^=-][^=]*)(?:=(.*))?$/s.exec(arg);
    if (match === null) {
      if (options.unknown?.(arg) !== false) words.push(asNumber(arg));
      if (!options.stopEarly) continue;
      words.push(...args.slice(index + 1).map(asNumber));
      break;
    }
    const [, typed = "", inline] = match;
    const name = names.get(typed) ?? typed;
    const positive = name.replace(/^no-/, "");
    if (name !== positive && new Set<string>(options.negatable).has(positive)) {
      put(positive, false);
    } else if (switches.has(name)) {
      put(name, inline !== "false");
    } else {
      const next = args[index + 1];
      const value = inline ??
        (texts.has(name) && next !== undefined && !next.startsWith("-") ? next : undefined);
      if (texts.has(name) && inline === undefined && value !== undefined) index++;
      if (!texts.has(name) && options.unknown?.(arg, name, value ?? true) === false) continue;
      put(name, value ?? (texts.has(name) ? "" : true));
    }
  }
  const result = {
    ...found,
    _: options["--"] ? words : [...words, ...rest],
    ...(options["--"] ? { "--": rest } : {}),
  };
  return result as Args<B, S, C>;
}

function asNumber(word: string): string | number {
  return /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?$/.test(word) ? Number(word) : word;
}
