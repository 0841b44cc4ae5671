/**
 * What commands print alike: warnings, objects that were refused, and what they found, in the form that was asked for.
 *
 * @module
 */
import type { UnservedDestination } from "../../model/destination_claims.ts";
import type { Rejection } from "../../source/source.ts";
import { type EffectiveConfiguration, effectiveConfiguration } from "../flags/configuration.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { type Io, printableJson, reportLine } from "../io.ts";
import { counted } from "../../text/words.ts";

/** Prints what is doubtful, each sentence once. */
function warningOnce(io: Pick<Io, "err">): (sentence: string) => void {
  const printed = new Set<string>();
  return (sentence) => {
    if (!printed.has(sentence)) io.err(`Warning: ${sentence}\n`);
    printed.add(sentence);
  };
}

/** The configuration that these flags stand for, whose warnings are printed; `warn` prints more. */
export async function configurationWithWarnings(
  flags: ParsedFlags,
  io: Pick<Io, "err">,
): Promise<Pick<EffectiveConfiguration, "config" | "file"> & { readonly warn: (sentence: string) => void }> {
  const { config, warnings, file } = await effectiveConfiguration(flags);
  const warn = warningOnce(io);
  warnings.forEach(warn);
  return { config, file, warn };
}

/** Objects that were refused; the others count. */
export function printRejected(rejected: readonly Rejection[], io: Pick<Io, "err">): void {
  for (const { where, object, message } of rejected) io.err(`Error: ${where}: ${object}: ${message}\n`);
}

const MOST_UNSERVED = 10;

/** Destinations that Services ask for and do not get: there may be thousands. */
export function warnUnserved(
  unserved: readonly UnservedDestination[],
  warn: (sentence: string) => void,
): void {
  for (const { service, destination, reason } of unserved.slice(0, MOST_UNSERVED)) {
    warn(`Service ${service} asks for ${destination} and does not get it: ${reason}`);
  }
  const more = unserved.length - MOST_UNSERVED;
  if (more > 0) {
    warn(`${counted(more, "more destination")} of Services: kproxy service list shows which and why`);
  }
}

/** What a command found, as far as it is wanted. */
export interface Found {
  /** For programs. */
  readonly document: () => unknown;
  /** For people, without line ends. */
  readonly lines: () => readonly string[];
}

/** Prints it in the form that was asked for. */
export async function printFound(
  form: "text" | "json",
  { document, lines }: Found,
  io: Pick<Io, "out">,
): Promise<void> {
  await io.out(
    form === "json" ? `${printableJson(document())}\n` : lines().map(reportLine).join(""),
  );
}
