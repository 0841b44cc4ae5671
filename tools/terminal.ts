/**
 * The terminal on which the tasks of the project show what they are doing.
 *
 * @module
 */
import { type Terminal, terminalOf } from "../lib/cli/io.ts";

/** Standard error if it is a terminal that can be drawn on, with `TERM` honoured; null elsewhere. */
export function errorTerminal(
  stream: Pick<typeof Deno.stderr, "isTerminal" | "writeSync"> = Deno.stderr,
  env: (name: string) => string | undefined = (name) => Deno.env.get(name),
): Terminal | null {
  return env("TERM") === "dumb" ? null : terminalOf(stream);
}
