/**
 * Finds the input lines that an iptables-restore failure is about.
 *
 * @module
 */

const CONTEXT_LINES = 3;

// `line 7 failed` (parser) · `line 7: RULE_APPEND failed (…)` (kernel, nft variant) · `Error occurred at line: 7` · `COMMIT expected at line 7`
const LINE_REGEXP = /line:? (\d+)/g;
const SHOWN_REGEXP = /^[> ] \d+: /;

/** 1-based number of the input line that failed, or null if the program does not say. */
export function failedLine(stderr: string): number | null {
  return failedLines(stderr)[0] ?? null;
}

/**
 * The numbers of all input lines that failed, as far as the program says; the kernel of the nft variant complains of each.
 *
 * @param stderr of the program, or as {@linkcode describeRestoreFailure} wrote it
 */
export function failedLines(stderr: string): readonly number[] {
  const words = stderr.split("\n").filter((line) => !SHOWN_REGEXP.test(line)).join("\n");
  return Array.from(words.matchAll(LINE_REGEXP), ([, line]) => Number(line));
}

/**
 * The failure as one line, then the input lines around the one that failed, each with its number. Without a line
 * number the text of the program alone.
 */
export function describeRestoreFailure(stderr: string, input: string): string {
  const words = stderr.split("\n").map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("Try `"));
  const summary = words.join(" ");
  const line = failedLine(stderr);
  if (line === null) return summary;
  const around = linesAround(input, line);
  return around === "" ? summary : `${summary}\n${around}`;
}

/** Lines `line` − 3 to `line` + 3 of `input`, numbered, the one in question marked. */
function linesAround(input: string, line: number): string {
  const lines = input.replace(/\n$/, "").split("\n");
  const first = Math.max(1, line - CONTEXT_LINES);
  return lines.slice(first - 1, line + CONTEXT_LINES)
    .map((text, i) => `${first + i === line ? ">" : " "} ${first + i}: ${text}`)
    .join("\n");
}
