/**
 * Runs a command line, from its arguments to an exit code.
 *
 * @module
 */
import { type CommandName, COMMANDS } from "../config/setting.ts";
import { ConfigError, formatProblem, UnsupportedError, UsageError } from "../errors.ts";
import { errorText } from "../observe/log.ts";
import { flagByName } from "./flags/flags.ts";
import { parseArgs, type ParsedFlags } from "./flags/parse_args.ts";
import { type Io, OutputClosedError } from "./io.ts";
import { didYouMean } from "../config/suggest.ts";

/** Carries out one command; resolves to the exit code. */
export type Command = (flags: ParsedFlags, io: Io) => Promise<number>;

/** Each command is loaded when it is called, so that `kproxy version` does not load the API client. */
const LOADERS: Readonly<Record<CommandName, () => Promise<Command>>> = {
  "run": async () => (await import("./commands/start.ts")).startCommand,
  "write-config": async () => (await import("./commands/write_config.ts")).writeConfigCommand,
  "cleanup": async () => (await import("./commands/cleanup.ts")).cleanupCommand,
  "render": async () => (await import("./commands/render.ts")).renderCommand,
  "status": async () => (await import("./commands/status.ts")).statusCommand,
  "trace": async () => (await import("./commands/trace.ts")).traceCommand,
  "explain": async () => (await import("./commands/trace.ts")).traceCommand,
  "service": async () => (await import("./commands/service.ts")).serviceCommand,
  "check": async () => (await import("./commands/check.ts")).checkCommand,
  "diff": async () => (await import("./commands/check.ts")).checkCommand,
  "doctor": async () => (await import("./commands/doctor.ts")).doctorCommand,
  "selftest": async () => (await import("./commands/selftest.ts")).selftestCommand,
  "sysdump": async () => (await import("./commands/sysdump.ts")).sysdumpCommand,
  "version": async () => (await import("./commands/version.ts")).versionCommand,
  "help": () => Promise.resolve(helpCommand),
  "completion": async () => (await import("./completion.ts")).completionCommand,
};

/**
 * Runs kproxy with these arguments.
 *
 * @param os the system it runs on
 * @returns the exit code: 0 all is well, 1 failure, 2 wrong use or configuration
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
    if (flags.get("help") === true) {
      return await printHelp(flags.command === "help" ? undefined : flags.command, io);
    }
    if (version === "true" || version === "raw") return await printVersion(version, io);
    refuseOutsideLinux(flags, os);
    const command = await LOADERS[flags.command]();
    return await command(flags, io);
  } catch (error) {
    return reportError(error, io);
  }
}

async function printHelp(command: CommandName | undefined, io: Io): Promise<number> {
  const { commandHelp, programHelp } = await import("./help.ts");
  await io.out(command === undefined ? programHelp() : commandHelp(command));
  return 0;
}

function helpCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const [named] = flags.operands;
  if (named === undefined) return printHelp(undefined, io);
  const command = COMMANDS.find((name) => name === named);
  if (command === undefined) throw new UsageError(`Unknown command "${named}"${didYouMean(named, COMMANDS)}`);
  return printHelp(command, io);
}

async function printVersion(form: "true" | "raw", io: Io): Promise<number> {
  return await (await import("./commands/version.ts")).printVersion(form, io);
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

/** Commands that program the kernel, or read it with any flags. */
const NODE_COMMANDS: readonly CommandName[] = ["run", "cleanup", "doctor", "selftest", "sysdump"];
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
  if (NODE_COMMANDS.includes(command) && !onlyWrites) {
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
