import { assert, assertEquals, assertRejects } from "@std/assert";
import type { ApplyReport, FamilyProxier, SyncRequest } from "../backend/backend.ts";
import { SyncError } from "../errors.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import type { EndpointSlice, Service } from "../model/objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../tests/support/model_objects.ts";
import { Reconciler, type ReconcilerOptions, type SyncFailure, type SyncOutcome } from "./family_runner.ts";

function service(name: string, port = 80, protocol: "TCP" | "UDP" = "TCP"): Service {
  const clusterIP = `10.96.0.${name.charCodeAt(0)}`;
  return testService({ namespace: "ns", name, clusterIP, ports: [testPort({ port, protocol })] });
}

function slice(serviceName: string, ips: readonly string[], protocol: "TCP" | "UDP" = "TCP"): EndpointSlice {
  return testSlice({
    namespace: "ns",
    name: `${serviceName}-1`,
    serviceName,
    ports: [testSlicePort({ protocol })],
    endpoints: ips.map((ip) => testSliceEndpoint(ip)),
    lastChangeTriggerTimeMs: 1000,
  });
}

const REPORT: ApplyReport = { commands: 1, bytes: 0, written: {}, total: {} };

/** A mode that keeps, per Service, the ports and endpoints it was last given; like the kernel, it forgets nothing by itself. */
class FakeProxier implements FamilyProxier {
  readonly family = "IPv4";
  readonly kernel = new Map<string, string>();
  readonly requests: ("all" | string[])[] = [];
  failures = 0;
  /** Runs in the middle of the next sync. */
  during: () => void = () => {};

  async sync({ state, changed }: SyncRequest): Promise<ApplyReport> {
    const names = changed === "all"
      ? [...new Set([...this.kernel.keys(), ...state.services.keys()])]
      : [...changed];
    this.requests.push(changed === "all" ? "all" : [...changed].sort());
    const wanted = names.map((name) => {
      const ports = state.services.get(name);
      const endpoints = [...state.endpoints.get(name)?.values() ?? []].flat().map((e) => e.key);
      return [name, ports === undefined ? undefined : `${ports.map((p) => p.port)} ${endpoints}`] as const;
    });
    await Promise.resolve();
    this.during();
    this.during = () => {};
    // A failing restore leaves half of the work done.
    const done = this.failures > 0 ? wanted.slice(0, wanted.length / 2) : wanted;
    for (const [name, text] of done) {
      text === undefined ? this.kernel.delete(name) : this.kernel.set(name, text);
    }
    if (this.failures-- > 0) throw new SyncError("fake", "apply", "restore failed");
    this.failures = 0;
    return REPORT;
  }

  findDamage(): Promise<false> {
    return Promise.resolve(false);
  }
}

interface Bench {
  tracker: ChangeTracker;
  proxier: FakeProxier;
  reconciler: Reconciler;
  outcomes: SyncOutcome[];
  failures: SyncFailure[];
  clock: { nowMs: number };
}

function bench(more: Pick<ReconcilerOptions, "afterSync"> = {}): Bench {
  const tracker = new ChangeTracker({ family: "IPv4", node: { name: "node-a", zone: "" } });
  const proxier = new FakeProxier();
  const outcomes: SyncOutcome[] = [];
  const failures: SyncFailure[] = [];
  const clock = { nowMs: 0 };
  const reconciler = new Reconciler({
    tracker,
    proxier,
    observer: { synced: (outcome) => outcomes.push(outcome), failed: (failure) => failures.push(failure) },
    nowMs: () => clock.nowMs,
    ...more,
  });
  return { tracker, proxier, reconciler, outcomes, failures, clock };
}

Deno.test(
  "the first sync is full, later ones name only the Services that changed",
  { permissions: "none" },
  async () => {
    const { tracker, proxier, reconciler } = bench();
    tracker.updateService(undefined, service("a"));
    await reconciler.reconcile();
    tracker.updateService(undefined, service("b"));
    tracker.updateEndpointSlice(slice("a", ["10.0.0.1"]), false);
    await reconciler.reconcile();
    assertEquals(proxier.requests, ["all", ["ns/a", "ns/b"]]);
    assertEquals(proxier.kernel, new Map([["ns/a", "80 10.0.0.1:8080"], ["ns/b", "80 "]]));
  },
);

Deno.test(
  "a repair that is asked for while a sync runs is done by the next one",
  { permissions: "none" },
  async () => {
    const { tracker, proxier, reconciler } = bench();
    tracker.updateService(undefined, service("a"));
    tracker.updateService(undefined, service("b"));
    await reconciler.reconcile();
    tracker.updateEndpointSlice(slice("b", ["10.0.0.1"]), false);
    proxier.during = () => reconciler.requireFullSync();
    await reconciler.reconcile();
    await reconciler.reconcile();
    assertEquals(proxier.requests, ["all", ["ns/b"], "all"]);
  },
);

Deno.test("a failed sync forgets nothing and makes the next one full", { permissions: "none" }, async () => {
  const { tracker, proxier, reconciler, failures, outcomes } = bench();
  await reconciler.reconcile();
  tracker.updateEndpointSlice(slice("a", ["10.0.0.1"], "UDP"), false);
  tracker.updateService(undefined, service("a", 80, "UDP"));
  proxier.failures = 2;
  for (let i = 0; i < 2; i++) await assertRejects(() => reconciler.reconcile(), SyncError, "restore failed");
  await reconciler.reconcile();
  assertEquals(proxier.requests.slice(1), [["ns/a"], "all", "all"]);
  assertEquals(failures.map((failure) => failure.full), [false, true]);
  const last = outcomes.at(-1);
  assertEquals(last?.triggerTimesMs, [1000]);
  assertEquals([last?.udpEndpointsChanged, last?.udpServicesChanged], [true, true]);
  await reconciler.reconcile();
  assertEquals(outcomes.at(-1)?.triggerTimesMs, []);
  const { udpEndpointsChanged, udpServicesChanged } = outcomes.at(-1) ?? {};
  assertEquals([udpEndpointsChanged, udpServicesChanged], [false, false]);
});

Deno.test("work after a sync sees its outcome, and the next sync waits for it", {
  permissions: "none",
}, async () => {
  const order: string[] = [];
  const end = Promise.withResolvers<void>();
  const { proxier, reconciler } = bench({
    afterSync: async ({ full }) => {
      order.push(`after ${full ? "full" : "partial"}`);
      await end.promise;
      order.push("done");
    },
  });
  proxier.during = () => order.push("sync");
  const running = reconciler.reconcile().then(() => order.push("reconciled"));
  while (order.length < 2) await Promise.resolve();
  end.resolve();
  await running;
  assertEquals(order, ["sync", "after full", "done", "reconciled"]);
  proxier.failures = 1;
  await assertRejects(() => reconciler.reconcile(), SyncError);
  assertEquals(order.length, 4, "nothing follows a failed sync");
});

Deno.test(
  "a full sync asked for during a sync is done by the next one",
  { permissions: "none" },
  async () => {
    const { proxier, reconciler } = bench();
    await reconciler.reconcile();
    proxier.during = () => reconciler.requireFullSync();
    await reconciler.reconcile();
    await reconciler.reconcile();
    await reconciler.reconcile();
    assertEquals(proxier.requests, ["all", [], "all", []]);
  },
);

Deno.test("an hour after the last full sync another one is due, unless there are over 1000 endpoints", {
  permissions: "none",
}, async () => {
  const small = bench();
  await small.reconciler.reconcile();
  small.clock.nowMs += 3_599_999;
  await small.reconciler.reconcile();
  small.clock.nowMs += 1;
  await small.reconciler.reconcile();
  assertEquals(small.proxier.requests, ["all", [], "all"]);

  const large = bench();
  const ips = Array.from({ length: 1001 }, (_, i) => `10.1.${i >> 8}.${i & 255}`);
  large.tracker.updateService(undefined, service("a"));
  large.tracker.updateEndpointSlice(slice("a", ips), false);
  await large.reconciler.reconcile();
  large.clock.nowMs += 3_600_000;
  await large.reconciler.reconcile();
  assertEquals(large.proxier.requests, ["all", []]);
});

Deno.test("an unexpected error counts as a failed sync", { permissions: "none" }, async () => {
  const { proxier, reconciler, failures } = bench();
  proxier.during = () => {
    throw new TypeError("bug");
  };
  await assertRejects(() => reconciler.reconcile(), SyncError, "bug");
  assert(failures[0]?.error.cause instanceof TypeError);
});
