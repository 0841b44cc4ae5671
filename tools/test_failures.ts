/**
 * Failures in the output of `deno test`.
 *
 * @module
 */

/** Failed tests at the end of the output. */
export interface TestFailures {
  /** Name of each failed test and step: `name ... step => ./file_test.ts:1:6`. */
  readonly names: readonly string[];
  /** Output of each failure, with its name in front. */
  readonly errors: readonly string[];
  /** The last line, `FAILED | 1 passed | 2 failed (16ms)`; undefined if it is missing. */
  readonly end: string | undefined;
}

// deno-lint-ignore no-control-regex -- colours begin with an escape character.
const COLOR = /\x1b\[[0-9;]*m/g;
/** Separator before each error. */
const HEADING = /\n+(?=\S.* => \.\/\S+:\d+:\d+\n)/;

/** @param output of `deno test`, with or without colours; of several runs the last counts */
export function testFailures(output: string): TestFailures {
  const text = output.replace(COLOR, "");
  const [errors, failures] = [text.lastIndexOf("\n ERRORS \n"), text.lastIndexOf("\n FAILURES \n")];
  const end = text.split("\n").findLast((line) => /^(ok|FAILED) \| \d+ passed/.test(line));
  if (errors < 0 || failures < errors) return { names: [], errors: [], end };
  const body = (from: number, to?: number): string =>
    text.slice(text.indexOf(" \n", from + 2) + 2, to).trim();
  const after = /\n\n(?=FAILED \|)/.exec(text.slice(failures));
  const names = body(failures, after === null ? undefined : failures + after.index).split("\n");
  return { names: names.filter((name) => name !== ""), errors: body(errors, failures).split(HEADING), end };
}

/** The text, without its middle if it is longer than `length`. */
export function withoutMiddle(text: string, length: number): string {
  if (text.length <= length) return text;
  const half = Math.floor(length / 2);
  return `${text.slice(0, half)}\n… ${text.length - 2 * half} characters …\n${text.slice(-half)}`;
}
