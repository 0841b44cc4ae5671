/**
 * The program's servers alone, for tests in namespaces: starts them by its one argument (JSON of {@linkcode ServeOrder}),
 * prints `ready` on standard output, and ends in order when standard input does.
 *
 * @module
 */
import { defaultConfig, selectedPeriods } from "../../lib/config/defaults.ts";
import { ChangeTracker } from "../../lib/model/change_tracker.ts";
import type { IpFamily } from "../../lib/model/objects.ts";
import { NODE_A, testService, testSlice, testSliceEndpoint } from "./model_objects.ts";
import { createLogger } from "../../lib/observe/log.ts";
import { ProxyMetrics } from "../../lib/observe/metrics.ts";
import { NodeServers } from "../../lib/serve/node_servers.ts";
import { syncOutcome } from "./sync_outcome.ts";
import { settled } from "./until.ts";

/** What the program serves. */
export interface ServeOrder {
  readonly healthz?: string;
  readonly metrics?: string;
  /** @default {none} */
  readonly socket?: string;
  readonly hardFail?: boolean;
  readonly nodePortAddresses?: string[];
  /** Services, each with this many ready endpoints on this node. */
  readonly services?: readonly {
    readonly port: number;
    readonly endpoints: Partial<Record<IpFamily, number>>;
  }[];
}

async function serve(order: ServeOrder): Promise<void> {
  const verbosity = { level: 2 };
  const log = createLogger({
    format: "json",
    verbosity,
    write: (line) => Deno.stderr.writeSync(new TextEncoder().encode(line)),
    nowMs: () => Date.now(),
    pid: Deno.pid,
  });
  const defaults = defaultConfig();
  const config = {
    ...defaults,
    kproxy: { ...defaults.kproxy, socket: order.socket ?? "" },
    healthzBindAddress: order.healthz ?? "",
    metricsBindAddress: order.metrics ?? "",
    bindAddressHardFail: order.hardFail ?? false,
    enableProfiling: true,
    nodePortAddresses: order.nodePortAddresses ?? null,
  };
  const servers = new NodeServers({
    config,
    mode: "iptables",
    periods: selectedPeriods(config),
    families: ["IPv4", "IPv6"],
    metrics: new ProxyMetrics(),
    log,
    verbosity,
    flags: () => [],
    version: "0.1.0",
    emulationVersion: "1.36",
  });
  await servers.start(new AbortController().signal);
  for (const family of ["IPv4", "IPv6"] as const) offer(family, order, servers);
  // Ports are opened in the background, but at once: all pending work gets its turns.
  await settled();
  await Deno.stdout.write(new TextEncoder().encode("ready\n"));
  for await (const _chunk of Deno.stdin.readable) { /* until it ends */ }
  await servers.stop();
}

function offer(family: IpFamily, { services = [] }: ServeOrder, servers: NodeServers): void {
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
  servers.observer.synced({ ...syncOutcome(family), state: tracker.checkout().state });
}

if (import.meta.main) await serve(JSON.parse(Deno.args[0] ?? "{}"));
