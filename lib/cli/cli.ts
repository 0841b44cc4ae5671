/**
 * Runs a command line, from its arguments to an exit code.
 *
 * @module
 */
import { ConfigError, formatProblem, UnsupportedError, UsageError } from "../errors.ts";
import { errorText } from "../observe/log.ts";
import { COMMAND_ENTRIES } from "./commands.ts";
import { flagByName } from "./flags/flags.ts";
import { parseArgs, type ParsedFlags } from "./flags/parse_args.ts";
import { type Io, OutputClosedError } from "./io.ts";
import { missingPackageText } from "./missing_packages.ts";

/**
 * Runs kproxy with these arguments.
 *
 * @param os the system it runs on
 * @returns the exit code: 0 all is well, 1 failure, 2 wrong use or configuration
 * @throws {Error} if a package is missing, as `start.ts` expects it
 */
export async function runCli(
  argv: readonly string[],
  io: Io,
  os: string = Deno.build.os,
): Promise<number> {
  try {
    const flags = parseArgs(argv);
    for (const warning of flags.warnings) io.err(`${warning}\n`);
    const version = flags.get("version") ?? "false";
    if (flags.get("help") === true) return await (await import("./help.ts")).printHelp(flags.command, io);
    if (version === "true" || version === "raw") {
      return await (await import("./commands/version.ts")).printVersion(version, io);
    }
    refuseOutsideLinux(flags, os);
    const command = await COMMAND_ENTRIES[flags.command].load();
    return await command(flags, io);
  } catch (error) {
    // `start.ts` names the package and what helps.
    if (missingPackageText(error, "") !== undefined) throw error;
    return reportError(error, io);
  }
}

/** Prints an error once; yields the exit code. */
function reportError(error: unknown, io: Io): number {
  // As with `kproxy render | head`. Other pipes that break are failures.
  if (error instanceof OutputClosedError) return 0;
  if (error instanceof ConfigError) {
    for (const problem of error.problems) io.err(`Error: ${formatProblem(problem, error.file)}\n`);
    return 2;
  }
  io.err(`Error: ${errorText(error)}\n`);
  return error instanceof UsageError ? 2 : 1;
}

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
function refuseOutsideLinux(flags: ParsedFlags, os: string): void {
  if (os === "linux") return;
  const { command } = flags;
  const found = NAMES[os] ?? os;
  const refusal = (what: string, instead: string): UnsupportedError =>
    new UnsupportedError(what, "Linux", found, {
      message: `"kproxy ${command}" ${what} Linux, and this is ${found}: ${instead}`,
    });
  // With --write-config-to, `run` runs nothing.
  const onlyWrites = command === "run" && (flags.get("write-config-to") ?? "") !== "";
  if (COMMAND_ENTRIES[command].needsLinux && !onlyWrites) {
    throw refusal("needs", "render, trace --no-live, service --no-live and write-config work here");
  }
  // Commands with --live-from ask the kernel unless the flags give them something else.
  const takes = (name: string): boolean => flagByName(name)?.commands.includes(command) === true;
  const looksHere = flags.get("no-live") !== true && (flags.get("live-from") ?? []).length === 0;
  if (takes("live-from") && looksHere) {
    const other = takes("no-live") ? "--no-live, or " : "";
    throw refusal(
      "reads the rules of",
      `give it ${other}--live-from FILE with what the tools of a node printed`,
    );
  }
}
