/**
 * What commands tell alike: warnings.
 *
 * @module
 */
import { type EffectiveConfiguration, effectiveConfiguration } from "../flags/configuration.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";

/** Tells of what is doubtful, each sentence once. */
export function warningOnce(io: Pick<Io, "err">): (sentence: string) => void {
  const told = new Set<string>();
  return (sentence) => {
    if (!told.has(sentence)) io.err(`Warning: ${sentence}\n`);
    told.add(sentence);
  };
}

/** The configuration that these flags stand for, whose warnings are told; `warn` tells of more. */
export async function toldConfiguration(
  flags: ParsedFlags,
  io: Pick<Io, "err">,
): Promise<Pick<EffectiveConfiguration, "config"> & { readonly warn: (sentence: string) => void }> {
  const { config, warnings } = await effectiveConfiguration(flags);
  const warn = warningOnce(io);
  warnings.forEach(warn);
  return { config, warn };
}
