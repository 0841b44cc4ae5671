/**
 * Terminal for the progress of the project's tasks.
 *
 * @module
 */
import { type Terminal, terminalOf } from "../lib/cli/io.ts";

/** Standard error, if it is a terminal that supports drawing, by `TERM`; null otherwise. */
export function errorTerminal(
  stream: Pick<typeof Deno.stderr, "isTerminal" | "writeSync"> = Deno.stderr,
  env: (name: string) => string | undefined = (name) => Deno.env.get(name),
): Terminal | null {
  return env("TERM") === "dumb" ? null : terminalOf(stream);
}
