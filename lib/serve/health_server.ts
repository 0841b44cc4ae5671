/**
 * The health server: what load balancers and kubelets ask.
 *
 * @module
 */
import type { ProxyMetrics } from "../observe/metrics.ts";
import type { Logger } from "../observe/log.ts";
import { jsonAnswer, notFoundAnswer } from "./answers.ts";
import type { ConnectionPool } from "../kernel/connection_pool.ts";
import type { HealthState } from "./health_state.ts";
import type { Handler, Secure } from "./http_listener.ts";
import { HttpServer } from "./http_server.ts";

/** What {@linkcode startHealthServer} needs. */
export interface HealthServerOptions {
  /** `healthzBindAddress`; `""` for none. */
  readonly address: string;
  /** Speaks TLS on each connection. @default {plain HTTP} */
  readonly secure?: Secure | undefined;
  readonly hardFail: boolean;
  readonly health: HealthState;
  readonly metrics: HealthMetrics;
  readonly log: Logger;
  readonly pool: ConnectionPool;
  readonly onListenFailure?: ((problem: string) => void) | undefined;
}

/** Those of a kubelet and some load balancers, which come and go. */
const MOST_CONNECTIONS = 128;

/** The counters of answers. */
export type HealthMetrics = Pick<ProxyMetrics, "healthzTotal" | "livezTotal">;

/**
 * Begins to serve `/healthz`, `/livez` and `/readyz`.
 *
 * @throws {Error} with `hardFail`, if it cannot listen
 */
export function startHealthServer(options: HealthServerOptions): HttpServer {
  const { address, secure, hardFail, health, metrics, log, pool, onListenFailure } = options;
  const server = new HttpServer({
    name: "healthz",
    address,
    secure,
    hardFail,
    log,
    pool,
    most: MOST_CONNECTIONS,
    handler: healthHandler(health, metrics),
    onListenFailure,
  });
  server.start();
  return server;
}

/** Answers by path, whatever the method. */
export function healthHandler(health: HealthState, metrics: HealthMetrics): Handler {
  return (request) => {
    switch (new URL(request.url).pathname) {
      case "/healthz": {
        const { status, body } = health.healthz();
        metrics.healthzTotal.inc({ code: String(status) });
        return jsonAnswer(body, { status });
      }
      case "/livez": {
        const { status, body } = health.livez();
        metrics.livezTotal.inc({ code: String(status) });
        return jsonAnswer(body, { status });
      }
      case "/readyz": {
        const { status, body } = health.readyz();
        return jsonAnswer(body, { status });
      }
      default:
        return notFoundAnswer();
    }
  };
}
