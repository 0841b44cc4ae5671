/**
 * Pages of the metrics server and of the socket: metrics, and what else operators ask a proxy.
 *
 * @module
 */
import { isGateEnabled } from "../config/feature_gates.ts";
import type { Verbosity } from "../observe/log.ts";
import { SliMetrics } from "../observe/metrics_kproxy.ts";
import { METRICS_CONTENT_TYPE, metricsText } from "../observe/prom_client.ts";
import { jsonAnswer, notFoundAnswer, textAnswer } from "./http_answer.ts";
import {
  configzBody,
  flagzAnswer,
  pingHandler,
  PROFILES,
  statuszAnswer,
  verbosityHandler,
} from "./debug_pages.ts";
import type { Handler } from "./http_listener.ts";
import { sharedText } from "./pacing.ts";
import { noForeignPages } from "./status/local_only.ts";
import type { ServerFacts } from "./status/status_api.ts";

/** A registry as the server needs it. */
type Registry = Parameters<typeof metricsText>[0];

/** Data that the pages show. */
export interface MetricsPages
  extends Pick<ServerFacts, "mode" | "config" | "version" | "emulationVersion" | "startMs"> {
  readonly registry: Registry;
  /** Every flag with its value, without dashes. */
  readonly flags: () => Iterable<readonly [name: string, value: string]>;
  /** Verbosity that `PUT /debug/flags/v` sets. */
  readonly verbosity: Verbosity;
  /** Handlers of the status page and of its requests, by path. */
  readonly page?: ((path: string) => Handler | undefined) | undefined;
  /** Handlers of the documents that commands request, by path. */
  readonly documents?: ReadonlyMap<string, Handler> | undefined;
  /** Path of the socket, for requests elsewhere; `""` if there is none. */
  readonly socket: string;
}

/** The handlers on the port and on the socket. */
export interface MetricsHandlers {
  /** At the address of the metrics server: pages that kube-proxy lets every client read. */
  readonly tcp: Handler;
  /** On the socket: those and all others, also those that change something. */
  readonly socket: Handler;
}

/** Answers by path. */
export function metricsHandlers(pages: MetricsPages): MetricsHandlers {
  const slis = new SliMetrics(pages.startMs);
  const reading = readingPages(pages, slis);
  const { page, documents = new Map<string, Handler>(), socket } = pages;
  const onSocket = new Map(documents);
  if (pages.config().enableProfiling) addDebugPages(onSocket, pages.verbosity);
  return {
    tcp: noForeignPages((request, peer, stopping) => {
      const { pathname } = new URL(request.url);
      const handler = page?.(pathname) ?? reading.get(pathname);
      const isRefused = handler === undefined ? onSocket.has(pathname) : isReset(request, pathname);
      if (isRefused) return elsewhere(request.method, pathname, socket);
      return handler === undefined ? notFoundAnswer() : handler(request, peer, stopping);
    }),
    socket: (request, peer, stopping) => {
      const { pathname } = new URL(request.url);
      if (isReset(request, pathname)) {
        slis.reset();
        return textAnswer("metrics reset\n");
      }
      const handler = onSocket.get(pathname) ?? reading.get(pathname);
      return handler === undefined ? notFoundAnswer() : handler(request, peer, stopping);
    },
  };
}

function isReset({ method }: Request, path: string): boolean {
  return method === "DELETE" && path === "/metrics/slis";
}

/** Refusal on the port, whose clients may be any user, or a page in a browser. */
function elsewhere(method: string, path: string, socket: string): Response {
  const how = socket === ""
    ? "and there is none (kproxy.socket)"
    : `as root: curl ${
      method === "GET" ? "" : `-X ${method} `
    }--unix-socket ${socket} http://localhost${path}`;
  return textAnswer(`403 forbidden: ask over the socket, ${how}\n`, { status: 403 });
}

/** Pages that kube-proxy lets every client read. */
function readingPages(pages: MetricsPages, slis: SliMetrics): Map<string, Handler> {
  const routes = new Map<string, Handler>([
    ["/metrics", metricsPage(pages.registry, pages.startMs)],
    ["/metrics/slis", metricsPage(slis.registry, pages.startMs)],
    ["/healthz", pingHandler(slis, true)],
    ["/healthz/ping", pingHandler(slis, false)],
    ["/proxyMode", () => textAnswer(pages.mode)],
    ["/configz", () => jsonAnswer(configzBody(pages.config(), pages.mode))],
  ]);
  const { featureGates } = pages.config();
  if (isGateEnabled(featureGates, "ComponentFlagz")) {
    routes.set("/flagz", (request) => flagzAnswer(request, pages.flags()));
  }
  if (isGateEnabled(featureGates, "ComponentStatusz")) {
    routes.set("/statusz", (request) => statuszAnswer(request, pages, routes.keys()));
  }
  return routes;
}

function addDebugPages(routes: Map<string, Handler>, verbosity: Verbosity): void {
  const index: Handler = () => textAnswer("/debug/flags/\n\nv  PUT a number: how much is logged\n");
  routes.set("/debug/flags", index);
  routes.set("/debug/flags/", index);
  routes.set("/debug/flags/v", verbosityHandler(verbosity));
  for (const [path, profile] of PROFILES) routes.set(path, profile);
}

function metricsPage(registry: Registry, startMs: number): Handler {
  const nextText = sharedText(() => metricsText(registry));
  const plain = {
    "content-type": METRICS_CONTENT_TYPE,
    "process-start-time-unix": String(Math.floor(startMs / 1000)),
  };
  return async (request, _peer, stopping) => {
    const text = await nextText(stopping);
    if (!acceptsGzip(request.headers.get("accept-encoding"))) return new Response(text, { headers: plain });
    const body = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
    return new Response(body, { headers: { ...plain, "content-encoding": "gzip" } });
  };
}

function acceptsGzip(accepted: string | null): boolean {
  return (accepted ?? "").split(",").some((coding) => /^\s*gzip\s*(;(?!\s*q=0(\.0*)?\s*$)|$)/i.test(coding));
}
