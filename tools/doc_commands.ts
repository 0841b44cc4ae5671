/**
 * Commands that documentation and comments name: `kproxy …` with its flags, `deno task …`, kubectl and Helm.
 *
 * @module
 */
import { codeOf } from "./links.ts";

/** A command at the start of a shell line, with or without a prompt, or within another command. */
const PROGRAM_REGEXP =
  /(?:^(?:\$ )?|[;&|(])\s*(?:sudo )?(?:[\w./-]*\/)?(?:deno task (?:-q )?)?kproxy ([^#;&|)]+)/g;
const TASK_REGEXP = /\bdeno task (?:-[a-z]+ )*([a-z][a-z:_-]*)/g;
/** Arguments of each kproxy command, as a shell would pass them, with `VALUE` for text that the shell would insert. */
export function kproxyCommands(markdown: string): string[][] {
  return codeOf(markdown).flatMap((code) => {
    const whole = code.replaceAll(/\$\([^)]*\)|\$\w+/g, "VALUE");
    return [...whole.matchAll(PROGRAM_REGEXP)].map(([, words = ""]) =>
      argumentsOf(words.replace(/\s[12]?>.*$/, ""))
    );
  });
}

/**
 * Arguments of each distinct kubectl command in a Markdown text, as a shell would pass them. Commands without an object, as
 * `get -o yaml`, are mere names, and left out.
 */
export function kubectlCommands(markdown: string): string[][] {
  return commandsOf("kubectl", markdown).filter((words) =>
    !/^[a-z-]+(?: -.*)?$/.test(words) || words.includes("-k")
  ).map(argumentsOf);
}

/** Likewise for Helm; commands of one word are mere names, and left out. */
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

/** Files and folders that Deno commands in a Markdown text name, relative to the project's folder. */
export function pathsOfDenoCommands(markdown: string): string[] {
  return codeOf(markdown).flatMap((code) =>
    [...code.matchAll(/\bdeno (?:test|run|doc|check|bench) ([^#;&|]+)/g)].flatMap(([, words = ""]) =>
      words.split(/\s+/).filter((word) => /^(?:lib|tests|tools|links|docs)\b|^\w+\.ts$/.test(word))
    )
  );
}

/** Deno tasks that a text names. */
export function tasksIn(text: string): string[] {
  return [...text.matchAll(TASK_REGEXP)].map(([, task = ""]) => task);
}
