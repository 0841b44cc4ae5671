/**
 * How the servers fare: their connections, and what they could not do.
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
