import { assertEquals } from "@std/assert";
import { ReloadRecord } from "./metrics_reload.ts";
import { Registry } from "./prom_client.ts";

async function values(registry: Registry): Promise<number[]> {
  const metrics = await registry.getMetricsAsJSON();
  return metrics.map((metric) => metric.values[0]?.value ?? Number.NaN);
}

Deno.test("refusals are counted, and a taken file says since when it is in force", async () => {
  const record = new ReloadRecord(1_000);
  const first = new Registry();
  record.addTo(first);
  assertEquals(await values(first), [0, 1, 1]);
  record.refused();
  record.refused();
  assertEquals(await values(first), [2, 0, 1]);
  record.taken(5_500);
  // The next life of the proxy has a registry of its own and goes on counting.
  const second = new Registry();
  record.addTo(second);
  assertEquals(await values(second), [2, 1, 5.5]);
});
