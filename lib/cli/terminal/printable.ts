/**
 * Text of others, made fit for a terminal.
 *
 * @module
 */

import { cut, escaped, escapedJson } from "../../text/quote.ts";

/** Of one line so much is shown: a rule may be megabytes long. */
const LONGEST_LINE = 20_000;

/** A line of a report, likewise, and not longer than anybody reads; documents have all of it. */
export function reportLine(text: string): string {
  return `${escaped(cut(text, LONGEST_LINE))}\n`;
}

/** Several lines likewise; they stay lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(escaped).join("\n");
}

/** A document for programs, in which what a terminal would obey is escaped: programs read the same, and people look at it, too. */
export function printableJson(document: unknown, indent = 2): string {
  return escapedJson(JSON.stringify(document, null, indent));
}
