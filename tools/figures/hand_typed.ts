/**
 * Measured figures that are typed by hand: the documentation has them from records only.
 *
 * @module
 */

/** What only a measurement says: times and sizes with a fraction, shares of a processor, ratios, statistics, and the load they were made at. */
const MEASURED: readonly RegExp[] = [
  /\d\.\d+(?: \/ [\d.]+| · [\d.]+)* (?:ms|µs|s|[kKMG]B(?:\/s)?|×)(?!\w)/g,
  /\d ?µs(?!\w)/g,
  /\d [kKMG]B\/s(?!\w)/g,
  /\bp(?:50|95|99)\b/g,
  /\d(?:\.\d+)? % of a (?:core|CPU|processor)/g,
  /\d [kKMG]B (?:more|less|of it|resident|anonymous)\b/g,
  /\d m?s of (?:CPU|processor)/g,
  /\bload (?:of )?\d/g,
  /\b(?:measured|took|takes|take) (?:were |was |about |some |only )*\d[\d.,]* ?(?:ms|s|[kKMG]B)(?!\w)/g,
];

/** Text without what is generated and without blocks of code, each paragraph on one line. */
function prose(markdown: string): string {
  return markdown
    .replaceAll(/<!-- ([\w-]+):begin -->[^]*?<!-- \1:end -->/g, "")
    .replaceAll(/^( *)```[^]*?^\1```$/gm, "")
    .replaceAll(/(\S)\n(?=\S| +\S)/g, "$1 ")
    .replaceAll(/ {2,}/g, " ");
}

/** Each such figure with some words around it. */
export function handTypedFigures(markdown: string): string[] {
  const text = prose(markdown);
  return MEASURED.flatMap((pattern) =>
    Array.from(
      text.matchAll(pattern),
      ({ index, 0: found }) =>
        text.slice(Math.max(0, index - 40), index + found.length + 20).replaceAll("\n", " ").trim(),
    )
  );
}
