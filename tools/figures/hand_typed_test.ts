/**
 * Measured figures that are typed by hand: the documentation has them from records only.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ROOT } from "../project_files.ts";

/** Bounds that kproxy keeps to, and times that it waits: no measurements, and with a fraction all the same. */
const BOUNDS: Readonly<Record<string, readonly string[]>> = {
  "docs/reliability.md": [
    "2.5 s for blank lines",
    "and 1.5 s for YAML",
    "takes no more than 100 ms of processor time",
  ],
  "docs/sources.md": [
    "again after 0.8 to 1.6 s without",
    "again within 0.8 s, at a random",
    "tries again after 0.8 s, then",
  ],
};

Deno.test("measured figures in README and docs come from records, none is typed by hand", async () => {
  const found: string[] = [];
  const files = ["README.md"];
  for await (const { name } of Deno.readDir(`${ROOT}/docs`)) {
    if (name.endsWith(".md")) files.push(`docs/${name}`);
  }
  // Transcripts are what programs print.
  for (const file of files.filter((file) => file !== "docs/transcripts.md").sort()) {
    const text = await Deno.readTextFile(`${ROOT}/${file}`);
    const words = handTypedFigures(text).filter((words) =>
      !BOUNDS[file]?.some((bound) => words.includes(bound))
    );
    found.push(...words.map((words) => `${file}: ${words}`));
  }
  assertEquals(found, []);
  assertEquals(handTypedFigures("A change takes 4.2 ms.").length > 0, true);
});

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
function handTypedFigures(markdown: string): string[] {
  const text = prose(markdown);
  return MEASURED.flatMap((pattern) =>
    Array.from(
      text.matchAll(pattern),
      ({ index, 0: found }) =>
        text.slice(Math.max(0, index - 40), index + found.length + 20).replaceAll("\n", " ").trim(),
    )
  );
}
