/**
 * What the completion scripts of all shells offer, from the list of flags.
 *
 * @module
 */
import { type CommandName, COMMANDS } from "../../config/setting.ts";
import { valuesOf } from "../flags/flag.ts";
import { FLAGS } from "../flags/flags.ts";

/** The shells there are scripts for. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

export type Shell = typeof SHELLS[number];

/** A flag as a completion sees it. */
export interface CompletedFlag {
  readonly name: string;
  readonly short: string | undefined;
  readonly doc: string;
  /** False for switches, which may stand alone. */
  readonly wantsValue: boolean;
  /** True for a switch that only `=false` changes. */
  readonly isOnByDefault: boolean;
  readonly repeatable: boolean;
  readonly values: readonly string[];
  /** Endings of the files it takes; empty for any file; undefined if it takes no file. */
  readonly endings: readonly string[] | undefined;
}

/** The words a command takes besides flags. */
export const OPERAND_WORDS: ReadonlyMap<CommandName, readonly string[]> = new Map<
  CommandName,
  readonly string[]
>([
  ["help", COMMANDS],
  ["completion", SHELLS],
  ["service", ["list", "get"]],
  ["trace", ["local", "world"]],
  ["explain", ["local", "world"]],
]);

/** Commands that take a file besides flags. */
export const FILE_OPERANDS: readonly CommandName[] = ["write-config", "sysdump"];

/** The current flags of a command (of all commands for undefined); deprecated ones are not offered. */
export function completedFlags(command: CommandName | undefined): readonly CompletedFlag[] {
  return FLAGS.filter((flag) =>
    flag.note === undefined && (command === undefined || flag.commands.includes(command))
  ).map((flag) => {
    const isSwitch = flag.kind === "bool";
    return {
      name: flag.name,
      short: flag.short,
      doc: flag.doc,
      wantsValue: !isSwitch && flag.kind !== "version",
      isOnByDefault: isSwitch && flag.default === "true",
      repeatable: ["list", "paths", "gates", "vmodule"].includes(flag.kind),
      values: isSwitch ? ["true", "false"] : valuesOf(flag, command) ?? [],
      endings: flag.files,
    };
  });
}
