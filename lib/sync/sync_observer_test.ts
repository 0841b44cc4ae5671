import { assertEquals, assertStringIncludes } from "@std/assert";
import { ChangeTracker } from "../model/change_tracker.ts";
import { NODE_A, testService, testSlice, testSliceEndpoint } from "../../tests/support/model_objects.ts";
import { createLogger, silentLogger } from "../observe/log.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { metricsText } from "../observe/prom_client.ts";
import { EventHandlers, type HandledFamily } from "./event_handlers.ts";
import { Reconciler, type SyncObserver } from "./family_runner.ts";
import { joinObservers, observeChanges, observeSyncs } from "./sync_observer.ts";

// prom-client reads the environment when it is imported, so these tests keep their rights.

interface Bench {
  readonly metrics: ProxyMetrics;
  readonly handlers: EventHandlers;
  readonly reconcilers: Reconciler[];
  /** The value of one series of `kubeproxy_sync_proxy_rules_…`; undefined if it is absent. */
  value(series: string): Promise<number | undefined>;
}

/** Dual-stack event handlers whose proxiers write nothing. */
function bench(fail = false): Bench {
  const metrics = new ProxyMetrics();
  const observer = observeSyncs(silentLogger, metrics, () => 5000, "servicePorts");
  const lanes = (["IPv4", "IPv6"] as const).map((family): HandledFamily => ({
    family,
    tracker: new ChangeTracker({ family, node: NODE_A }),
    requestSync: () => {},
  }));
  const reconcilers = lanes.map(({ tracker, family }) =>
    new Reconciler({
      tracker,
      proxier: {
        family,
        sync: () =>
          fail
            ? Promise.reject(new Error("no"))
            : Promise.resolve({ commands: 0, bytes: 0, written: { nat: 2 }, total: { nat: 7, filter: 3 } }),
        findDamage: () => Promise.resolve(false),
      },
      observer,
      nowMs: () => 0,
    })
  );
  const handlers = new EventHandlers({
    runners: lanes,
    nodeName: NODE_A.name,
    onNode: () => {},
    onRejected: () => {},
    changes: observeChanges(metrics),
  });
  return {
    metrics,
    handlers,
    reconcilers,
    value: async (series) => {
      const line = (await metricsText(metrics.registry)).split("\n")
        .find((text) => text.startsWith(`kubeproxy_sync_proxy_rules_${series} `));
      return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(" ") + 1));
    },
  };
}

Deno.test("events of Services count once per family, those of slices in their own", async () => {
  const { handlers, reconcilers, value } = bench();
  handlers.events(["a", "b", "c"].map((name) => ({ type: "add", object: testService({ name }) })));
  assertEquals(await value("service_changes_total"), 6);
  for (const addressType of ["IPv4", "IPv6", "FQDN"]) {
    const ip = addressType === "IPv4" ? "10.0.0.1" : addressType === "IPv6" ? "fd00::1" : "example.org";
    const endpoints = [testSliceEndpoint(ip)];
    handlers.events([{
      type: "add",
      object: testSlice({ name: addressType, serviceName: "a", addressType, endpoints }),
    }]);
  }
  assertEquals(await value("endpoint_changes_total"), 2);
  assertEquals(await value("endpoint_changes_pending"), 2);
  await reconcilers[0]?.reconcile();
  assertEquals([await value("endpoint_changes_pending"), await value("service_changes_pending")], [0, 0]);
});

Deno.test("Services count as pending until a sync takes them", async () => {
  const { handlers, reconcilers, value } = bench();
  const before = testService({ name: "a" });
  handlers.events([{ type: "add", object: before }]);
  // The newest of the two families says 0: the Service has no IPv6 port.
  assertEquals(await value("service_changes_pending"), 0);
  const both = ["10.96.0.9", "fd00::9"];
  const dual = testService({ name: "a", clusterIPs: both, ipFamilies: ["IPv4", "IPv6"] });
  handlers.events([{ type: "update", old: before, object: dual }]);
  assertEquals(await value("service_changes_pending"), 1);
  await reconcilers[1]?.reconcile();
  assertEquals(await value("service_changes_pending"), 0);
});

Deno.test("a sync tells rules, the last success and traffic without local endpoints", async () => {
  const { handlers, reconcilers, value } = bench();
  const service = testService({ internalTrafficPolicy: "Local" });
  const slice = testSlice({ endpoints: [testSliceEndpoint("10.0.0.1", { nodeName: "node-b" })] });
  handlers.events([{ type: "add", object: service }, { type: "add", object: slice }]);
  const missing = (policy: string): Promise<number | undefined> =>
    value(`no_local_endpoints_total{ip_family="IPv4",traffic_policy="${policy}"}`);
  assertEquals([await missing("internal"), await missing("external")], [undefined, undefined]);
  await reconcilers[0]?.reconcile();
  assertEquals([await missing("internal"), await missing("external")], [1, 0]);
  assertEquals(await value('iptables_total{ip_family="IPv4",table="nat"}'), 7);
  assertEquals(await value('iptables_last{ip_family="IPv4",table="nat"}'), 2);
  assertEquals(await value('iptables_last{ip_family="IPv4",table="filter"}'), 0);
  assertEquals(await value('last_timestamp_seconds{ip_family="IPv4"}'), 5);
  handlers.events([{ type: "delete", old: slice }]);
  await reconcilers[0]?.reconcile();
  assertEquals(await missing("internal"), 0);
});

Deno.test("a log line never counts less than no rules written, whatever was removed", async () => {
  const metrics = new ProxyMetrics();
  const lines: Record<string, unknown>[] = [];
  const write = (line: string): number => lines.push(JSON.parse(line));
  const log = createLogger({ format: "json", verbosity: 2, write, nowMs: () => 0, pid: 1 });
  const reconciler = new Reconciler({
    tracker: new ChangeTracker({ family: "IPv4", node: NODE_A }),
    proxier: {
      family: "IPv4",
      sync: () =>
        Promise.resolve({ commands: 1, bytes: 9, written: { nat: -4, filter: 1 }, total: { nat: 7 } }),
      findDamage: () => Promise.resolve(false),
    },
    observer: observeSyncs(log, metrics, () => 5000, "servicePorts"),
    nowMs: () => 0,
  });
  await reconciler.reconcile();
  assertEquals(lines.map(({ rulesWritten, rules }) => [rulesWritten, rules]), [[0, 7]]);
  const text = await metricsText(metrics.registry);
  assertStringIncludes(text, 'kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"} -4\n');
});

Deno.test("a change that was refused is counted, though the sync went well", async () => {
  const metrics = new ProxyMetrics();
  const reconciler = new Reconciler({
    tracker: new ChangeTracker({ family: "IPv4", node: NODE_A }),
    proxier: {
      family: "IPv4",
      sync: () => Promise.resolve({ commands: 2, bytes: 9, written: {}, total: {}, isChangeRefused: true }),
      findDamage: () => Promise.resolve(false),
    },
    observer: observeSyncs(silentLogger, metrics, () => 5000, "servicePorts"),
    nowMs: () => 0,
  });
  await reconciler.reconcile();
  const text = await metricsText(metrics.registry);
  for (const name of ["restore", "partial_restore"]) {
    assertStringIncludes(
      text,
      `kubeproxy_sync_proxy_rules_iptables_${name}_failures_total{ip_family="IPv4"} 1\n`,
    );
  }
  assertStringIncludes(text, 'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 5\n');
});

Deno.test("a sync that fails is counted and is no success", async () => {
  const { reconcilers, value } = bench(true);
  await reconcilers[0]?.reconcile().catch((error: Error) => assertEquals(error.name, "SyncError"));
  assertEquals(await value('iptables_restore_failures_total{ip_family="IPv4"}'), 1);
  assertEquals(await value('duration_seconds_count{ip_family="IPv4"}'), 1);
  assertEquals(await value('last_timestamp_seconds{ip_family="IPv4"}'), undefined);
});

Deno.test("joined observers are reported in their order, those without a beginning too", async () => {
  const told: string[] = [];
  const one = (name: string): SyncObserver => ({
    synced: () => told.push(`${name} synced`),
    failed: () => told.push(`${name} failed`),
  });
  const observer = joinObservers({ ...one("a"), begun: ({ family }) => told.push(`a ${family}`) }, one("b"));
  for (const fail of [false, true]) {
    const reconciler = new Reconciler({
      tracker: new ChangeTracker({ family: "IPv4", node: NODE_A }),
      proxier: {
        family: "IPv4",
        sync: () =>
          fail
            ? Promise.reject(new Error("no"))
            : Promise.resolve({ commands: 0, bytes: 0, written: {}, total: {} }),
        findDamage: () => Promise.resolve(false),
      },
      observer,
      nowMs: () => 0,
    });
    await reconciler.reconcile().catch((error: Error) => assertEquals(error.name, "SyncError"));
  }
  assertEquals(told, ["a IPv4", "a synced", "b synced", "a IPv4", "a failed", "b failed"]);
});
