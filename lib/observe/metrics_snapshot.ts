/**
 * State of the snapshot of the API server's objects.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "./prom_client.ts";

/** The metrics `kproxy_snapshot_*`. Without a file that was written or read their time is 0. */
export class SnapshotMetrics {
  readonly #inUse = new Gauge({
    name: "kproxy_snapshot_in_use",
    help: "[ALPHA] 1 while kproxy serves objects of the snapshot because the API server has not answered",
    registers: [],
  });
  readonly #timestamp = new Gauge({
    name: "kproxy_snapshot_timestamp_seconds",
    help: "[ALPHA] Time of the snapshot in use, or of the last one written, in seconds since the epoch",
    registers: [],
  });
  readonly #bytes = new Gauge({
    name: "kproxy_snapshot_size_bytes",
    help: "[ALPHA] Size of the last snapshot written",
    registers: [],
  });
  readonly #failures = new Counter({
    name: "kproxy_snapshot_write_failures_total",
    help: "[ALPHA] Failed writes of the snapshot",
    registers: [],
  });

  /** Adds them to the metrics of a proxy server, which starts after its source was opened. */
  addTo(registry: Registry): void {
    for (const metric of [this.#inUse, this.#timestamp, this.#bytes]) registry.registerMetric(metric);
    registry.registerMetric(this.#failures);
  }

  /** @param savedAtMs when the snapshot in use was made, in milliseconds since the epoch; null: none is in use */
  setInUse(savedAtMs: number | null): void {
    this.#inUse.set(savedAtMs === null ? 0 : 1);
    if (savedAtMs !== null) this.#timestamp.set(savedAtMs / 1000);
  }

  /** A snapshot was written. */
  saved({ savedAtMs, bytes }: { readonly savedAtMs: number; readonly bytes: number }): void {
    this.#timestamp.set(savedAtMs / 1000);
    this.#bytes.set(bytes);
  }

  saveFailed(): void {
    this.#failures.inc();
  }
}
