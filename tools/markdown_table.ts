/** A table of Markdown. `isNumber` says which columns, from 0, stand on the right. */
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
