import { assertEquals, assertStringIncludes } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import type { QuarantinedService } from "../backend/backend.ts";
import type { IpFamily } from "../model/objects.ts";
import { syncOutcome } from "../../tests/support/sync_outcome.ts";
import { ProxyMetrics } from "../observe/metrics.ts";
import { observeQuarantine } from "./sync_observer.ts";
import type { SyncOutcome } from "./family_runner.ts";

// prom-client reads the environment when it is imported, so this test keeps its rights.

function outcome(family: IpFamily, quarantined: readonly QuarantinedService[]): SyncOutcome {
  return syncOutcome(family, { quarantined });
}

Deno.test("each quarantined Service is reported once, its release too, and the metric follows", async () => {
  const metrics = new ProxyMetrics({ mode: "nftables" });
  const heard: string[] = [];
  const { log, lines } = recordingLog();
  const observer = observeQuarantine({
    log,
    metrics,
    onQuarantined: ({ family, service, problem }) => heard.push(`${family} ${service} ${problem}`),
  });
  const gauge = async (): Promise<string[]> =>
    (await metrics.registry.metrics()).split("\n").filter((line) =>
      line.startsWith("kproxy_quarantined_services{")
    );

  observer.synced(syncOutcome("IPv4"));
  assertEquals(await gauge(), [], "a mode without quarantine has no series");
  observer.synced(outcome("IPv4", [{ service: "a/bad", problem: "File exists" }]));
  observer.synced(outcome("IPv4", [{ service: "a/bad", problem: "File exists" }]));
  assertEquals(heard, ["IPv4 a/bad File exists"]);
  assertEquals(await gauge(), ['kproxy_quarantined_services{ip_family="IPv4"} 1']);
  observer.synced(outcome("IPv6", [{ service: "a/bad", problem: "File exists" }]));
  observer.synced(
    outcome("IPv4", [{ service: "a/bad", problem: "too long" }, { service: "b/bad", problem: "no" }]),
  );
  assertEquals(heard.slice(1), ["IPv6 a/bad File exists", "IPv4 a/bad too long", "IPv4 b/bad no"]);
  observer.synced(outcome("IPv4", [{ service: "b/bad", problem: "no" }]));
  observer.synced(outcome("IPv4", []));
  assertEquals(await gauge(), [
    'kproxy_quarantined_services{ip_family="IPv4"} 0',
    'kproxy_quarantined_services{ip_family="IPv6"} 1',
  ]);
  assertEquals(lines.filter((line) => line.includes("no longer quarantined")).length, 2);
  assertStringIncludes(lines.join(""), "too long");
});
