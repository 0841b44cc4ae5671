import { assert, assertEquals } from "@std/assert";
import {
  addProgramMetrics,
  addTrafficMetrics,
  ReloadRecord,
  SnapshotMetrics,
  systemUsage,
} from "./metrics_kproxy.ts";
import { metricsText, Registry } from "./prom_client.ts";
import type { ServiceTraffic } from "../model/service_traffic.ts";
import { ProxyMetrics } from "./metrics.ts";

async function series(featureGates: Record<string, boolean> = {}): Promise<Map<string, string>> {
  const registry = new Registry();
  addProgramMetrics(registry, {
    version: "0.1.0",
    featureGates,
    startMs: 1_735_787_045_500,
    usage: () => Promise.resolve({ cpuSeconds: 1.5, residentBytes: 4096 }),
  });
  const lines = (await metricsText(registry)).split("\n").filter((line) =>
    line !== "" && !line.startsWith("#")
  );
  return new Map(lines.map((line) => {
    const space = line.lastIndexOf(" ");
    return [line.slice(0, space), line.slice(space + 1)];
  }));
}

Deno.test("the build is reported with kproxy's own version", async () => {
  const [name = ""] = [...(await series()).keys()].filter((key) => key.startsWith("kubernetes_build_info"));
  for (
    const label of ['major="0"', 'minor="1"', 'git_version="v0.1.0"', `compiler="deno ${Deno.version.deno}"`]
  ) {
    assert(name.includes(label), name);
  }
});

Deno.test("gates are reported by stage, as they are set", async () => {
  const gate = (name: string, stage: string): string =>
    `kubernetes_feature_enabled{name="${name}",stage="${stage}"}`;
  const usual = await series();
  assertEquals(usual.get(gate("NFTablesProxyMode", "")), "1");
  assertEquals(usual.get(gate("ServiceTrafficDistribution", "")), "1");
  assertEquals(usual.get(gate("LoggingAlphaOptions", "ALPHA")), "0");
  assertEquals(usual.get(gate("ComponentStatusz", "BETA")), "1");
  const set = await series({ LoggingAlphaOptions: true, AllBeta: false });
  assertEquals(set.get(gate("LoggingAlphaOptions", "ALPHA")), "1");
  assertEquals(set.get(gate("ComponentStatusz", "BETA")), "0");
});

Deno.test("the process is reported as far as the runtime knows it", async () => {
  const all = await series();
  assertEquals([...all].filter(([name]) => name.startsWith("process_")), [
    ["process_cpu_seconds_total", "1.5"],
    ["process_resident_memory_bytes", "4096"],
    ["process_start_time_seconds", "1735787045.5"],
  ]);
});

/** CPU time of this process, as the kernel accounts for it in hundredths of a second. */
function kernelCpuSeconds(): number {
  const stat = Deno.readTextFileSync("/proc/self/stat");
  // After the name, which may hold blanks: state is field 0, utime and stime are 11 and 12.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

Deno.test("usage is real, and needs no permission", async () => {
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...[
        "run",
        "-q",
        "--no-prompt",
        "--ignore-env",
        "--config",
        import.meta.resolve("../../deno.json").slice(7),
      ],
      `data:application/typescript,${
        encodeURIComponent(
          `import { systemUsage } from ${JSON.stringify(import.meta.resolve("./metrics_kproxy.ts"))};
           console.log(JSON.stringify(await systemUsage()));`,
        )
      }`,
    ],
    stderr: "inherit",
  }).output();
  const child = JSON.parse(new TextDecoder().decode(stdout));
  assert(child.cpuSeconds > 0 && child.cpuSeconds < 1000, String(child.cpuSeconds));
  // This process runs other tests, too: only the kernel knows how long already.
  const [least, own, most] = [kernelCpuSeconds(), await systemUsage(), kernelCpuSeconds()];
  const account = `${least} ≤ ${own.cpuSeconds} ≤ ${most}`;
  assert(own.cpuSeconds > least - 0.1 && own.cpuSeconds < most + 0.1, account);
  for (const { residentBytes } of [own, child]) {
    assert(residentBytes > 10e6 && residentBytes < 10e9, String(residentBytes));
  }
});

async function values(registry: Registry): Promise<number[]> {
  const metrics = await registry.getMetricsAsJSON();
  return metrics.map((metric) => metric.values[0]?.value ?? Number.NaN);
}

Deno.test("refusals are counted, and a taken file says since when it is in force", async () => {
  const record = new ReloadRecord(1_000);
  const first = new Registry();
  record.addTo(first);
  assertEquals(await values(first), [0, 1, 1]);
  record.refused();
  record.refused();
  assertEquals(await values(first), [2, 0, 1]);
  record.taken(5_500);
  // The next proxy server has a registry of its own and goes on counting.
  const second = new Registry();
  record.addTo(second);
  assertEquals(await values(second), [2, 1, 5.5]);
});

Deno.test("the snapshot's metrics tell which one is in use, the last one written, and failures", async () => {
  const registry = new Registry();
  const metrics = new SnapshotMetrics();
  metrics.addTo(registry);
  const values = async (): Promise<Record<string, number | undefined>> =>
    Object.fromEntries(
      (await registry.getMetricsAsJSON()).map(({ name, values }) => [
        name.replace("kproxy_snapshot_", ""),
        values[0]?.value,
      ]),
    );
  const nothing = { in_use: 0, timestamp_seconds: 0, size_bytes: 0, write_failures_total: 0 };
  assertEquals(await values(), nothing);
  metrics.setInUse(1_500);
  assertEquals(await values(), { ...nothing, in_use: 1, timestamp_seconds: 1.5 });
  metrics.setInUse(null);
  metrics.saveFailed();
  assertEquals(await values(), { ...nothing, timestamp_seconds: 1.5, write_failures_total: 1 });
  metrics.saved({ savedAtMs: 2_500, bytes: 77 });
  assertEquals(await values(), {
    in_use: 0,
    timestamp_seconds: 2.5,
    size_bytes: 77,
    write_failures_total: 1,
  });
});

Deno.test("traffic is reported by Service, port and direction, from one reading; a Service that is gone is not reported", async () => {
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
