/**
 * The program's servers alone, for tests in namespaces: starts what its one argument (JSON of {@linkcode ServeOrder}) asks for,
 * says `ready` on standard output, and ends in order when standard input does.
 *
 * @module
 */
import { defaultConfig } from "../../lib/config/defaults.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { NODE_A, testService, testSlice, testSliceEndpoint } from "../../lib/model/test_objects.ts";
import { createLogger } from "../../lib/observe/log.ts";
import { ProxyMetrics } from "../../lib/observe/metrics.ts";
import { startHealthServer } from "../../lib/serve/health_server.ts";
import { HealthState, systemHealthClock } from "../../lib/serve/health_state.ts";
import { startMetricsServer } from "../../lib/serve/metrics_server.ts";
import { ServiceHealthServers } from "../../lib/serve/service_health.ts";
import { nodePortListenAddresses } from "../../lib/serve/service_health_addresses.ts";

/** What to serve. */
export interface ServeOrder {
  readonly healthz?: string;
  readonly metrics?: string;
  readonly hardFail?: boolean;
  readonly nodePortAddresses?: string[];
  /** One Service per entry, with this many ready endpoints here. */
  readonly services?: readonly {
    readonly port: number;
    readonly endpoints: Partial<Record<IpFamily, number>>;
  }[];
}

async function serve(order: ServeOrder): Promise<void> {
  const metrics = new ProxyMetrics();
  const config = {
    ...defaultConfig(),
    enableProfiling: true,
    nodePortAddresses: order.nodePortAddresses ?? null,
  };
  const log = createLogger({
    format: "json",
    verbosity: 2,
    write: (line) => Deno.stderr.writeSync(new TextEncoder().encode(line)),
    nowMs: () => Date.now(),
    pid: Deno.pid,
  });
  const health = new HealthState({
    families: ["IPv4", "IPv6"],
    syncPeriodMs: 30_000,
    clock: systemHealthClock,
  });
  health.started();
  const { hardFail = false } = order;
  const healthServer = startHealthServer({ address: order.healthz ?? "", hardFail, health, metrics, log });
  const metricsServer = startMetricsServer({
    address: order.metrics ?? "",
    hardFail,
    registry: metrics.registry,
    mode: "iptables",
    config: () => config,
    flags: () => [],
    verbosity: { level: 0 },
    version: "0.1.0",
    emulationVersion: "1.36",
    startMs: performance.timeOrigin,
    log,
  });
  const serviceHealth = new ServiceHealthServers({
    isProxyHealthy: () => health.isProxyHealthy,
    addresses: (family) =>
      nodePortListenAddresses(family, config, null, Deno.networkInterfaces().map(({ address }) => address)),
    log,
  });
  for (const family of ["IPv4", "IPv6"] as const) offer(family, order, serviceHealth);
  await serviceHealth.settled();
  await Deno.stdout.write(new TextEncoder().encode("ready\n"));
  for await (const _chunk of Deno.stdin.readable) { /* until it ends */ }
  await Promise.all([healthServer.stop(), metricsServer.stop(), serviceHealth.stop()]);
}

function offer(family: IpFamily, { services = [] }: ServeOrder, servers: ServiceHealthServers): void {
  const tracker = new ChangeTracker({ family, node: NODE_A });
  for (const [index, { port, endpoints }] of services.entries()) {
    const count = endpoints[family];
    if (count === undefined) continue;
    const name = `service-${index}`;
    const clusterIP = family === "IPv4" ? `10.96.0.${index + 1}` : `fd00:96::${index + 1}`;
    tracker.updateService(
      undefined,
      testService({
        name,
        type: "LoadBalancer",
        clusterIP,
        ipFamilies: [family],
        externalTrafficPolicy: "Local",
        healthCheckNodePort: port,
      }),
    );
    const ips = Array.from(
      { length: count },
      (_, i) => family === "IPv4" ? `10.244.0.${i + 1}` : `fd00:244::${i + 1}`,
    );
    const ready = ips.map((ip) => testSliceEndpoint(ip, { nodeName: NODE_A.name }));
    const slice = testSlice({ name: `${name}-1`, serviceName: name, addressType: family, endpoints: ready });
    tracker.updateEndpointSlice(slice, false);
  }
  servers.update(family, tracker.checkout().state, "all");
}

if (import.meta.main) await serve(JSON.parse(Deno.args[0] ?? "{}"));
