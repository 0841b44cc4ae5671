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
