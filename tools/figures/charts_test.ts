import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { contrastOf } from "../charts/contrast.ts";
import { apart } from "../charts/line_chart.ts";
import { ticksOf, yScaleOf } from "../charts/scale.ts";
import { ROOT } from "../project_files.ts";
import { proxyCharts } from "./charts.ts";
import { readRecords } from "./records.ts";
import { ROW } from "./record_case.ts";

Deno.test("scales end at round numbers and have their lines between them", { permissions: "none" }, () => {
  const log = yScaleOf("log", [0.07, 8.3], 100, 0);
  assertEquals(ticksOf(log), [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]);
  assertEquals([log.at(0.05), log.at(10), Math.round(log.at(Math.sqrt(0.5)))], [100, 0, 50]);
  const linear = yScaleOf("linear", [23, 251], 100, 0);
  assertEquals(ticksOf(linear), [0, 50, 100, 150, 200, 250, 300]);
  assertEquals([linear.at(0), linear.at(150), linear.at(300)], [100, 50, 0]);
  assertThrows(() => yScaleOf("log", [], 100, 0), RangeError);
  assertThrows(() => yScaleOf("log", [0, 1], 100, 0), RangeError);
});

Deno.test("names that would stand on each other move apart, and stay inside", { permissions: "none" }, () => {
  assertEquals(apart([20, 90], 0, 100), [20, 90]);
  assertEquals(apart([20, 24, 25], 0, 100), [20, 36, 52]);
  assertEquals(apart([95, 98, 120], 0, 100), [68, 84, 100]);
});

/** The markers of a chart, by what draws them. */
function markers(svg: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [, shape, kind] of svg.matchAll(/<(\w+) class="marker (\w+)"/g)) {
    counts[`${shape} ${kind}`] = (counts[`${shape} ${kind}`] ?? 0) + 1;
  }
  return counts;
}

Deno.test("each proxy has a marker of its own at each measured size, and its name and last value", {
  permissions: "none",
}, () => {
  const large = { ...ROW, services: 5000, kubeProxy: "more than 60 s" };
  const charts = proxyCharts([{ ...ROW, mode: "nftables" }, ROW, large]);
  const three = { "polygon bare": 3, "rect peer": 2, "circle kproxy": 3 };
  assertEquals(markers(charts.get("docs/first_sync.svg") ?? ""), three);
  assertEquals(markers(charts.get("docs/endpoint_replaced.svg") ?? ""), three);
  assertEquals(markers(charts.get("docs/memory.svg") ?? ""), { "rect peer": 4, "circle kproxy": 6 });
  assertStringIncludes(charts.get("docs/first_sync.svg") ?? "", `kube-proxy</tspan> 7.1 s<`);
  assertStringIncludes(charts.get("docs/endpoint_replaced.svg") ?? "", `kproxy</tspan> 13 ms<`);
  assertStringIncludes(charts.get("docs/memory.svg") ?? "", `kproxy, anonymous</tspan> 41 MB<`);
  // Those who see nothing of it are told the same.
  const [, told = ""] = /<desc[^>]*>([^<]*)</.exec(charts.get("docs/first_sync.svg") ?? "") ?? [];
  assertStringIncludes(told, "Mode nftables: bare tool 0.32 s at 1,000; kube-proxy 7.1 s at 1,000");
  assertEquals(proxyCharts([]).size, 0);
});

Deno.test("a higher value is a higher point", { permissions: "none" }, () => {
  const svg = proxyCharts([ROW]).get("docs/first_sync.svg") ?? "";
  const topOf = (kind: string): number =>
    Number(new RegExp(`<polyline class="${kind}" points="[\\d.]+,([\\d.]+)"`).exec(svg)?.[1]);
  assert(topOf("peer") < topOf("kproxy") && topOf("kproxy") < topOf("bare"), svg);
});

Deno.test(
  "the charts need nothing from elsewhere and follow the reader's theme",
  { permissions: "none" },
  () => {
    for (const svg of proxyCharts([ROW, { ...ROW, mode: "nftables" }]).values()) {
      assertEquals([...svg.matchAll(/https?:[^"]*/g)].map(([url]) => url), ["http://www.w3.org/2000/svg"]);
      assertEquals(/@import|@font-face|href|url\(|<script|<image/.test(svg), false);
      const [light = "", dark = ""] = svg.split("@media (prefers-color-scheme: dark)");
      for (const theme of [light, dark]) {
        const fill = (name: string): string =>
          new RegExp(`\\s${RegExp.escape(name)} \\{[^}]*fill: (#\\w{6})`).exec(theme)?.[1] ?? "";
        const least = { text: 4.5, ".quiet": 4.5, ".kproxy": 3, ".peer": 3, ".bare": 3 };
        for (const [name, contrast] of Object.entries(least)) {
          const found = contrastOf(fill(name), fill(".ground"));
          assert(found >= contrast, `${name}: ${found}`);
        }
      }
    }
  },
);

Deno.test("the page shows the charts of the record", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/benchmarks.md`);
  const { proxies } = readRecords();
  const charts = proxyCharts(proxies?.rows ?? []);
  assertEquals(charts.size, proxies === undefined ? 0 : 3);
  for (const [file, svg] of charts) {
    assertEquals(await Deno.readTextFile(`${ROOT}/${file}`), svg);
    assertStringIncludes(page, `](${file.slice("docs/".length)})`);
  }
});
