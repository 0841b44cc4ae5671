/**
 * The pages below `/kproxy/`: the status of a running proxy, for programs and browsers on its node.
 *
 * @module
 */
import { configInApiOrder } from "../../config/write.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../config/types.ts";
import { eachUnserved, type UnservedOfService } from "../../model/destination_claims.ts";
import type { ApiObject, IpFamily } from "../../model/objects.ts";
import type { NodePortals } from "../../model/portals.ts";
import type { RecentProblems } from "../../observe/log.ts";
import type { Rejection } from "../../source/source.ts";
import { jsonAnswer } from "../http_answer.ts";
import { isoTime } from "../../text/words.ts";
import type { HealthState } from "../health_state.ts";
import type { Handler } from "../http_listener.ts";
import type { PageFacts } from "../page/page_document.ts";
import { statusPage } from "../page/page_handler.ts";
import { localOnly } from "./local_only.ts";
import { Pace, pacedBody } from "../pacing.ts";
import { type ObjectSelection, selectionOf, selectObjects } from "./select_objects.ts";
import {
  API_VERSION,
  CONFIG_PATH,
  type ConfigDocument,
  OBJECTS_PATH,
  PORTALS_PATH,
  type PortalsDocument,
  STATUS_PATH,
  type StatusDocument,
} from "./status_document.ts";
import type { StatusRecord } from "./status_record.ts";

/** Data of one proxy server, beside those of its HTTP servers. */
export interface ProxyFacts {
  readonly record: StatusRecord;
  /** Name of the own Node. */
  readonly node: string;
  /** Mode as configured; `""` for the default. */
  readonly configuredMode: string;
  /** Why the configured mode is not in use; null if it is. */
  readonly fallback: string | null;
  readonly sourceName: string;
  /** Objects that the source holds now. */
  readonly objects: () => Iterable<ApiObject>;
  readonly refusals: () => Iterable<Rejection>;
  /** Services with destinations that are not served. */
  readonly unserved: () => readonly UnservedOfService[];
  /** Address of the API server as the command line gives it; `""` if it does not. */
  readonly master: string;
  readonly refusedSettings: StatusDocument["refusedSettings"];
  /** Record of configuration reloads; null if the file is not watched. */
  readonly reloads:
    | { readonly state: { failures: number; isInForce: boolean; lastSuccessMs: number } }
    | null;
  readonly problems: RecentProblems;
  /** For the status page; absent without `kproxy.statusPage`. */
  readonly page?: PageFacts | undefined;
  /** Ports on which kproxy itself takes traffic for Services; absent where it takes none. */
  readonly portals?: () => NodePortals;
}

/** Data of the HTTP servers. */
export interface ServerFacts {
  readonly health: HealthState;
  readonly mode: ProxyMode;
  readonly families: readonly IpFamily[];
  /** The configuration in force. */
  readonly config: () => KubeProxyConfiguration;
  readonly version: string;
  readonly emulationVersion: string;
  /** When the process and this proxy server started, in milliseconds since the epoch. */
  readonly startMs: number;
  readonly servingSinceMs: number;
  readonly listening: () => StatusDocument["listening"];
  /** Wall clock, in milliseconds since the epoch. */
  readonly nowMs: () => number;
}

/** Handlers for browsers on the node, by path; undefined without `kproxy.statusPage`. */
export function pagesForBrowsers(
  proxy: ProxyFacts,
  server: ServerFacts,
): ((path: string) => Handler | undefined) | undefined {
  if (proxy.page === undefined) return undefined;
  const page = statusPage(proxy, server, proxy.page);
  const status = localOnly(jsonOf(() => statusDocument(proxy, server)));
  return (path) => path === STATUS_PATH ? status : page(path);
}

/** Handlers for commands that ask over the socket, by path. */
export function documents(proxy: ProxyFacts, server: ServerFacts): ReadonlyMap<string, Handler> {
  return new Map([
    [STATUS_PATH, jsonOf(() => statusDocument(proxy, server))],
    [CONFIG_PATH, jsonOf(() => configDocument(proxy, server))],
    [OBJECTS_PATH, objectsPage(proxy, server)],
    [PORTALS_PATH, jsonOf(() => portalsDocument(proxy, server))],
  ]);
}

function jsonOf(document: () => unknown): Handler {
  return () => jsonAnswer(`${JSON.stringify(document())}\n`);
}

function objectsPage(proxy: ProxyFacts, server: ServerFacts): Handler {
  const pace = new Pace();
  return async (request, _peer, stopping) => {
    // Loaded on demand: there may never be a request.
    const { snapshotPieces } = await import("../../source/snapshot/snapshot_format.ts");
    const selection = selectionOf(new URL(request.url).searchParams);
    const selected = selection === null
      ? proxy.objects()
      : selectObjects(proxy.objects, withPortals(selection, proxy));
    const header = { savedAtMs: server.nowMs(), node: proxy.node, server: proxy.sourceName };
    const body = pacedBody(snapshotPieces(header, selected), pace, stopping);
    return new Response(body, { headers: { "content-type": "application/x-ndjson" } });
  };
}

/** Adds the Services of kproxy's own ports that are among the node ports. */
function withPortals(selection: ObjectSelection, { portals }: ProxyFacts): ObjectSelection {
  const { services = [], nodePorts = [] } = selection;
  if (nodePorts.length === 0) return selection;
  const meant = portals?.().portals.filter(({ port }) => nodePorts.includes(port)) ?? [];
  return {
    ...selection,
    services: [...services, ...meant.map(({ servicePort }) => servicePort.split(":", 1)[0]!)],
  };
}

/** See {@linkcode StatusDocument}. */
function statusDocument(proxy: ProxyFacts, server: ServerFacts): StatusDocument {
  const { record, reloads, problems } = proxy;
  const { health } = server;
  const nowMs = server.nowMs();
  return {
    apiVersion: API_VERSION,
    kind: "Status",
    time: isoTime(nowMs),
    program: programStatus(server, nowMs),
    node: { name: proxy.node, eligible: health.isNodeEligible },
    mode: { used: server.mode, configured: proxy.configuredMode, fallback: proxy.fallback },
    readiness: health.readiness(),
    healthy: health.isProxyHealthy,
    families: record.families,
    source: { name: proxy.sourceName, refused: refusedNow(proxy) },
    quarantine: record.quarantine,
    unserved: unservedNow(proxy),
    drift: record.drifts,
    otherProxyTables: health.otherTables,
    refusedSettings: proxy.refusedSettings,
    configReload: reloads === null ? null : {
      failures: reloads.state.failures,
      inForce: reloads.state.isInForce,
      lastSuccess: isoTime(reloads.state.lastSuccessMs),
    },
    problems: {
      total: problems.total,
      recent: problems.problems.map(({ firstMs, lastMs, severity, message, values, count }) => ({
        severity,
        message,
        values,
        first: isoTime(firstMs),
        last: isoTime(lastMs),
        count,
      })),
    },
    listening: server.listening(),
  };
}

/** Most refusals that are shown: there may be thousands. */
const SHOWN_REFUSALS = 100;

function refusedNow({ refusals }: ProxyFacts): StatusDocument["source"]["refused"] {
  const all = [...refusals()];
  return { count: all.length, objects: all.slice(0, SHOWN_REFUSALS) };
}

const SHOWN_UNSERVED = 100;

function unservedNow({ unserved }: ProxyFacts): NonNullable<StatusDocument["unserved"]> {
  const services = unserved();
  const count = services.reduce((sum, [, destinations]) => sum + destinations.size, 0);
  return { count, destinations: [...eachUnserved(services).take(SHOWN_UNSERVED)] };
}

function programStatus(server: ServerFacts, nowMs: number): StatusDocument["program"] {
  const { rss, heapUsed, heapTotal, external } = Deno.memoryUsage();
  return {
    name: "kproxy",
    version: server.version,
    emulationVersion: server.emulationVersion,
    denoVersion: Deno.version.deno,
    pid: Deno.pid,
    started: isoTime(server.startMs),
    uptimeSeconds: Math.max(0, Math.round(nowMs - server.startMs) / 1000),
    servingSince: isoTime(server.servingSinceMs),
    memory: { resident: rss, heapUsed, heapTotal, external },
  };
}

function configDocument({ node, master }: ProxyFacts, server: ServerFacts): ConfigDocument {
  return {
    apiVersion: API_VERSION,
    kind: "Config",
    node,
    mode: server.mode,
    families: server.families,
    master: withoutCredentials(master),
    config: configInApiOrder(server.config()),
  };
}

function portalsDocument({ portals }: ProxyFacts, { mode }: ServerFacts): PortalsDocument {
  return {
    apiVersion: API_VERSION,
    kind: "Portals",
    mode,
    ...(portals?.() ?? { portals: [], iptables: {} }),
  };
}

/** A URL may hold a name and a password before the host. */
function withoutCredentials(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:\/\/)?[^/?#]*@/i, "$1");
}
