import { assertEquals } from "@std/assert";
import type { NodeObject } from "../model/objects.ts";
import { testNode } from "../../tests/support/model_objects.ts";
import { isoTime } from "../text/words.ts";
import { HealthState } from "./health_state.ts";

const PURE = { permissions: "none" } as const;
const NODE = testNode();
const EPOCH_MS = 1_735_787_045_000;

/** A dual-stack proxy with a sync period of 30 s, whose loops have just begun. */
function bench(): { health: HealthState; clock: { ms: number }; at: (ms: number) => string } {
  const clock = { ms: 0 };
  const health = new HealthState({
    families: ["IPv6", "IPv4"],
    syncPeriodMs: 30_000,
    clock: { nowMs: () => clock.ms, epochMs: () => EPOCH_MS + clock.ms },
  });
  return { health, clock, at: (ms) => isoTime(EPOCH_MS + ms) };
}

/** The statuses of the three pages. */
function statuses(health: HealthState): [healthz: number, livez: number, readyz: number] {
  return [health.healthz().status, health.livez().status, health.readyz().status];
}

function reasons(health: HealthState): string[] {
  return JSON.parse(health.readyz().body).reasons;
}

function synced(): ReturnType<typeof bench> {
  const made = bench();
  made.health.started();
  made.health.synced("IPv4");
  made.health.synced("IPv6");
  return made;
}

Deno.test("a sync may wait for less than twice the sync period", PURE, () => {
  const { health, clock } = synced();
  health.queued("IPv4");
  clock.ms = 59_999;
  assertEquals(statuses(health), [200, 200, 200]);
  clock.ms = 60_000;
  assertEquals(statuses(health), [503, 503, 503]);
  assertEquals(reasons(health), ["IPv4: a sync has been waiting for 60 s"]);
  health.synced("IPv4");
  assertEquals(statuses(health), [200, 200, 200]);
});

Deno.test("asking again does not move the deadline", PURE, () => {
  const { health, clock } = synced();
  health.queued("IPv6");
  clock.ms = 30_000;
  health.queued("IPv6");
  clock.ms = 60_000;
  assertEquals(statuses(health), [503, 503, 503]);
});

Deno.test("one stuck family is enough, and the other one's success does not help it", PURE, () => {
  const { health, clock } = synced();
  health.queued("IPv4");
  health.queued("IPv6");
  clock.ms = 60_000;
  health.synced("IPv4");
  assertEquals(statuses(health), [503, 503, 503]);
  health.synced("IPv6");
  assertEquals(statuses(health), [200, 200, 200]);
});

Deno.test("a family that never started cannot be stuck", PURE, () => {
  const { health, clock } = bench();
  health.queued("IPv4");
  clock.ms = 120_000;
  assertEquals(statuses(health).slice(0, 2), [200, 200]);
});

Deno.test("before the first sync of every family it is alive but not ready", PURE, () => {
  const { health } = bench();
  assertEquals(statuses(health), [200, 200, 503]);
  health.started();
  health.synced("IPv4");
  assertEquals(statuses(health), [200, 200, 503]);
  assertEquals(reasons(health), ["IPv6: the first sync is not done"]);
});

Deno.test(
  "syncs that fail make it unready at once and unhealthy after a while, though none is asked for",
  PURE,
  () => {
    const { health, clock } = synced();
    health.failed("IPv4", "iptables apply: no");
    assertEquals(statuses(health), [200, 200, 503]);
    assertEquals(reasons(health), ["IPv4: the last sync failed: iptables apply: no"]);
    clock.ms = 59_000;
    health.failed("IPv4", "iptables apply: no");
    clock.ms = 60_000;
    assertEquals(statuses(health), [503, 503, 503]);
    health.synced("IPv4");
    assertEquals(statuses(health), [200, 200, 200]);
  },
);

Deno.test(
  "the Node decides only /healthz: never seen is fine, tainted, in deletion or deleted is not",
  PURE,
  () => {
    const cases: [string, NodeObject | undefined, number][] = [
      ["as usual", NODE, 200],
      ["cordoned", { ...NODE, taintKeys: ["node.kubernetes.io/unschedulable"] }, 200],
      ["to be removed by the autoscaler", { ...NODE, taintKeys: ["ToBeDeletedByClusterAutoscaler"] }, 503],
      ["in deletion", { ...NODE, deleting: true }, 503],
      ["deleted", undefined, 503],
    ];
    for (const [name, node, healthz] of cases) {
      const { health } = synced();
      assertEquals(statuses(health), [200, 200, 200], "never seen");
      health.setNode(node);
      assertEquals(statuses(health), [healthz, 200, 200], name);
      assertEquals(health.isProxyHealthy, true, name);
      health.setNode(NODE);
      assertEquals(statuses(health), [200, 200, 200], `${name}, then as usual again`);
    }
  },
);

Deno.test(
  "a family that the node cannot have is reported with what counts on it, and makes nothing unready",
  PURE,
  () => {
    const health = new HealthState({
      families: ["IPv4"],
      refused: [{ family: "IPv6", reason: "IPv6 is off" }],
      syncPeriodMs: 30_000,
      clock: { nowMs: () => 0, epochMs: () => EPOCH_MS },
    });
    health.started();
    health.synced("IPv4");
    const unserved = (): unknown => JSON.parse(health.readyz().body).unserved;
    assertEquals(unserved(), { IPv6: { reason: "IPv6 is off" } });
    health.setUse("IPv6", "Node node-a has the address fd00::1");
    assertEquals(unserved(), { IPv6: { reason: "IPv6 is off", use: "Node node-a has the address fd00::1" } });
    assertEquals([statuses(health), reasons(health)], [[200, 200, 200], []]);
    assertEquals(JSON.parse(synced().health.readyz().body).unserved, undefined);
  },
);

Deno.test("each watch that falls silent makes it unready, and nothing else", PURE, () => {
  for (const kind of ["services", "endpointslices", "nodes"] as const) {
    const { health, clock } = synced();
    for (const other of ["services", "endpointslices", "nodes"] as const) health.heard(other);
    clock.ms = 180_000;
    for (const other of ["services", "endpointslices", "nodes"] as const) {
      if (other !== kind) health.heard(other);
    }
    assertEquals(statuses(health), [200, 200, 200], kind);
    clock.ms = 180_100;
    assertEquals(statuses(health), [200, 200, 503], kind);
    assertEquals(reasons(health), [`${kind}: nothing heard for 180.1 s`]);
    health.heard(kind);
    assertEquals(statuses(health), [200, 200, 200], kind);
  }
});

Deno.test("/healthz and /livez have kube-proxy's fields in its order", PURE, () => {
  const { health, clock, at } = synced();
  clock.ms = 1_500;
  const status = (time: number, v4: boolean): string =>
    `"status":{"IPv4":{"lastUpdated":"${at(time)}","healthy":${v4}},"IPv6":{"lastUpdated":"${
      at(0)
    }","healthy":true}}`;
  const now = `"lastUpdated":"${at(1500)}","currentTime":"${at(1500)}"`;
  assertEquals(health.healthz().body, `{${now},"nodeEligible":true,"healthy":true,${status(0, true)}}`);
  assertEquals(health.livez().body, `{${now},"healthy":true,${status(0, true)}}`);

  health.synced("IPv4");
  health.queued("IPv4");
  clock.ms = 100_000;
  const stuck = `"lastUpdated":"${at(1500)}","currentTime":"${at(100_000)}"`;
  assertEquals(
    health.healthz().body,
    `{${stuck},"nodeEligible":true,"healthy":false,${status(1500, false)}}`,
  );
  assertEquals(health.livez().body, `{${stuck},"healthy":false,${status(1500, false)}}`);
});

Deno.test("an ineligible node is reported with the newest update and a healthy proxy", PURE, () => {
  const { health, clock, at } = synced();
  health.setNode(undefined);
  clock.ms = 2_000;
  assertEquals(
    health.healthz().body,
    `{"lastUpdated":"${at(0)}","currentTime":"${at(2000)}","nodeEligible":false,"healthy":true,"status":{` +
      `"IPv4":{"lastUpdated":"${at(0)}","healthy":true},"IPv6":{"lastUpdated":"${at(0)}","healthy":true}}}`,
  );
});

Deno.test("a time that never was is Go's zero time, and families not known are left out", PURE, () => {
  const { health, at } = bench();
  health.setNode(undefined);
  assertEquals(
    health.healthz().body,
    `{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"${at(0)}","nodeEligible":false,"healthy":true}`,
  );
});

Deno.test(
  "/readyz tells per family the first sync, the wait and the last apply, and the age of each watch",
  PURE,
  () => {
    const { health, clock, at } = bench();
    health.started();
    health.heard("services");
    clock.ms = 1_000;
    health.synced("IPv4");
    health.failed("IPv6", "no");
    clock.ms = 3_500;
    assertEquals(JSON.parse(health.readyz().body), {
      ready: false,
      reasons: ["IPv6: the first sync is not done", "IPv6: the last sync failed: no"],
      currentTime: at(3500),
      families: {
        IPv4: {
          firstSyncDone: true,
          waitingSeconds: 0,
          lastApply: { succeeded: true, time: at(1000), ageSeconds: 2.5 },
        },
        IPv6: {
          firstSyncDone: false,
          waitingSeconds: 2.5,
          lastApply: { succeeded: false, time: at(1000), ageSeconds: 2.5, error: "no" },
        },
      },
      watches: { services: { ageSeconds: 3.5, lastHeard: at(0) } },
    });
  },
);

Deno.test("/readyz tells what a first sync waits for, and why nothing is heard", PURE, () => {
  const { health, clock, at } = bench();
  health.started();
  health.sourceFailed("services", "Cannot reach the API server");
  health.heard("nodes");
  const { reasons, watches } = JSON.parse(health.readyz().body);
  assertEquals(reasons, [
    "IPv4: the first sync is not done",
    "IPv6: the first sync is not done",
    "services: not listed yet: Cannot reach the API server",
  ]);
  assertEquals(watches, {
    nodes: { ageSeconds: 0, lastHeard: at(0) },
    services: { problem: "Cannot reach the API server" },
  });
  health.heard("services");
  health.synced("IPv4");
  health.synced("IPv6");
  assertEquals(JSON.parse(health.readyz().body).watches.services, { ageSeconds: 0, lastHeard: at(0) });
  assertEquals(statuses(health), [200, 200, 200]);
  health.sourceFailed("services", "Lost the connection to the API server");
  clock.ms = 180_000;
  health.heard("nodes");
  assertEquals(statuses(health), [200, 200, 200]);
  clock.ms = 180_100;
  const problem = "Lost the connection to the API server";
  assertEquals(JSON.parse(health.readyz().body).reasons, [`services: nothing heard for 180.1 s: ${problem}`]);
  assertEquals(JSON.parse(health.readyz().body).watches.services, {
    ageSeconds: 180.1,
    lastHeard: at(0),
    problem,
  });
});

Deno.test("what could never be read and is done without does not make it unready", PURE, () => {
  const { health } = synced();
  health.sourceFailed("nodes", "The API server refuses a request (status 403)");
  assertEquals(statuses(health), [200, 200, 200]);
  assertEquals(JSON.parse(health.readyz().body).watches, {
    nodes: { problem: "The API server refuses a request (status 403)" },
  });
});

Deno.test(
  "while a snapshot stands in for the API server the node takes traffic but is not ready",
  PURE,
  () => {
    const { health, clock, at } = synced();
    clock.ms = 5_000;
    const state = {
      savedAtMs: EPOCH_MS - 60_000,
      kinds: ["services", "endpointslices"],
      expiresAtMs: EPOCH_MS + 60_000,
      isServed: true,
    } as const;
    health.restored = state;
    assertEquals(statuses(health), [200, 200, 503]);
    assertEquals(reasons(health), [`services, endpointslices: serving from the snapshot of ${at(-60_000)}`]);
    assertEquals(JSON.parse(health.readyz().body).snapshot, {
      time: at(-60_000),
      ageSeconds: 65,
      kinds: ["services", "endpointslices"],
      served: true,
      expired: false,
    });
    clock.ms = 60_001;
    const tooOld = "older than kproxy.snapshotMaxAge";
    assertEquals(reasons(health), [
      `services, endpointslices: serving from the snapshot of ${at(-60_000)}, which is now ${tooOld}`,
    ]);
    assertEquals(statuses(health), [200, 200, 503]);
    health.restored = { ...state, isServed: false };
    assertEquals(reasons(health), [
      `services, endpointslices: not listed yet, and the snapshot of ${
        at(-60_000)
      } is not served: it is ${tooOld}`,
    ]);
    // The clock of a machine that was off may be behind.
    health.restored = { ...state, savedAtMs: EPOCH_MS + 90_000, expiresAtMs: null, kinds: ["services"] };
    assertEquals(JSON.parse(health.readyz().body).snapshot.ageSeconds, 0);
    health.restored = null;
    assertEquals(statuses(health), [200, 200, 200]);
    assertEquals("snapshot" in JSON.parse(health.readyz().body), false);
  },
);
