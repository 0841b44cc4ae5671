/**
 * The program's own servers, on loopback and on a socket in a temporary folder.
 *
 * @module
 */
import { defaultConfig } from "../../lib/config/defaults.ts";
import type { KubeProxyConfiguration, ProxyMode } from "../../lib/config/types.ts";
import type { ApiObject, IpFamily } from "../../lib/model/objects.ts";
import type { NodePortals } from "../../lib/model/portals.ts";
import { type Logger, RecentProblems, silentLogger } from "../../lib/observe/log.ts";
import { ProxyMetrics } from "../../lib/observe/metrics.ts";
import { NodeServers } from "../../lib/serve/node_servers.ts";
import type { PageFacts } from "../../lib/serve/page/page_document.ts";
import type { ProxyFacts } from "../../lib/serve/status/status_api.ts";
import { StatusRecord } from "../../lib/serve/status/status_record.ts";
import type { Rejection } from "../../lib/source/source.ts";
import { testService, testSlice, testSliceEndpoint } from "./model_objects.ts";

/** Running servers. */
export interface Served {
  readonly servers: NodeServers;
  readonly record: StatusRecord;
  readonly problems: RecentProblems;
  /** Address of the metrics server, `127.0.0.1:PORT`. */
  readonly address: string;
  /** Path of the socket. */
  readonly socket: string;
  /** Sends these lines to the metrics server; yields head and body of the answer. */
  ask(...lines: string[]): Promise<Answered>;
  /** Sends these lines over the socket. */
  askSocket(...lines: string[]): Promise<Answered>;
}

/** A raw answer. */
export interface Answered {
  readonly status: string;
  readonly head: string;
  readonly body: string;
}

/** Services with ten endpoints each. */
export function manyObjects(count: number): ApiObject[] {
  return Array.from({ length: count }, (_, i) => {
    const name = `s${i}`;
    const ips = Array.from(
      { length: 10 },
      (_, k) => testSliceEndpoint(`10.${i >> 8 & 127}.${i & 255}.${k + 1}`),
    );
    return [
      testService({ namespace: "shop", name, clusterIP: `10.200.${i >> 8 & 255}.${i & 255}` }),
      testSlice({ namespace: "shop", name: `${name}-x`, serviceName: name, endpoints: ips }),
    ];
  }).flat();
}

/** Options of the servers. */
export interface ServingOptions {
  readonly objects?: readonly ApiObject[];
  /** Objects that the source refuses. */
  readonly refusals?: readonly Rejection[];
  /** Destinations of Services that are not served. @default {none} */
  readonly unserved?: ProxyFacts["unserved"];
  readonly config?: Partial<KubeProxyConfiguration>;
  readonly statusApi?: boolean;
  /** Files that the objects come from, as reported. @default {none} */
  readonly manifests?: readonly string[];
  /** @default {["IPv4"]} */
  readonly families?: readonly IpFamily[];
  /** @default {"nftables"} */
  readonly mode?: ProxyMode;
  /** Facts of the status page; absent: no page. */
  readonly page?: PageFacts;
  /** Proxy ports of userspace mode. @default {none} */
  readonly portals?: () => NodePortals;
  /** @default {"node-1"} */
  readonly node?: string;
  /** @default {none} */
  readonly log?: Logger;
  /** Clock of recorded times. @default {Date.now} */
  readonly nowMs?: () => number;
}

/** Facts of the proxy; with a page, those of a node on which all is well. */
function proxyFacts(
  { objects = [], refusals = [], unserved = () => [], page, portals, node = "node-1" }: ServingOptions,
  { mode, ...own }: Pick<ProxyFacts, "record" | "problems"> & { readonly mode: ProxyMode },
): ProxyFacts {
  return {
    ...own,
    node,
    ...(page === undefined
      ? { configuredMode: "ipvs", fallback: "no kernel module" }
      : { configuredMode: mode, fallback: null }),
    sourceName: "files /objects",
    objects: () => objects,
    refusals: () => refusals,
    unserved,
    master: "https://admin:secret@10.0.0.1:6443",
    refusedSettings: page === undefined ? [{ name: "net.x", reason: "read-only" }] : [],
    reloads: null,
    page,
    ...(portals === undefined ? {} : { portals }),
  };
}

/** The program's own servers on loopback, and the record behind their pages. */
export async function serving(
  work: (served: Served) => Promise<void>,
  options: ServingOptions = {},
): Promise<void> {
  const { config = {}, statusApi = true, families = ["IPv4"], mode = "nftables", page } = options;
  const { nowMs = () => Date.now() } = options;
  const folder = await Deno.makeTempDir({ prefix: "kproxy-socket-" });
  const socket = `${folder}/kproxy.sock`;
  const record = new StatusRecord(families, nowMs);
  const problems = new RecentProblems(nowMs);
  const defaults = defaultConfig();
  const used = {
    ...defaults,
    healthzBindAddress: "",
    metricsBindAddress: "127.0.0.1:0",
    ...config,
    kproxy: {
      ...defaults.kproxy,
      socket,
      statusApi,
      statusPage: page !== undefined,
      manifests: [...options.manifests ?? []],
    },
  };
  const servers = new NodeServers({
    config: used,
    // Port 0 is for tests only.
    currentConfig: () => ({ ...used, metricsBindAddress: "127.0.0.1:10249" }),
    mode,
    periods: { syncPeriod: 30_000, minSyncPeriod: 1_000 },
    families,
    metrics: new ProxyMetrics({ mode }),
    log: options.log ?? silentLogger,
    verbosity: { level: 0 },
    flags: () => [],
    version: "0.1.0",
    emulationVersion: "1.36",
    proxy: proxyFacts(options, { record, problems, mode }),
    interfaceIps: () => [],
  });
  await servers.start(new AbortController().signal);
  try {
    const address = servers.addresses[1]?.[0]?.replace("[::]", "127.0.0.1") ?? "";
    await work({
      servers,
      record,
      problems,
      address,
      socket,
      ask: async (...lines) => await askRaw(await connect(address), lines),
      askSocket: async (...lines) => await askRaw(await connectTo(socket), lines),
    });
  } finally {
    await servers.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

/** Connects to the port of such an address, over loopback. */
export async function connect(address: string): Promise<Deno.TcpConn> {
  return await Deno.connect({ hostname: "127.0.0.1", port: Number(address.split(":").at(-1)) });
}

/** Connects to a Unix socket. */
export async function connectTo(socket: string): Promise<Deno.UnixConn> {
  return await Deno.connect({ transport: "unix", path: socket });
}

async function askRaw(asked: Deno.Conn, lines: readonly string[]): Promise<Answered> {
  using connection = asked;
  await connection.write(new TextEncoder().encode(`${lines.join("\r\n")}\r\nConnection: close\r\n\r\n`));
  const text = await new Response(connection.readable).text().catch(String);
  const end = text.indexOf("\r\n\r\n");
  const head = text.slice(0, end);
  return { status: head.split(" ")[1] ?? "", head, body: text.slice(end + 4) };
}
