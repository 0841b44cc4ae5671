/**
 * What the log itself cannot report.
 *
 * @module
 */
import { Counter, type Registry } from "./prom_client.ts";

/** Adds `kproxy_log_lines_dropped_total`; `dropped` is asked at every scrape. */
export function addLogMetrics(registry: Registry, dropped: () => number): void {
  new Counter({
    name: "kproxy_log_lines_dropped_total",
    help: "[ALPHA] Log lines dropped because the stream was closed, full, or not read",
    registers: [registry],
    collect(): void {
      this.reset();
      this.inc(dropped());
    },
  });
}
