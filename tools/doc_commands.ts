/**
 * The commands that documentation and comments name: `kproxy …` with its flags, and `deno task …`. Which of them do not exist.
 *
 * @module
 */
import { codeOf } from "./links.ts";

/** What there is to name. */
export interface KnownCommands {
  /** Flags of each command of kproxy, without dashes. */
  readonly flags: ReadonlyMap<string, ReadonlySet<string>>;
  /** Tasks of `deno.json`. */
  readonly tasks: ReadonlySet<string>;
}

/** At the start of a line of a shell, with or without a prompt, or of another command in it. */
const PROGRAM_REGEXP =
  /(?:^(?:\$ )?|[;&|(])\s*(?:sudo )?(?:[\w./-]*\/)?(?:deno task (?:-q )?)?kproxy ([^#;&|)]+)/g;
const TASK_REGEXP = /\bdeno task ((?:-[a-z]+ )*)([a-z][a-z:_-]*)/g;
/** Flags of one letter, by the names that they stand for. */
const SHORT = new Map([["h", "help"], ["o", "output"], ["v", "v"], ["w", "watch"]]);

/** The commands of kproxy that a Markdown text names in code and that do not exist, with what is wrong. */
export function unknownCommands(markdown: string, { flags }: KnownCommands): string[] {
  return codeOf(markdown).flatMap((code) =>
    [...code.matchAll(PROGRAM_REGEXP)].flatMap(([, words = ""]) => problemsOf(words.trim(), flags))
  );
}

/**
 * The arguments of each command of kproxy that a Markdown text shows with more than its name: as a shell would pass them, with
 * `VALUE` for what the shell would put in. Synopses, which have brackets or dots, are left out.
 */
export function shownCommands(markdown: string): string[][] {
  return codeOf(markdown).flatMap((code) => {
    const whole = code.replaceAll(/\$\([^)]*\)|\$\w+/g, "VALUE");
    return [...whole.matchAll(PROGRAM_REGEXP)].map(([, words = ""]) =>
      words.replace(/\s[12]?>.*$/, "").trim()
    );
  }).filter((words) => /^[a-z-]+ ./.test(words) && !/[…[\]<]|\.\.\.|=(?:\s|$)|^on /.test(words)).map(
    argumentsOf,
  );
}

/**
 * The arguments of each command of kubectl in a Markdown text, as a shell would pass them; each once. Those that name no object, as
 * `get -o yaml`, only stand for one.
 */
export function kubectlCommands(markdown: string): string[][] {
  return commandsOf("kubectl", markdown).filter((words) =>
    !/^[a-z-]+(?: -.*)?$/.test(words) || words.includes("-k")
  ).map(argumentsOf);
}

/** Likewise of Helm. Those of one word only stand for one. */
export function helmCommands(markdown: string): string[][] {
  return commandsOf("helm", markdown).filter((words) => words.includes(" ")).map(argumentsOf);
}

function commandsOf(program: string, markdown: string): string[] {
  const command = new RegExp(`(?:^|[;&|(])\\s*${program} ([^#;&|)]+)`, "g");
  const found = codeOf(markdown).flatMap((code) =>
    [...code.matchAll(command)].map(([, words = ""]) => words.trim())
  );
  return [...new Set(found)];
}

function argumentsOf(words: string): string[] {
  return (words.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? []).map((word) =>
    word.replaceAll(/"([^"]*)"|'([^']*)'/g, (_, double?: string, single?: string) => double ?? single ?? "")
  );
}

/** The files and folders that commands of Deno in a Markdown text name, relative to the project's folder. */
export function pathsOfDenoCommands(markdown: string): string[] {
  return codeOf(markdown).flatMap((code) =>
    [...code.matchAll(/\bdeno (?:test|run|doc|check|bench) ([^#;&|]+)/g)].flatMap(([, words = ""]) =>
      words.split(/\s+/).filter((word) => /^(?:lib|tests|tools|links|docs)\b|^\w+\.ts$/.test(word))
    )
  );
}

/** The tasks that a text names and that do not exist. */
export function unknownTasks(text: string, { tasks }: KnownCommands): string[] {
  return [...text.matchAll(TASK_REGEXP)].flatMap(([, , task = ""]) => tasks.has(task) ? [] : [task]);
}

function problemsOf(words: string, flags: KnownCommands["flags"]): string[] {
  const [first = "", ...rest] = words.split(/\s+/);
  const all = new Set([...flags.values()].flatMap((names) => [...names]));
  // Without a command the flags are those of the whole program.
  // So commands name a running one: `kproxy on 127.0.0.1:10249`.
  if (first === "on") return [];
  if (first.startsWith("-")) return unknownFlags([first, ...rest], all).map((flag) => `kproxy ${flag}`);
  // A placeholder, as in a synopsis.
  if (!/^[a-z][a-z-]*$/.test(first)) return [];
  const known = flags.get(first);
  if (known === undefined) return [`kproxy ${first}`];
  return unknownFlags(rest, known).map((flag) => `kproxy ${first} ${flag}`);
}

function unknownFlags(words: readonly string[], known: ReadonlySet<string>): string[] {
  return words.flatMap((word) => {
    const [, dashes = "", name = ""] = /^(--?)([a-zA-Z][\w-]*)/.exec(word) ?? [];
    if (name === "") return [];
    const full = dashes === "-" ? SHORT.get(name) ?? name : name;
    return known.has(full) ? [] : [`${dashes}${name}`];
  });
}
