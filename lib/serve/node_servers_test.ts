import { assert, assertEquals } from "@std/assert";
import { ProxyMetrics } from "../observe/metrics.ts";
import { metricsText } from "../observe/prom_client.ts";
import { HealthState } from "./health_state.ts";
import { healthHandler } from "./node_servers.ts";

const PEER = { family: "IPv4", address: "192.0.2.1", isLoopback: false } as const;

function bench(): {
  health: HealthState;
  metrics: ProxyMetrics;
  ask: (path: string, method?: string) => Promise<Response>;
} {
  const metrics = new ProxyMetrics();
  const health = new HealthState({
    families: ["IPv4"],
    syncPeriodMs: 30_000,
    clock: { nowMs: () => 0, epochMs: () => 0 },
  });
  const handler = healthHandler(health, metrics);
  const ask = async (path: string, method = "GET"): Promise<Response> =>
    await handler(new Request(`http://node:10256${path}`, { method }), PEER, new AbortController().signal);
  return { health, metrics, ask };
}

Deno.test("every method is answered alike, with kube-proxy's headers", async () => {
  const { ask } = bench();
  for (const path of ["/healthz", "/livez", "/readyz"]) {
    for (const method of ["GET", "HEAD", "POST", "DELETE"]) {
      const response = await ask(path, method);
      assertEquals(response.status, path === "/readyz" ? 503 : 200);
      assertEquals(response.headers.get("content-type"), "application/json");
      assertEquals(response.headers.get("x-content-type-options"), "nosniff");
      const body = await response.text();
      assert(!body.endsWith("\n") && JSON.parse(body) !== null);
    }
  }
});

Deno.test("a query does not matter, another path is not found", async () => {
  const { ask } = bench();
  assertEquals((await ask("/healthz?verbose")).status, 200);
  for (const path of ["/", "/healthz/", "/healthz/ping", "/metrics", "/Healthz"]) {
    const response = await ask(path);
    assertEquals([response.status, await response.text()], [404, "404 page not found\n"], path);
    assertEquals(response.headers.get("content-type"), "text/plain; charset=utf-8");
    assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  }
});

Deno.test("answers are counted by status", async () => {
  const { health, metrics, ask } = bench();
  await ask("/healthz");
  health.setNode(undefined);
  await ask("/healthz");
  await ask("/healthz");
  await ask("/livez");
  await ask("/nothing");
  const text = await metricsText(metrics.registry);
  assertEquals(text.split("\n").filter((line) => /^kubeproxy_proxy_(healthz|livez)_total/.test(line)), [
    'kubeproxy_proxy_healthz_total{code="200"} 1',
    'kubeproxy_proxy_healthz_total{code="503"} 2',
    'kubeproxy_proxy_livez_total{code="200"} 1',
  ]);
});
