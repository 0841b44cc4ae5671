/**
 * Which commands need the kernel of a node, and so Linux.
 *
 * @module
 */
import { UnsupportedError } from "../errors.ts";
import type { CommandName } from "../config/setting.ts";
import type { ParsedFlags } from "./flags/parse_args.ts";

/** They program the kernel, or ask it whatever the flags are. */
const NODE_COMMANDS: readonly CommandName[] = ["run", "cleanup", "doctor", "selftest", "sysdump"];
/** They ask the kernel unless the flags give them something else, and how to do that. */
const LOOKING_COMMANDS: ReadonlyMap<CommandName, string> = new Map<CommandName, string>([
  ["trace", "give it --no-live, or --live-from FILE with what the tools of a node printed"],
  ["explain", "give it --no-live, or --live-from FILE with what the tools of a node printed"],
  ["service", "give it --no-live, or --live-from FILE with what the tools of a node printed"],
  ["check", "give it --live-from FILE with what the tools of a node printed"],
  ["diff", "give it --live-from FILE with what the tools of a node printed"],
]);
const NAMES: Readonly<Record<string, string>> = {
  darwin: "macOS",
  freebsd: "FreeBSD",
  netbsd: "NetBSD",
  windows: "Windows",
};

/**
 * Refuses a command that needs Linux on another system.
 *
 * @param os as `Deno.build.os` names it
 * @throws {UnsupportedError} with what works instead
 */
export function refuseOutsideLinux(flags: ParsedFlags, os: string): void {
  if (os === "linux") return;
  const { command } = flags;
  const found = NAMES[os] ?? os;
  const refusal = (what: string, instead: string): UnsupportedError =>
    new UnsupportedError(what, "Linux", found, {
      message: `"kproxy ${command}" ${what} Linux, and this is ${found}: ${instead}`,
    });
  // Then nothing is run.
  const onlyWrites = command === "run" && (flags.get("write-config-to") ?? "") !== "";
  if (NODE_COMMANDS.includes(command) && !onlyWrites) {
    throw refusal("needs", "render, trace --no-live, service --no-live and write-config work here");
  }
  const instead = LOOKING_COMMANDS.get(command);
  const looksHere = flags.get("no-live") !== true && (flags.get("live-from") ?? []).length === 0;
  if (instead !== undefined && looksHere) throw refusal("reads the rules of", instead);
}
