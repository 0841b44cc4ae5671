/**
 * What Services' counters say, as metrics.
 *
 * @module
 */
import type { ServiceTraffic, Traffic } from "../model/service_traffic.ts";
import { Counter, type Registry, type WritesOwnText } from "./prom_client.ts";

/**
 * Adds `kproxy_service_packets_total` and `kproxy_service_bytes_total`: at most two series each for a port of a Service and a
 * family, and none before its first packet. `read` is asked at every scrape and must not reject.
 */
export function addTrafficMetrics(
  registry: Registry,
  read: () => Promise<readonly ServiceTraffic[]>,
): void {
  // Both metrics are asked for at the same time: one reading serves them.
  let reading: Promise<readonly ServiceTraffic[]> | undefined;
  const readOnce = (): Promise<readonly ServiceTraffic[]> =>
    reading ??= read().finally(() => {
      reading = undefined;
    });
  const add = (name: string, help: string, count: keyof Traffic): void => {
    registry.registerMetric(new TrafficCounter({ name, help, count, read: readOnce }));
  };
  add(
    "kproxy_service_packets_total",
    "Packets between clients and endpoints of a Service port on this node",
    "packets",
  );
  add(
    "kproxy_service_bytes_total",
    "Bytes of packets between clients and endpoints of a Service port on this node, IP headers included",
    "bytes",
  );
}

interface TrafficCounterOptions {
  readonly name: string;
  readonly help: string;
  readonly count: keyof Traffic;
  readonly read: () => Promise<readonly ServiceTraffic[]>;
}

/** Of each series, in this order. */
const LABELS = ["ip_family", "namespace", "service", "port", "port_name", "protocol", "direction"];

/** Keeps no series: of 10,000 Services the library would take half a second, of each scrape, in which nothing else runs. */
class TrafficCounter extends Counter implements WritesOwnText {
  readonly #options: TrafficCounterOptions;

  constructor(options: TrafficCounterOptions) {
    super({ name: options.name, help: `[ALPHA] ${options.help}`, labelNames: LABELS, registers: [] });
    this.#options = options;
  }

  async ownText(): Promise<string> {
    const { name, help, count, read } = this.#options;
    const lines = [`# HELP ${name} [ALPHA] ${help}`, `# TYPE ${name} counter`];
    for (const { family, namespacedName, port, portName, protocol, incoming, outgoing } of await read()) {
      const slash = namespacedName.indexOf("/");
      const [namespace, service] = [namespacedName.slice(0, slash), namespacedName.slice(slash + 1)];
      // Names of objects and ports hold nothing that would have to be escaped.
      const series =
        `${name}{ip_family="${family}",namespace="${namespace}",service="${service}",port="${port}",port_name="${portName}",protocol="${protocol}",direction=`;
      lines.push(`${series}"in"} ${incoming[count]}`, `${series}"out"} ${outgoing[count]}`);
    }
    return lines.join("\n");
  }
}
