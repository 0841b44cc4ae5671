import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import {
  CHART_FILE,
  chartSvg,
  type Figure,
  figuresMarkdown,
  measuredFigures,
  parseFigures,
} from "./figures.ts";
import { contrastOf } from "./charts/contrast.ts";
import { ROOT } from "./project_files.ts";

const PAGE = `# Benchmarks

# iptables mode

## 1,000 Services × 10 endpoints

|                                             | kproxy         | bare program   | ratio  |
| ------------------------------------------- | -------------- | -------------- | ------ |
| first sync, median of 7                     | 0.80 s         | 0.32 s         | 2.51 × |
| one endpoint replaced, p50 / p99, 100 times | 16.5 / 31.3 ms | 14.3 / 20.7 ms | 1.16 × |

## Read against the budgets

- Kept.

# nftables mode

| size       | first sync               | endpoint replaced p50         | p99          |
| ---------- | ------------------------ | ----------------------------- | ------------ |
| 44,000 × 1 | 3.58 s / 1.53 s (2.33 ×) | 3.1 / 2.8 ms (1.10 ×), of 60  | 6.7 / 5.7 ms |

# ipvs mode

## 1,000 Services × 10 endpoints
`;

const FIGURES: readonly Figure[] = [
  {
    mode: "iptables",
    size: "1,000 × 10",
    firstSync: { kproxy: "0.80", bare: "0.32" },
    replaced: { kproxy: "16.5", bare: "14.3" },
  },
  {
    mode: "nftables",
    size: "44,000 × 1",
    firstSync: { kproxy: "3.58", bare: "1.53" },
    replaced: { kproxy: "3.1", bare: "2.8" },
  },
];

Deno.test("figures are read as they were measured", { permissions: "none" }, () => {
  assertEquals(parseFigures(PAGE), [...FIGURES]);
});

Deno.test("a figure that is missing is told, not left out", { permissions: "none" }, () => {
  const cases: readonly (readonly [string, string, string])[] = [
    ["| first sync, median", "| first, median", "at 1,000 × 10"],
    ["| one endpoint replaced,", "| an endpoint,", "at 1,000 × 10"],
    ["| 44,000 × 1 | 3.58 s", "| 44,000 × 1 | 3.58", "lacks figures"],
    ["# nftables mode", "# nft", "nftables mode"],
    ["# iptables mode\n", "# others\n", "iptables mode"],
  ];
  for (const [text, instead, message] of cases) {
    assert(PAGE.includes(text));
    assertThrows(() => parseFigures(PAGE.replace(text, instead)), SyntaxError, message);
  }
});

Deno.test("the chart has a bar and its number for each figure, to scale", { permissions: "none" }, () => {
  const svg = chartSvg(FIGURES);
  const widths = [...svg.matchAll(/<rect class="(?:kproxy|bare)" x="190"[^>]* width="([\d.]+)"/g)].map((
    match,
  ) => Number(match[1]));
  assertEquals(widths, [500, 433.3, 93.9, 84.8]);
  for (const { mode, size, replaced } of FIGURES) {
    assertStringIncludes(svg, `>${mode}, ${size}<`);
    assertStringIncludes(svg, `>${replaced.kproxy}<`);
    assertStringIncludes(svg, `>${replaced.bare}<`);
  }
  assertStringIncludes(svg, "kproxy 16.5 ms, the bare tool 14.3 ms; ");
});

Deno.test(
  "the chart needs nothing from elsewhere and follows the reader's theme",
  { permissions: "none" },
  () => {
    const svg = chartSvg(FIGURES);
    assertEquals([...svg.matchAll(/https?:[^"]*/g)].map(([url]) => url), ["http://www.w3.org/2000/svg"]);
    assertEquals(/@import|@font-face|href|url\(|<script|<image/.test(svg), false);
    const [light = "", dark = ""] = svg.split("@media (prefers-color-scheme: dark)");
    for (const theme of [light, dark]) {
      const fill = (name: string): string =>
        new RegExp(`${name} \\{[^}]*fill: (#\\w{6})`).exec(theme)?.[1] ?? "";
      // WCAG: 4.5 for text, 3 for what is no text.
      for (const [what, least] of [["text", 4.5], [".kproxy", 3], [".bare", 3]] as const) {
        const contrast = contrastOf(fill(what), fill(".ground"));
        assert(contrast >= least, `${what}: ${contrast}`);
      }
    }
  },
);

Deno.test("the README shows the chart and the measured figures, and none of its own", async () => {
  const readme = await Deno.readTextFile(`${ROOT}/README.md`);
  const benchmarks = await Deno.readTextFile(`${ROOT}/docs/benchmarks.md`);
  assertStringIncludes(readme, `](${CHART_FILE})`);
  assertStringIncludes(readme, figuresMarkdown());
  assertEquals(await Deno.readTextFile(`${ROOT}/${CHART_FILE}`), chartSvg());
  assert(measuredFigures().length >= 6);
  // What stands below the table in words.
  const words = /<!-- figures:end -->\n\n(.*?)\n\n/s.exec(readme)?.[1]?.replaceAll("\n", " ") ?? "";
  const numbers = words.match(/[\d,.]*\d/g) ?? [];
  assert(numbers.length >= 4, words);
  assertEquals(
    numbers.filter((number) => !new RegExp(`\\b${RegExp.escape(number)}\\b`).test(benchmarks)),
    [],
  );
});

Deno.test("the README's test command stands on a line of its own, where CI looks for it", async () => {
  const readme = await Deno.readTextFile(`${ROOT}/README.md`);
  assertEquals(readme.match(/^npx -y deno@[0-9.]+ task test$/gm), ["npx -y deno@2.9.6 task test"]);
});
