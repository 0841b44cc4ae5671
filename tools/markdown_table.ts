/** A Markdown table. `isNumber` selects the columns, from 0, that are right-aligned. */
export function markdownTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  isNumber: (column: number) => boolean = () => false,
): string {
  const rule = head.map((_, column) => isNumber(column) ? "--:" : "---");
  return [head, rule, ...rows].map((cells) =>
    `| ${cells.map((cell) => cell.replaceAll(/(?<!\\)\|/g, "\\|")).join(" | ")} |`
  ).join("\n");
}
