import { assertEquals } from "@std/assert";
import { SnapshotMetrics } from "./metrics_snapshot.ts";
import { Registry } from "./prom_client.ts";

Deno.test("the snapshot's metrics tell which one is in use, the last one written, and failures", async () => {
  const registry = new Registry();
  const metrics = new SnapshotMetrics();
  metrics.addTo(registry);
  const values = async (): Promise<Record<string, number | undefined>> =>
    Object.fromEntries(
      (await registry.getMetricsAsJSON()).map(({ name, values }) => [
        name.replace("kproxy_snapshot_", ""),
        values[0]?.value,
      ]),
    );
  const nothing = { in_use: 0, timestamp_seconds: 0, size_bytes: 0, write_failures_total: 0 };
  assertEquals(await values(), nothing);
  metrics.setInUse(1_500);
  assertEquals(await values(), { ...nothing, in_use: 1, timestamp_seconds: 1.5 });
  metrics.setInUse(null);
  metrics.saveFailed();
  assertEquals(await values(), { ...nothing, timestamp_seconds: 1.5, write_failures_total: 1 });
  metrics.saved({ savedAtMs: 2_500, bytes: 77 });
  assertEquals(await values(), {
    in_use: 0,
    timestamp_seconds: 2.5,
    size_bytes: 77,
    write_failures_total: 1,
  });
});
