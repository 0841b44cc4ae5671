/**
 * In which form a command prints: `--output` has other values for commands that write YAML than for those that write text.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import type { ParsedFlags } from "./parse_args.ts";

/**
 * The form that was asked for; `usual` without one.
 *
 * @throws {UsageError} for a form that the command does not have
 */
export function outputForm<Usual extends "yaml" | "text">(flags: ParsedFlags, usual: Usual): Usual | "json" {
  const form = flags.get("output") ?? "";
  if (form === "" || form === usual) return usual;
  if (form === "json") return form;
  throw new UsageError(`"kproxy ${flags.command}" prints ${usual} or json, not ${form}`);
}
