import { assertEquals, assertStringIncludes } from "@std/assert";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import type { QuarantinedService } from "../../backend/backend.ts";
import { SyncError } from "../../errors.ts";
import type { SyncFailure, SyncOutcome } from "../../sync/family_runner.ts";
import { StatusRecord } from "./status_record.ts";
import type { SyncStatus } from "./status_document.ts";

const START_MS = Date.UTC(2026, 10, 22, 18, 0, 0);

/** A record, and a clock that each event moves on by a second. */
function recorded(families: readonly ("IPv4" | "IPv6")[] = ["IPv4"]) {
  let nowMs = START_MS;
  const record = new StatusRecord(families, () => nowMs);
  return {
    record,
    synced(change: Partial<SyncOutcome> = {}): void {
      nowMs += 1_000;
      record.observer.synced({ ...syncOutcome(change.family ?? "IPv4"), ...change });
    },
    failed(change: Partial<SyncFailure> = {}): void {
      nowMs += 1_000;
      const error = new SyncError("sync", "apply", "the tool said no");
      record.observer.failed({ family: "IPv4", full: false, error, durationMs: 7, ...change });
    },
    later: (ms: number) => void (nowMs += ms),
  };
}

const services = (count: number): string[] => Array.from({ length: count }, (_, i) => `shop/s${i}`);

const REPORT = {
  commands: 2,
  bytes: 300,
  written: { nat: 4 },
  total: { nat: 90 },
  phasesMs: { plan: 1, apply: 2 },
};
/** Status after a full sync and then a partial one of twelve Services with {@linkcode REPORT}. */
const LAST_SYNC: SyncStatus = {
  time: "2026-11-22T18:00:02.000Z",
  kind: "partial",
  durationMs: 3,
  phasesMs: { plan: 1, apply: 2 },
  changed: 12,
  services: services(10),
  written: { nat: 4 },
  commands: 2,
  bytes: 300,
};

Deno.test("syncs are reported with their kind, phases and some of the Services that changed", () => {
  const { record, synced, failed } = recorded(["IPv6", "IPv4"]);
  assertEquals(Object.keys(record.families), ["IPv4", "IPv6"]);
  assertEquals(record.families.IPv4?.lastSync, null);
  const state = {
    ...syncOutcome("IPv4").state,
    services: new Map([["shop/a", []], ["shop/b", []]]),
    endpointCount: 9,
    tooLarge: new Map(),
  };
  synced({ report: REPORT, state });
  synced({ full: false, services: services(12), report: REPORT, state, durationMs: 3 });
  failed();
  const status = record.families.IPv4;
  if (status === undefined) throw new TypeError("no IPv4");
  assertEquals(
    { ...status, recent: [] },
    {
      services: 2,
      endpoints: 9,
      rules: { nat: 90 },
      syncs: { full: 1, partial: 1, failed: 1 },
      lastSync: LAST_SYNC,
      lastFullSync: {
        ...LAST_SYNC,
        time: "2026-11-22T18:00:01.000Z",
        kind: "full",
        durationMs: 1,
        changed: 2,
        services: [],
      },
      lastFailure: {
        time: "2026-11-22T18:00:03.000Z",
        kind: "partial",
        durationMs: 7,
        error: status.lastFailure?.error ?? "",
      },
      latency: { count: 0, p50Ms: null, p99Ms: null, maxMs: null },
      recent: [],
    },
  );
  assertStringIncludes(status.lastFailure?.error ?? "", "the tool said no");
  assertEquals(
    status.recent.map(({ timeMs, kind, ok, changed }) => [timeMs - START_MS, kind, ok, changed]),
    [[1_000, "full", true, 2], [2_000, "partial", true, 12], [3_000, "partial", false, 0]],
  );
  const [, partial, failure] = status.recent;
  assertEquals([partial?.services, partial?.written], [services(10), { nat: 4 }]);
  assertStringIncludes(failure?.error ?? "", "the tool said no");
  assertEquals(record.families.IPv6?.syncs, { full: 0, partial: 0, failed: 0 });
});

Deno.test("latencies are those of the last changes, and one sync of thousands does not crowd out the others", () => {
  const { record, synced } = recorded();
  const ago = (...ms: number[]) => (nowMs: number) => ms.map((each) => nowMs - each);
  synced({ triggerTimesMs: ago(400, 100)(START_MS + 1_000) });
  // The API server's clock is ahead.
  synced({ triggerTimesMs: [START_MS + 60_000] });
  const { latency, recent = [] } = record.families.IPv4 ?? {};
  assertEquals(latency, { count: 3, p50Ms: 100, p99Ms: 400, maxMs: 400 });
  assertEquals(recent.map(({ latencyMs }) => latencyMs), [400, 0]);
  synced({ triggerTimesMs: Array.from({ length: 5_000 }, () => START_MS) });
  assertEquals(record.families.IPv4?.latency, { count: 67, p50Ms: 3_000, p99Ms: 3_000, maxMs: 3_000 });
});

Deno.test("what is kept does not grow with the number of syncs", () => {
  const { record, synced } = recorded();
  for (let i = 0; i < 2_000; i++) synced({ full: false, triggerTimesMs: [START_MS] });
  const status = record.families.IPv4;
  assertEquals(
    [status?.recent.length, status?.latency.count, status?.syncs.partial],
    [120, 512, 2_000],
  );
});

Deno.test("a Service is in quarantine since its problem came, and a list that is the same again is not gone through", () => {
  const { record, synced } = recorded();
  const report = (quarantined: { service: string; problem: string }[]) =>
    syncOutcome("IPv4", { quarantined }).report;
  const first = report([{ service: "shop/a", problem: "no" }, { service: "shop/b", problem: "never" }]);
  synced({ report: first });
  synced({ report: first });
  synced({
    report: report([{ service: "shop/a", problem: "no" }, { service: "shop/b", problem: "not yet" }]),
  });
  synced({ family: "IPv4", report: syncOutcome("IPv4").report });
  assertEquals(record.quarantine, {
    count: 2,
    services: [
      { family: "IPv4", service: "shop/a", problem: "no", since: "2026-11-22T18:00:01.000Z" },
      { family: "IPv4", service: "shop/b", problem: "not yet", since: "2026-11-22T18:00:03.000Z" },
    ],
  });
  synced({ report: report(services(250).map((service) => ({ service, problem: "no" }))) });
  assertEquals([record.quarantine.count, record.quarantine.services.length], [250, 100]);
  synced({ report: report([]) });
  assertEquals(record.quarantine, { count: 0, services: [] });
});

Deno.test("Services may look different after a sync that looked at some, or whose refusals are others", () => {
  const { record, synced } = recorded();
  const isNews = (change: Partial<SyncOutcome>): boolean => {
    const { generation } = record;
    synced(change);
    return record.generation !== generation;
  };
  const refusing = (quarantined: readonly QuarantinedService[]) => ({
    full: false,
    services: [],
    report: { ...REPORT, quarantined },
  });
  const one = [{ service: "a/x", problem: "no" }];
  assertEquals(isNews({}), true);
  assertEquals(isNews({ full: false, services: ["a/x"] }), true);
  assertEquals(isNews({ full: false, services: [] }), false);
  assertEquals(isNews(refusing(one)), true);
  assertEquals([...record.quarantined], [["a/x", "no"]]);
  assertEquals(isNews(refusing(one)), false);
  assertEquals(isNews(refusing([])), true);
  assertEquals(isNews(refusing([])), false);
  assertEquals([...record.states.keys()], ["IPv4"]);
});

Deno.test("a sync that only takes Services out of quarantine has looked at these", () => {
  const { record, synced } = recorded();
  const quarantined = [{ service: "shop/a", problem: "no" }, { service: "shop/b", problem: "no" }];
  const partial = { full: false, services: ["shop/b"] };
  synced({ ...partial, report: { ...REPORT, quarantined } });
  synced({ ...partial, report: { ...REPORT, quarantined: [] } });
  synced({ ...partial, services: [], report: { ...REPORT, quarantined: [] } });
  const { recent = [], lastSync } = record.families.IPv4 ?? {};
  assertEquals(recent.map(({ changed, services }) => [changed, services]), [
    [1, ["shop/b"]],
    [2, ["shop/b", "shop/a"]],
    [0, []],
  ]);
  assertEquals(lastSync?.changed, 0);
});

Deno.test("damage of rules is reported, and what became of it", () => {
  const { record, later } = recorded(["IPv4", "IPv6"]);
  record.drift.found("IPv4", ["nat KUBE-SERVICES"]);
  later(1_000);
  record.drift.found("IPv6", ["filter KUBE-FORWARD"]);
  const outcomes = (): unknown => record.drifts.recent.map(({ family, outcome }) => [family, outcome]);
  assertEquals(outcomes(), [["IPv4", "pending"], ["IPv6", "pending"]]);
  record.drift.repaired("IPv4", false);
  record.drift.repaired("IPv6", true);
  assertEquals(outcomes(), [["IPv4", "repaired"], ["IPv6", "lasting"]]);
  assertEquals([record.drifts.found, record.drifts.repaired], [2, 1]);
  for (let i = 0; i < 100; i++) record.drift.found("IPv4", []);
  assertEquals([record.drifts.found, record.drifts.recent.length], [102, 20]);
});
