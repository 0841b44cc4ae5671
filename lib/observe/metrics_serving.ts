/**
 * How the servers fare: their connections, what they could not do, and serving over TLS.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "./prom_client.ts";

/** The metrics `kproxy_server_*`, by server: `healthz`, `metrics`, `service-health` for all health check node ports. */
export class ServerMetrics {
  readonly #connections: Gauge;
  readonly #closed: Counter;
  readonly #failures: Counter;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#connections = new Gauge({
      name: "kproxy_server_connections",
      help: "[ALPHA] Open connections of clients, by server",
      labelNames: ["server"],
      registers,
    });
    this.#closed = new Counter({
      name: "kproxy_server_connections_closed_total",
      help:
        "[ALPHA] Connections that kproxy closed, by server and reason: evicted (for another client), refused, timeout",
      labelNames: ["server", "reason"],
      registers,
    });
    this.#failures = new Counter({
      name: "kproxy_server_failures_total",
      help: "[ALPHA] Failures of a server to listen or to accept a connection",
      labelNames: ["server"],
      registers,
    });
  }

  /** So many connections of the server's are open now. */
  open(server: string, count: number): void {
    this.#connections.set({ server }, count);
  }

  /** A client's connection was closed on it. */
  closed(server: string, reason: string): void {
    this.#closed.inc({ server, reason });
  }

  /** The server could not listen, or not accept. */
  failed(server: string): void {
    this.#failures.inc({ server });
  }
}

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
