import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { ROOT } from "../project_files.ts";
import { contrastOf } from "./contrast.ts";
import { apart } from "./line_chart.ts";
import { ticksOf, yScaleOf } from "./scale.ts";
import { chartedProgram, scaleCharts, scaleTable } from "./scale_charts.ts";
import { measuredRuns, parseRun, type ScaleRun } from "./scale_figures.ts";

const RUN = {
  measured: "2026-11-23",
  program: "bundle",
  mode: "iptables (nft)",
  size: { services: 1000, endpoints: 10 },
  load: [0.5, 1, 2],
  firstSync: { answeredMs: [900, 1400, 1100], bareMs: [320] },
  touch: { kproxy: { p50: 12.5, max: 40 }, bare: { p50: 10, max: 20 } },
  memoryAtEnd: { nowMb: 84, anonymousMb: 41, peakMb: 96 },
  peer: {
    version: "Kubernetes v1.36.2",
    firstSync: { answeredMs: [7300, 7100] },
    touch: { p50: 218, max: 1200 },
    memoryAtEnd: { nowMb: 94, anonymousMb: 45, peakMb: 104 },
  },
};

function runOf(changes: Partial<ScaleRun> = {}): ScaleRun {
  return { ...parseRun("run.json", JSON.stringify(RUN)), ...changes };
}

Deno.test("a run is read as the benchmark prints it", { permissions: "none" }, () => {
  const { kproxy, peer, bare, ...run } = runOf();
  assertEquals(run, {
    mode: "iptables",
    services: 1000,
    endpoints: 10,
    program: "bundle",
    measured: "2026-11-23",
    version: "Kubernetes v1.36.2",
    load: 0.5,
  });
  assertEquals([kproxy.firstSyncSeconds, peer.firstSyncSeconds, bare.firstSyncSeconds], [1.1, 7.1, 0.32]);
  assertEquals([kproxy.touchMs.p50, peer.touchMs.max, bare.touchMs.p50], [12.5, 1200, 10]);
  assertEquals([kproxy.anonymousMb, peer.residentMb, kproxy.peakMb], [41, 94, 96]);
});

Deno.test("a run that lacks a figure is told with its file and place", { permissions: "none" }, () => {
  const cases: readonly (readonly [Record<string, unknown>, string])[] = [
    [{ peer: null }, "run.json: peer.version must be"],
    [{ firstSync: { answeredMs: [], bareMs: [1] } }, "run.json: firstSync.answeredMs must be a list"],
    [{ firstSync: { answeredMs: [1, null], bareMs: [1] } }, "run.json: firstSync.answeredMs must be a list"],
    [
      { memoryAtEnd: { nowMb: 84, peakMb: 96 } },
      "run.json: memoryAtEnd.anonymousMb must be a number above 0",
    ],
    [{ touch: { kproxy: { p50: 0, max: 1 }, bare: RUN.touch.bare } }, "run.json: touch.kproxy.p50 must be"],
    [{ mode: "ipvs" }, "run.json: mode must be"],
    [{ program: "compiled" }, "run.json: program must be"],
  ];
  for (const [change, message] of cases) {
    assertThrows(() => parseRun("run.json", JSON.stringify({ ...RUN, ...change })), SyntaxError, message);
  }
});

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
  const runs = [
    runOf({ mode: "nftables", services: 100 }),
    runOf({ mode: "nftables" }),
    runOf(),
    runOf({ program: "source" }),
  ];
  const charts = scaleCharts(runs);
  const three = { "polygon bare": 3, "rect peer": 3, "circle kproxy": 3 };
  assertEquals(markers(charts.get("docs/first_sync.svg") ?? ""), three);
  assertEquals(markers(charts.get("docs/endpoint_replaced.svg") ?? ""), three);
  assertEquals(markers(charts.get("docs/memory.svg") ?? ""), { "rect peer": 6, "circle kproxy": 6 });
  assertStringIncludes(charts.get("docs/first_sync.svg") ?? "", `kube-proxy</tspan> 7.1 s<`);
  assertStringIncludes(charts.get("docs/endpoint_replaced.svg") ?? "", `kproxy</tspan> 13 ms<`);
  assertStringIncludes(charts.get("docs/memory.svg") ?? "", `kproxy, anonymous</tspan> 41 MB<`);
  // Those who see nothing of it are told the same.
  const [, told = ""] = /<desc[^>]*>([^<]*)</.exec(charts.get("docs/first_sync.svg") ?? "") ?? [];
  assertStringIncludes(
    told,
    "Mode nftables: bare tool 0.32 s at 100, 0.32 s at 1,000; kube-proxy 7.1 s at 100",
  );
});

Deno.test("the charts show the bundle where it was measured at every size", { permissions: "none" }, () => {
  const [bundle, source] = [runOf(), runOf({ program: "source" })];
  assertEquals(chartedProgram([bundle, source]), "bundle");
  assertEquals(chartedProgram([bundle]), "bundle");
  assertEquals(chartedProgram([bundle, source, runOf({ program: "source", services: 5000 })]), "source");
});

Deno.test("a higher value is a higher point", { permissions: "none" }, () => {
  const svg = scaleCharts([runOf()]).get("docs/first_sync.svg") ?? "";
  const topOf = (kind: string): number =>
    Number(new RegExp(`<polyline class="${kind}" points="[\\d.]+,([\\d.]+)"`).exec(svg)?.[1]);
  assert(topOf("peer") < topOf("kproxy") && topOf("kproxy") < topOf("bare"), svg);
});

Deno.test(
  "the charts need nothing from elsewhere and follow the reader's theme",
  { permissions: "none" },
  () => {
    for (const svg of scaleCharts([runOf(), runOf({ mode: "nftables" })]).values()) {
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

Deno.test("every run has a row, with kproxy, kube-proxy and the bare tool beside each other", {
  permissions: "none",
}, () => {
  const table = scaleTable([runOf(), runOf({ mode: "nftables", program: "source" })]);
  assertStringIncludes(
    table,
    "| iptables | 1,000 × 10 | bundle | 1.10 · 7.10 · 0.32 | 12.5 / 40 · 218.0 / 1200 · 10.0 / 20 | 84 · 94 | 41 · 45 | 96 · 104 | 0.5 |",
  );
  assertStringIncludes(table, "| nftables | 1,000 × 10 | source |");
  assertStringIncludes(table, "kube-proxy (Kubernetes v1.36.2)");
});

Deno.test("the page shows the charts and the table of the runs that are kept", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/benchmarks.md`);
  assert(measuredRuns().length > 0);
  assertStringIncludes(page, scaleTable());
  for (const [file, svg] of scaleCharts()) {
    assertEquals(await Deno.readTextFile(`${ROOT}/${file}`), svg);
    assertStringIncludes(page, `](${file.slice("docs/".length)})`);
  }
});
