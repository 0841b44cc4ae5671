/**
 * Words in a sentence, and times.
 *
 * @module
 */

/** `1 Service`, `2 Services`. */
export function counted(count: number, word: string): string {
  return count === 1 ? `1 ${word}` : `${count} ${word}s`;
}

/** `a`, `a or b`, `a, b or c`. */
export function oneOf(words: readonly string[]): string {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/** The first names, and how many others there are, so that a line stays one line: `a, b, c and 4 others`. */
export function few(names: readonly string[], most = 3): string {
  const rest = names.length - most;
  if (rest <= 1) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${rest} others`;
}

/** A time as RFC 3339, in UTC and to the millisecond. */
export function isoTime(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
