/**
 * The words of a line of `iptables-save` or `iptables-restore`.
 *
 * @module
 */

/**
 * Splits a line into words the way `iptables-restore` does: blanks separate, double quotes group, a backslash escapes
 * only inside quotes, a closing quote ends the word.
 *
 * @throws {SyntaxError} if a quote is not closed
 */
export function splitWords(line: string): string[] {
  // Nearly every line of a ruleset has no escapes, and this is the hot path of reading back 100,000 rules.
  if (!line.includes('"')) return line.split(/[ \t]+/).filter((word) => word !== "");
  const words: string[] = [];
  let word = "";
  let started = false;
  let quoted = false;
  const finish = () => {
    if (started) words.push(word);
    word = "";
    started = false;
  };
  for (let i = 0; i < line.length; i++) {
    const char = line.charAt(i);
    if (quoted) {
      if (char === '"') {
        quoted = false;
        finish();
      } else if (char === "\\" && i + 1 < line.length) {
        word += line.charAt(++i);
      } else {
        word += char;
      }
    } else if (char === '"') {
      quoted = true;
      started = true;
    } else if (char === " " || char === "\t") {
      finish();
    } else {
      word += char;
      started = true;
    }
  }
  if (quoted) throw new SyntaxError(`Quote is not closed in "${line}"`);
  finish();
  return words;
}

/** Yields the word as a restore line needs it: bare if it can be, else in double quotes. */
export function quoteWord(word: string): string {
  if (word !== "" && !/[\s"\\]/.test(word)) return word;
  return `"${word.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
