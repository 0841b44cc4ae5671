/**
 * How serving over TLS fares.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "./prom_client.ts";

/** Why a client got nothing. */
export type RefusalReason = "handshake" | "unauthenticated" | "forbidden" | "undecided";

/** The metrics `kproxy_serving_*`; they are there only where a server speaks TLS. */
export class ServingMetrics {
  readonly #expiry: Gauge;
  readonly #inForce: Gauge;
  readonly #failures: Counter;
  readonly #refusals: Counter;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#expiry = new Gauge({
      name: "kproxy_serving_certificate_expiration_timestamp_seconds",
      help: "[ALPHA] Expiration of the certificate in use, in seconds since the epoch",
      registers,
    });
    this.#inForce = new Gauge({
      name: "kproxy_serving_last_reload_successful",
      help:
        "[ALPHA] 1 if the current files of certificate, key, client CA and tokens are in use, 0 if they cannot be used",
      registers,
    });
    this.#failures = new Counter({
      name: "kproxy_serving_reload_failures_total",
      help: "[ALPHA] Failed reloads of certificate, key, client CA or tokens",
      registers,
    });
    this.#refusals = new Counter({
      name: "kproxy_serving_refusals_total",
      help:
        "[ALPHA] Refused connections and requests, by reason: handshake (no TLS, or no valid certificate), " +
        "unauthenticated, forbidden, undecided (the API server could not be asked)",
      labelNames: ["reason"],
      registers,
    });
  }

  /** What the files hold is in use. */
  taken(expiresMs: number): void {
    this.#expiry.set(expiresMs / 1000);
    this.#inForce.set(1);
  }

  /** What the files hold cannot be used. */
  failed(): void {
    this.#failures.inc();
    this.#inForce.set(0);
  }

  /** A client got nothing. */
  refused(reason: RefusalReason): void {
    this.#refusals.inc({ reason });
  }
}
