/**
 * The commands: how each is loaded, and its arguments besides flags. Their help texts are in `help.ts`.
 *
 * @module
 */
import { type CommandName, COMMANDS } from "../config/setting.ts";
import type { ParsedFlags } from "./flags/parse_args.ts";
import type { Io } from "./io.ts";

/** Carries out one command; resolves to the exit code. */
export type Command = (flags: ParsedFlags, io: Io) => Promise<number>;

/** The shells there are completion scripts for. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

interface CommandEntry {
  /** Loads the command when it is called, so that `kproxy version` does not load the API client. */
  readonly load: () => Promise<Command>;
  /** Most arguments that it takes. @default {0} */
  readonly most?: number;
  /** Name of the arguments in messages. */
  readonly operands?: string;
  /** Words that completion offers for the arguments, or files with an ending of a configuration. */
  readonly offers?: readonly string[] | "files";
  /** The command programs the kernel, or reads it whatever its flags. */
  readonly needsLinux?: true;
}

const TRACE: CommandEntry = {
  load: async () => (await import("./commands/trace.ts")).traceCommand,
  most: 2,
  operands: "SRC and DST:PORT",
  offers: ["local", "world"],
};
const CHECK: CommandEntry = { load: async () => (await import("./commands/check.ts")).checkCommand };

/** The commands by name. */
export const COMMAND_ENTRIES: Readonly<Record<CommandName, CommandEntry>> = {
  "run": { load: async () => (await import("./commands/start.ts")).startCommand, needsLinux: true },
  "write-config": {
    load: async () => (await import("./commands/write_config.ts")).writeConfigCommand,
    most: 1,
    operands: "FILE",
    offers: "files",
  },
  "cleanup": { load: async () => (await import("./commands/cleanup.ts")).cleanupCommand, needsLinux: true },
  "render": { load: async () => (await import("./commands/render.ts")).renderCommand },
  "status": { load: async () => (await import("./commands/status.ts")).statusCommand },
  "trace": TRACE,
  "explain": TRACE,
  "service": {
    load: async () => (await import("./commands/service.ts")).serviceCommand,
    most: 2,
    operands: "list, or get and NAMESPACE/NAME",
    offers: ["list", "get"],
  },
  "check": CHECK,
  "diff": CHECK,
  "doctor": { load: async () => (await import("./commands/doctor.ts")).doctorCommand, needsLinux: true },
  "selftest": {
    load: async () => (await import("./commands/selftest.ts")).selftestCommand,
    most: 1,
    operands: "",
    needsLinux: true,
  },
  "sysdump": {
    load: async () => (await import("./commands/sysdump.ts")).sysdumpCommand,
    most: 1,
    operands: "FILE",
    offers: "files",
    needsLinux: true,
  },
  "version": { load: async () => (await import("./commands/version.ts")).versionCommand },
  "help": {
    load: async () => (await import("./help.ts")).helpCommand,
    most: 1,
    operands: "COMMAND",
    offers: COMMANDS,
  },
  "completion": {
    load: async () => (await import("./completion.ts")).completionCommand,
    most: 1,
    operands: SHELLS.join("|"),
    offers: SHELLS,
  },
};
