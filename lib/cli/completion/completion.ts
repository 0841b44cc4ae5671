/**
 * `kproxy completion bash|zsh|fish`.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { bashCompletion } from "./completion_bash.ts";
import { fishCompletion } from "./completion_fish.ts";
import { type Shell, SHELLS } from "./completion_words.ts";
import { zshCompletion } from "./completion_zsh.ts";
import type { Io } from "../io.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { didYouMean } from "../suggest.ts";

const SCRIPTS: Readonly<Record<Shell, () => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/**
 * Prints the completion script of the shell named.
 *
 * @throws {UsageError} if no shell is named, or one without a script
 */
export async function completionCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const [named] = flags.operands;
  if (named === undefined) throw new UsageError(`Name a shell: kproxy completion ${SHELLS.join("|")}`);
  const shell = SHELLS.find((name) => name === named);
  if (shell === undefined) {
    throw new UsageError(
      `No completion for the shell "${named}": want ${SHELLS.join(", ")}${didYouMean(named, SHELLS)}`,
    );
  }
  await io.out(SCRIPTS[shell]());
  return 0;
}
