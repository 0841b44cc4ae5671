import { assertEquals } from "@std/assert";
import { defaultConfig } from "../config/defaults.ts";
import { startingEvent } from "../observe/events.ts";
import { silentLogger } from "../observe/log.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { metricsText } from "../observe/prom_client.ts";
import { openEvents } from "./source.ts";

Deno.test("Events count among the requests to the API server, with their size and their wait", async () => {
  let posts = 0;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    await request.text();
    if (request.method === "POST") posts++;
    return new Response("{}", { status: 201 });
  });
  const host = `127.0.0.1:${server.addr.port}`;
  const metrics = new ProxyMetrics();
  const written = Promise.withResolvers<void>();
  const stop = new AbortController();
  const events = await openEvents(defaultConfig(), {
    master: `http://${host}`,
    log: silentLogger,
    onRequest: (request) => {
      metrics.observeApiRequest(request);
    },
    onAnswer: (answer) => {
      metrics.observeApiAnswer(answer);
      written.resolve();
    },
  });
  const ended = events.run(stop.signal);
  events.recorder.record(startingEvent("node-a"));
  await written.promise;
  stop.abort();
  await ended;
  await server.shutdown();
  const text = await metricsText(metrics.registry);
  const labels = `host="${host}",verb="POST"`;
  const lines = text.split("\n").filter((line) => /^rest_client_.*(total\{|_count\{|_sum\{)/.test(line));
  const value = (name: string): number =>
    Number(lines.find((line) => line.startsWith(`${name}{${labels}}`))?.split(" ")[1]);
  assertEquals(
    lines.includes(`rest_client_requests_total{code="201",host="${host}",method="POST"} ${posts}`),
    true,
    text,
  );
  assertEquals(value("rest_client_rate_limiter_duration_seconds_count"), posts);
  assertEquals(value("rest_client_request_size_bytes_sum") > 100, true);
  assertEquals(value("rest_client_response_size_bytes_sum"), 2 * posts, "the server answers {}");
});
