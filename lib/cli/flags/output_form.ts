/**
 * In which form a command prints: `--output` has other values for commands that write YAML than for those that write text.
 *
 * @module
 */
import type { ParsedFlags } from "./parse_args.ts";

/** The form that was asked for, which is one that the command has; `usual` without one. */
export function outputForm<Usual extends "yaml" | "text">(flags: ParsedFlags, usual: Usual): Usual | "json" {
  return flags.get("output") === "json" ? "json" : usual;
}
