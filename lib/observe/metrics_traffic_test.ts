import { assertEquals } from "@std/assert";
import type { ServiceTraffic } from "../model/service_traffic.ts";
import { metricsText } from "./prom_client.ts";
import { addTrafficMetrics } from "./metrics_traffic.ts";
import { ProxyMetrics } from "./metrics.ts";

Deno.test("traffic is told by Service, port and direction, from one reading; who is gone is not told", async () => {
  const web: ServiceTraffic = {
    family: "IPv4",
    namespacedName: "shop/web",
    portName: "http",
    port: 80,
    protocol: "TCP",
    incoming: { packets: 7, bytes: 420 },
    outgoing: { packets: 5, bytes: 3_000_000_000_000 },
  };
  let traffic: readonly ServiceTraffic[] = [web];
  let readings = 0;
  const { registry } = new ProxyMetrics({ mode: "nftables" });
  addTrafficMetrics(registry, () => {
    readings++;
    return Promise.resolve(traffic);
  });
  const series = async (): Promise<string[]> =>
    (await metricsText(registry)).split("\n").filter((line) => line.startsWith("kproxy_service_"));
  const labels =
    'ip_family="IPv4",namespace="shop",service="web",port="80",port_name="http",protocol="TCP",direction=';
  const wanted = [
    `kproxy_service_packets_total{${labels}"in"} 7`,
    `kproxy_service_packets_total{${labels}"out"} 5`,
    `kproxy_service_bytes_total{${labels}"in"} 420`,
    `kproxy_service_bytes_total{${labels}"out"} 3000000000000`,
  ];
  assertEquals((await series()).sort(), wanted.sort());
  assertEquals([(await series()).sort(), readings], [wanted, 2]);
  traffic = [];
  assertEquals(await series(), []);
});
