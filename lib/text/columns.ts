/**
 * Text in columns, by the width that a terminal gives it.
 *
 * @module
 */
import { unicodeWidth } from "@std/cli/unicode-width";

const GAP = "  ";

/** The text with spaces behind it, `width` columns wide; one that is wider stays as it is. */
export function padToWidth(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - unicodeWidth(text)));
}

/** As much of the text as fits into `width` columns. */
export function cutToWidth(text: string, width: number): string {
  let cut = "";
  let left = width;
  for (const character of text) {
    left -= unicodeWidth(character);
    if (left < 0) break;
    cut += character;
  }
  return cut;
}

/** A cell that is wider counts for no column: one long name must not widen the rows of 10,000 others. */
const WIDEST = 200;

/** One line for each row, its cells under those of the row before; no line ends with spaces. */
export function alignColumns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) {
      const width = unicodeWidth(cell);
      if (width <= WIDEST) widths[column] = Math.max(widths[column] ?? 0, width);
    }
  }
  return rows.map((row) =>
    row.map((cell, column) => padToWidth(cell, widths[column] ?? 0)).join(GAP).trimEnd()
  );
}

/** The text's words in lines of at most `width` columns; a longer word has a line of its own. */
export function wrapWords(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && unicodeWidth(line) + 1 + unicodeWidth(word) > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return line === "" ? lines : [...lines, line];
}
