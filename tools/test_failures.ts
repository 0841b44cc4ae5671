/**
 * What failed, from the output of `deno test`.
 *
 * @module
 */

/** The end of that output. */
export interface TestFailures {
  /** `name ... step => ./file_test.ts:1:6`, one for each test and step that failed. */
  readonly names: readonly string[];
  /** What each of them said, its name before it. */
  readonly errors: readonly string[];
  /** `FAILED | 1 passed | 2 failed (16ms)`; undefined if it never came to that. */
  readonly end: string | undefined;
}

// deno-lint-ignore no-control-regex -- colours begin with an escape character.
const COLOR = /\x1b\[[0-9;]*m/g;
/** Before each error. */
const HEADING = /\n+(?=\S.* => \.\/\S+:\d+:\d+\n)/;

/** @param output what `deno test` printed, with or without colours; the last run counts if there are several */
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

/** The text, or its beginning and its end if it is longer. */
export function withoutMiddle(text: string, length: number): string {
  if (text.length <= length) return text;
  const half = Math.floor(length / 2);
  return `${text.slice(0, half)}\n… ${text.length - 2 * half} characters …\n${text.slice(-half)}`;
}
