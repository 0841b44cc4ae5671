/**
 * What the commands that look at the node read from their flags.
 *
 * @module
 */
import type { LookOptions } from "../../inspect/look.ts";
import { systemExec } from "../../kernel/exec.ts";
import { effectiveConfiguration } from "../flags/configuration.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";

/** What to look at, and who hears of what is doubtful: each sentence once. */
export interface Looking {
  readonly options: LookOptions;
  readonly warn: (sentence: string) => void;
}

/** @throws {ConfigError} with everything that is wrong with the file, or with the flags */
export async function lookingOf(flags: ParsedFlags, io: Io): Promise<Looking> {
  const { config, warnings } = await effectiveConfiguration(flags);
  const said = new Set<string>();
  const warn = (sentence: string): void => {
    if (!said.has(sentence)) io.err(`Warning: ${sentence}\n`);
    said.add(sentence);
  };
  warnings.forEach(warn);
  const master = flags.get("master") ?? "";
  const options: LookOptions = {
    config,
    master,
    isModeNamed: flags.get("proxy-mode") !== undefined || (flags.get("config") ?? "") !== "",
    isSourceNamed: master !== "" || flags.get("kubeconfig") !== undefined,
    exec: systemExec,
    askRunning: async (...question) => {
      const { askRunning } = await import("../../inspect/running_objects.ts");
      return await askRunning(...question);
    },
    report: warn,
    wantsDesired: flags.get("no-desired") !== true,
    wantsLive: flags.get("no-live") !== true,
    liveFrom: flags.get("live-from") ?? [],
  };
  return { options, warn };
}
