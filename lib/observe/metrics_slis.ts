/**
 * The service level indicators that Kubernetes' components have on a page of their own.
 *
 * @module
 */
import { Counter, Gauge, Registry } from "./prom_client.ts";
import { addStartTime } from "./metrics_program.ts";

/** Counts the answers of the metrics server's own `/healthz`, which is its check `ping`. */
export class SliMetrics {
  readonly registry = new Registry();
  readonly #healthcheck = new Gauge({
    name: "kubernetes_healthcheck",
    help: "[STABLE] 1 if the check last succeeded",
    labelNames: ["name", "type"],
    registers: [this.registry],
  });
  readonly #healthchecks = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "[STABLE] Results of the check",
    labelNames: ["name", "status", "type"],
    registers: [this.registry],
  });

  /** @param startMs when the process began, in milliseconds since the epoch */
  constructor(startMs: number) {
    addStartTime(this.registry, startMs);
  }

  /** The check was asked for, and succeeded. */
  pinged(): void {
    this.#healthcheck.set({ name: "ping", type: "healthz" }, 1);
    this.#healthchecks.inc({ name: "ping", status: "success", type: "healthz" });
  }

  /** Forgets all results. */
  reset(): void {
    this.#healthcheck.reset();
    this.#healthchecks.reset();
  }
}
