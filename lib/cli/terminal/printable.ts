/**
 * Text of others, made fit for a terminal.
 *
 * @module
 */

// deno-lint-ignore no-control-regex -- these are what a terminal would obey.
const CONTROLS = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** The text without what a terminal would obey instead of showing it, such as controls and changes of direction. */
export function printable(text: string): string {
  return text.replace(CONTROLS, "?");
}

/** Of one line so much is shown: a rule may be megabytes long. */
const LONGEST_LINE = 20_000;

/** A line of a report, likewise, and not longer than anybody reads; documents have all of it. */
export function reportLine(text: string): string {
  const shown = text.length <= LONGEST_LINE
    ? text
    : `${text.slice(0, LONGEST_LINE)}… (${text.length} characters)`;
  return `${printable(shown)}\n`;
}

/** Several lines likewise; they stay lines. */
export function printableLines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}

/** A document for programs, in which what a terminal would obey is escaped: programs read the same, and people look at it, too. */
export function printableJson(document: unknown, indent = 2): string {
  const escaped = (character: string): string =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  // Line ends are the document's own: those in texts are escaped before.
  return JSON.stringify(document, null, indent).replace(CONTROLS, (one) => one === "\n" ? one : escaped(one));
}
