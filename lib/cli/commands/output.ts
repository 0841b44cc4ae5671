/**
 * Output that commands share: warnings, objects that were refused, and results, in the form that was asked for.
 *
 * @module
 */
import type { UnservedDestination } from "../../model/destination_claims.ts";
import type { Rejection } from "../../source/source.ts";
import { type EffectiveConfiguration, effectiveConfiguration } from "../flags/configuration.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { type Io, printableJson, reportLine } from "../io.ts";
import { counted } from "../../text/words.ts";

/** Yields a function that prints warnings, each sentence once. */
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

/** Prints objects that were refused; the others count. */
export function printRejected(rejected: readonly Rejection[], io: Pick<Io, "err">): void {
  for (const { where, object, message } of rejected) io.err(`Error: ${where}: ${object}: ${message}\n`);
}

const MOST_UNSERVED = 10;

/** Warns of destinations that Services request and do not get, up to a limit: there may be thousands. */
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

/** Results of a command; only the form that is printed is made. */
export interface Found {
  /** Document for programs. */
  readonly document: () => unknown;
  /** Lines for people, without line ends. */
  readonly lines: () => readonly string[];
}

/** Prints results in the form that was asked for. */
export async function printFound(
  form: "text" | "json",
  { document, lines }: Found,
  io: Pick<Io, "out">,
): Promise<void> {
  await io.out(
    form === "json" ? `${printableJson(document())}\n` : lines().map(reportLine).join(""),
  );
}
