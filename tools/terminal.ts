/**
 * The terminal on which the tasks of the project show what they are doing.
 *
 * @module
 */
import { type Terminal, terminalOf } from "../lib/cli/io.ts";

/** Standard error if it is a terminal that can be drawn on, with `TERM` and the locale honoured; null elsewhere. */
export function errorTerminal(
  stream: Pick<typeof Deno.stderr, "isTerminal" | "writeSync"> = Deno.stderr,
  env: (name: string) => string | undefined = (name) => Deno.env.get(name),
): Terminal | null {
  return env("TERM") === "dumb" ? null : terminalOf(stream, { hasUnicode: isUnicodeLocale(env) });
}

/** Whether the locale's characters are more than ASCII. */
function isUnicodeLocale(
  env: (name: string) => string | undefined = (name) => Deno.env.get(name),
): boolean {
  const locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(env).find((value) => value !== undefined && value !== "");
  return /utf-?8/i.test(locale ?? "");
}
