/**
 * The metrics server: metrics, and what else operators ask a proxy.
 *
 * @module
 */
import { isGateEnabled } from "../config/feature_gates.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../config/types.ts";
import type { Logger, Verbosity } from "../observe/log.ts";
import { SliMetrics } from "../observe/metrics_slis.ts";
import { METRICS_CONTENT_TYPE, metricsText } from "../observe/metrics_text.ts";
import { jsonAnswer, notFoundAnswer, textAnswer } from "./answers.ts";
import { configzBody } from "./configz.ts";
import type { ConnectionPool } from "./connection_pool.ts";
import type { Handler, Secure } from "./http_listener.ts";
import { HttpServer } from "./http_server.ts";
import { pingHandler } from "./ping_page.ts";
import { pprofHandler } from "./profiling.ts";
import { SharedText } from "./shared_text.ts";
import { verbosityHandler } from "./verbosity_page.ts";
import { flagzAnswer, statuszAnswer } from "./zpages.ts";

/** Those of some scrapers, whose answers are large. */
const MOST_CONNECTIONS = 32;

/** A registry as the server needs it. */
type Registry = Parameters<typeof metricsText>[0];

/** What the pages tell. */
export interface MetricsPages {
  readonly registry: Registry;
  /** The mode really in use. */
  readonly mode: ProxyMode;
  /** The configuration in force. */
  readonly config: () => KubeProxyConfiguration;
  /** Every flag with its value, without dashes. */
  readonly flags: () => Iterable<readonly [name: string, value: string]>;
  /** What `PUT /debug/flags/v` sets. */
  readonly verbosity: Verbosity;
  readonly version: string;
  /** The Kubernetes release whose behaviour is followed, `1.36`. */
  readonly emulationVersion: string;
  /** When the process began, in milliseconds since the epoch. */
  readonly startMs: number;
  /** Pages of kproxy's own, by path. */
  readonly own?: ((path: string) => Handler | undefined) | undefined;
}

/** What {@linkcode startMetricsServer} needs. */
export interface MetricsServerOptions extends MetricsPages {
  /** `metricsBindAddress`; `""` for none. */
  readonly address: string;
  /** Speaks TLS on each connection. @default {plain HTTP} */
  readonly secure?: Secure | undefined;
  /** Lets only some clients have the pages. @default {all} */
  readonly guard?: (handler: Handler) => Handler;
  readonly hardFail: boolean;
  readonly log: Logger;
  readonly pool: ConnectionPool;
  readonly onListenFailure?: ((problem: string) => void) | undefined;
}

/**
 * Begins to serve.
 *
 * @throws {Error} with `hardFail`, if it cannot listen
 */
export function startMetricsServer(options: MetricsServerOptions): HttpServer {
  const { address, secure, guard = (handler) => handler, hardFail, log, pool, onListenFailure, ...pages } =
    options;
  const handler = guard(metricsHandler(pages));
  const server = new HttpServer({
    name: "metrics",
    address,
    secure,
    hardFail,
    log,
    pool,
    most: MOST_CONNECTIONS,
    handler,
    onListenFailure,
  });
  server.start();
  return server;
}

/** Answers by path. */
export function metricsHandler(pages: MetricsPages): Handler {
  const slis = new SliMetrics(pages.startMs);
  const routes = new Map<string, Handler>([
    ["/metrics", metricsPage(pages.registry, pages.startMs)],
    ["/metrics/slis", slisPage(slis, pages.startMs)],
    ["/healthz", pingHandler(slis, true)],
    ["/healthz/ping", pingHandler(slis, false)],
    ["/proxyMode", () => textAnswer(pages.mode)],
    ["/configz", () => jsonAnswer(configzBody(pages.config(), pages.mode))],
  ]);
  const { featureGates, enableProfiling } = pages.config();
  if (isGateEnabled(featureGates, "ComponentFlagz")) {
    routes.set("/flagz", (request) => flagzAnswer(request, pages.flags()));
  }
  if (isGateEnabled(featureGates, "ComponentStatusz")) {
    routes.set("/statusz", (request) => statuszAnswer(request, statusFacts(pages, routes)));
  }
  if (enableProfiling) addDebugPages(routes, pages.verbosity);
  return (request, peer, stopping) => {
    const { pathname } = new URL(request.url);
    const handler = routes.get(pathname) ?? pages.own?.(pathname) ??
      (enableProfiling ? pprofPage(pathname) : undefined);
    return handler === undefined ? notFoundAnswer() : handler(request, peer, stopping);
  };
}

function addDebugPages(routes: Map<string, Handler>, verbosity: Verbosity): void {
  const index: Handler = () => textAnswer("/debug/flags/\n\nv  PUT a number: how much is logged\n");
  routes.set("/debug/flags", index);
  routes.set("/debug/flags/", index);
  routes.set("/debug/flags/v", verbosityHandler(verbosity));
  routes.set(
    "/debug/pprof",
    () => new Response(null, { status: 302, headers: { location: "/debug/pprof/" } }),
  );
}

function pprofPage(pathname: string): Handler | undefined {
  const prefix = "/debug/pprof/";
  return pathname.startsWith(prefix) ? pprofHandler(pathname.slice(prefix.length)) : undefined;
}

function statusFacts(
  pages: MetricsPages,
  routes: ReadonlyMap<string, Handler>,
): Parameters<typeof statuszAnswer>[1] {
  const first = [...routes.keys()].map((path) => `/${path.split("/", 2)[1]}`);
  const { startMs, version, emulationVersion } = pages;
  return {
    startMs,
    nowMs: Date.now(),
    version,
    emulationVersion,
    denoVersion: Deno.version.deno,
    paths: [...new Set(first)].filter((path) => path !== "/debug"),
  };
}

function slisPage(slis: SliMetrics, startMs: number): Handler {
  const page = metricsPage(slis.registry, startMs);
  return (request, peer, stopping) => {
    if (request.method !== "DELETE") return page(request, peer, stopping);
    slis.reset();
    return textAnswer("metrics reset\n");
  };
}

function metricsPage(registry: Registry, startMs: number): Handler {
  const shared = new SharedText(() => metricsText(registry));
  const plain = {
    "content-type": METRICS_CONTENT_TYPE,
    "process-start-time-unix": String(Math.floor(startMs / 1000)),
  };
  return async (request, _peer, stopping) => {
    const text = await shared.next(stopping);
    if (!acceptsGzip(request.headers.get("accept-encoding"))) return new Response(text, { headers: plain });
    const body = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
    return new Response(body, { headers: { ...plain, "content-encoding": "gzip" } });
  };
}

function acceptsGzip(accepted: string | null): boolean {
  return (accepted ?? "").split(",").some((coding) => /^\s*gzip\s*(;(?!\s*q=0(\.0*)?\s*$)|$)/i.test(coding));
}
