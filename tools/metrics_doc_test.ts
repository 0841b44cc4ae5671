import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { addTrafficMetrics } from "../lib/observe/metrics_kproxy.ts";
import { metricsText, Registry } from "../lib/observe/prom_client.ts";
import { metricRows, metricsMarkdown, sliRows } from "./metrics_doc.ts";
import { projectFiles, ROOT } from "./project_files.ts";

Deno.test("the list has every metric that the code names", async () => {
  const listed = new Set([...metricRows(), ...sliRows()].map(({ name }) => name));
  const sources = (await projectFiles()).filter((path) =>
    /^lib\/(observe|serve|node|backend\/userspace\/node)\/.*\.ts$/.test(path) && !path.endsWith("_test.ts")
  );
  const named = new Set<string>();
  for (const path of sources) {
    const text = await Deno.readTextFile(`${ROOT}/${path}`);
    for (
      const [, name = ""] of text.matchAll(/"((?:kubeproxy|kproxy|kubernetes|rest_client|process)_[a-z_]+)"/g)
    ) {
      named.add(name);
    }
  }
  assertEquals([...listed].sort(), [...named].sort());
  assert(listed.size > 40);
});

Deno.test("a metric of some modes only says so, one of all modes does not", () => {
  const conditions = new Map(metricRows().map(({ name, condition }) => [name, condition]));
  assertEquals(conditions.get("kubeproxy_sync_proxy_rules_duration_seconds"), "");
  assertEquals(conditions.get("kubeproxy_sync_full_proxy_rules_duration_seconds"), "mode iptables, nftables");
  assertEquals(
    conditions.get("kubeproxy_sync_proxy_rules_iptables_restore_failures_total"),
    "mode iptables, ipvs",
  );
  assertEquals(conditions.get("kubeproxy_sync_proxy_rules_nftables_sync_failures_total"), "mode nftables");
  assertEquals(conditions.get("kproxy_service_bytes_total"), "mode nftables, `--traffic-counters`");
});

Deno.test("the labels of the traffic counters are those that they print", async () => {
  const registry = new Registry();
  const none = { packets: 1, bytes: 1 };
  addTrafficMetrics(registry, () =>
    Promise.resolve([{
      family: "IPv4",
      namespacedName: "shop/web",
      port: 80,
      portName: "http",
      protocol: "TCP",
      incoming: none,
      outgoing: none,
    }]));
  const [, series = ""] = /^kproxy_service_bytes_total\{([^}]*)\}/m.exec(await metricsText(registry)) ?? [];
  assertEquals(
    [...series.matchAll(/(\w+)="/g)].map(([, label]) => label),
    [...metricRows().find(({ name }) => name === "kproxy_service_bytes_total")?.labels ?? []],
  );
});

Deno.test("the tables have a row for each metric, in five columns", () => {
  const rows = metricsMarkdown().split("\n").filter((line) => line.startsWith("| `"));
  // Both pages have the start time.
  assertEquals(rows.length, metricRows().length + sliRows().length);
  for (const row of rows) assertEquals(row.split("|").length, 7, row);
  assertStringIncludes(metricsMarkdown(), "| `kproxy_server_connections` | gauge | `server` |");
});
