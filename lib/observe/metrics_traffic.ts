/**
 * What Services' counters say, as metrics.
 *
 * @module
 */
import type { ServiceTraffic, Traffic } from "../model/service_traffic.ts";
import { Counter, type Registry } from "./prom_client.ts";

const LABELS = ["ip_family", "namespace", "service", "port", "port_name", "protocol", "direction"] as const;

/**
 * Adds `kproxy_service_packets_total` and `kproxy_service_bytes_total`: at most two series each for a port of a Service and a
 * family, and none before its first packet. `read` is asked at every scrape and must not reject.
 */
export function addTrafficMetrics(
  registry: Registry,
  read: () => Promise<readonly ServiceTraffic[]>,
): void {
  // Both metrics are collected at the same time: one reading serves them.
  let reading: Promise<readonly ServiceTraffic[]> | undefined;
  const readOnce = (): Promise<readonly ServiceTraffic[]> =>
    reading ??= read().finally(() => {
      reading = undefined;
    });
  const add = (name: string, help: string, count: keyof Traffic): void => {
    new Counter({
      name,
      help: `[ALPHA] ${help}`,
      labelNames: [...LABELS],
      registers: [registry],
      async collect(): Promise<void> {
        const all = await readOnce();
        this.reset();
        for (const { family, namespacedName, port, portName, protocol, incoming, outgoing } of all) {
          const slash = namespacedName.indexOf("/");
          const labels = {
            ip_family: family,
            namespace: namespacedName.slice(0, slash),
            service: namespacedName.slice(slash + 1),
            port: String(port),
            port_name: portName,
            protocol,
          };
          this.inc({ ...labels, direction: "in" }, incoming[count]);
          this.inc({ ...labels, direction: "out" }, outgoing[count]);
        }
      },
    });
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
