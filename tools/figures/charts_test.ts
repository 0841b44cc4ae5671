import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT } from "../project_files.ts";
import { proxyCharts } from "./charts.ts";
import { readRecords } from "./records.ts";
import { ROW } from "./record_case.ts";

Deno.test("a chart has the medians of both proxies and of the bare tool, and loads nothing", () => {
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
  assertEquals(proxyCharts([]).size, 0);
});

Deno.test("the page shows the charts of the record", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/benchmarks.md`);
  for (const file of proxyCharts(readRecords().proxies?.rows ?? []).keys()) {
    assertStringIncludes(page, `](${file.slice("docs/".length)})`);
  }
});
