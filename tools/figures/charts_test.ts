import { assert, assertStringIncludes } from "@std/assert";
import { ROOT } from "../project_files.ts";
import { proxyCharts } from "./charts.ts";
import type { ProxiesRow, ProxySamples } from "./records.ts";

/** A chart that is drawn and gone leaves the timer of its next frame, which does nothing. */
const LEAVES_TIMER = { sanitizeOps: false, sanitizeResources: false } as const;

const KPROXY: ProxySamples = {
  firstSyncMs: [900, 1400, 1100, 1000, 1200],
  startCpuMs: [800, 810, 820, 830, 840],
  changeMs: [12.5, 12, 13, 12.5, 40],
  residentMb: [84, 84, 84, 84, 84],
  anonymousMb: [41, 41, 40, 41, 42],
  peakMb: [96, 97, 98, 95, 96],
  chargedMb: [],
  chargedPeakMb: [],
};

const ROW: ProxiesRow = {
  mode: "iptables",
  services: 1000,
  endpoints: 10,
  kproxy: KPROXY,
  kubeProxy: { ...KPROXY, firstSyncMs: [7100, 7300, 7000, 7200, 7050], changeMs: [218, 217, 219, 220, 1200] },
  bare: {
    firstSyncMs: [320, 310, 330, 320, 340],
    changeMs: [10, 10, 11, 9, 12],
    changeWithStartMs: [15, 15, 16, 15, 14],
  },
};

Deno.test(
  "a chart has the medians of both proxies and of the bare tool, and loads nothing",
  LEAVES_TIMER,
  () => {
    const charts = proxyCharts([{ ...ROW, mode: "nftables" }, ROW, {
      ...ROW,
      services: 5000,
      kubeProxy: "too slow",
    }]);
    const firstSync = charts.get("docs/first_sync.svg") ?? "";
    for (const text of ["kube-proxy", "bare tool", ">7.1 s<", ">1.1 s<", ">5000<"]) {
      assertStringIncludes(firstSync, text);
    }
    assertStringIncludes(charts.get("docs/endpoint_replaced.svg") ?? "", ">13 ms<");
    assertStringIncludes(charts.get("docs/memory.svg") ?? "", ">84 MB<");
    for (const svg of charts.values()) assert(!/@import|@font-face|href|url\((?!#)|<script|<image/.test(svg));
  },
);

Deno.test("the page shows the charts of the record", LEAVES_TIMER, async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/benchmarks.md`);
  for (const file of proxyCharts([ROW]).keys()) {
    assertStringIncludes(page, `](${file.slice("docs/".length)})`);
  }
});
