/** Watches on which nothing arrives, and what else takes time, with a clock that the test holds. */
import { assert, assertEquals, assertGreaterOrEqual, assertLess } from "@std/assert";
import {
  listsOf,
  putWeb,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { type ApiRequest, type Fault, ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import { rawService, rawServiceCidr, rawSlice } from "../../../tests/support/raw_objects.ts";
import { type RunningSource, SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";
import { until } from "../../../tests/support/until.ts";
import { masterAccess } from "./api_access.ts";
import type { KubeSourceOptions } from "./kube_source.ts";
import { REFLECTOR_TIMES } from "./reflector.ts";

const KINDS = ["services", "endpointslices", "nodes"];

function start(server: ListWatchServer, clock: ManualClock, options: Partial<KubeSourceOptions> = {}) {
  return startKubeSource(server, { times: REFLECTOR_TIMES, clock, qps: 5, ...options });
}

/** A source that is synced and watches a server with one Service, on a clock that the test holds. */
async function watched(clockOptions: { patience?: number } = {}, options: Partial<KubeSourceOptions> = {}) {
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs, ...clockOptions });
  return { ...await watchedSource({ times: REFLECTOR_TIMES, clock, qps: 5, ...options }), clock };
}

function watchesOf(server: ListWatchServer, plural: string): ApiRequest[] {
  return server.requests.filter(({ path, watch }) => watch && path.endsWith(`/${plural}`));
}

/** Has all requests that match suffer the fault, until `isOver`. */
function planUntil(
  server: ListWatchServer,
  isOver: () => boolean,
  matches: (request: ApiRequest) => boolean,
  fault: Fault,
): void {
  server.plan((request) => {
    if (isOver() || !matches(request)) return false;
    planUntil(server, isOver, matches, fault);
    return true;
  }, fault);
}

/** Warnings and errors so far. */
function trouble({ lines }: RunningSource): string[] {
  return lines.filter((line) => /^[EW]/.test(line));
}

Deno.test("watches of a server with nothing to say are opened again: no error, no wait, not all at once", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  const openedMs = new Map<string, number[]>(KINDS.map((kind) => [kind, []]));
  await using source = start(server, clock, {
    onRequest: () =>
      KINDS.forEach((kind) => {
        const known = openedMs.get(kind) ?? [];
        while (known.length < watchesOf(server, kind).length) known.push(clock.nowMs());
      }),
  });
  await source.recorder.untilSynced();
  await watching(server);
  await clock.pass(15 * 60_000);
  await until(() => server.watches() === 3, "one watch of each kind");
  for (const kind of KINDS) {
    const times = openedMs.get(kind) ?? [];
    assertGreaterOrEqual(times.length, 10, kind);
    const gaps = times.slice(1).map((ms, index) => ms - (times[index] ?? 0));
    assert(gaps.every((ms) => ms >= 67_500 && ms <= 90_000), `${kind}: ${gaps}`);
    assertEquals(listsOf(server, kind), 1);
  }
  const [first, second, third] = KINDS.map((kind) => openedMs.get(kind)?.[1]);
  assert(first !== second && second !== third, `${first} ${second} ${third}`);
  assertEquals(trouble(source), []);
  const limits = watchesOf(server, "services").map(({ query }) => Number(query.get("timeoutSeconds")));
  assert(limits.every((seconds) => seconds >= 300 && seconds <= 600), `${limits}`);
  assertGreaterOrEqual(new Set(limits).size, 2);
  server.put(rawService("after"));
  await source.recorder.untilThere("Service default/after");
});

Deno.test("a silent watch of ServiceCIDRs is opened again four times as rarely", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put(rawServiceCidr("kubernetes", ["10.96.0.0/16"]));
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  const recorder = Object.assign(new SourceRecorder(), { wantsServiceCidrs: true });
  await using source = startKubeSource(server, { times: REFLECTOR_TIMES, clock, qps: 5 }, recorder);
  await recorder.until(() => recorder.synced.length === 4, "first lists");
  await until(() => server.watches() === 4, "one watch of each kind");
  await clock.pass(15 * 60_000);
  const [cidrs, services] = ["servicecidrs", "services"].map((kind) => watchesOf(server, kind).length);
  // The first one, and one after each 4.5 to 6 min; of Services after each 67 to 90 s.
  assert(cidrs === 3 || cidrs === 4, `${cidrs}`);
  assertGreaterOrEqual(services ?? 0, 10);
  assertEquals(trouble(source), []);
});

Deno.test("a change while a silent watch is opened again arrives with its answer, and once", async () => {
  await using rig = await watched({ patience: 250 });
  const { server, clock, source } = rig;
  for (let round = 0; round < 3; round++) {
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    server.plan(({ path, watch }) => watch && path.endsWith("/services"), { after: answered });
    const before = watchesOf(server, "services").length;
    await clock.passUntil(() => watchesOf(server, "services").length > before, "another watch", 90_000);
    server.put(rawService(`early-${round}`));
    answer();
    server.put(rawService(`late-${round}`));
    await source.recorder.untilThere(`Service default/late-${round}`);
  }
  assertEquals(trouble(source), []);
  assertEquals(listsOf(server, "services"), 1);
  const added = source.recorder.story().filter((line) => /(early|late)/.test(line));
  assertEquals(added.length, 6, added.join());
});

Deno.test("silent watches that cannot be opened again are given up after a minute, logged once, and tried again", async () => {
  await using rig = await watched({ patience: 50 });
  const { server, clock, source } = rig;
  let isDead = true;
  planUntil(server, () => !isDead, ({ watch }) => watch, { hang: true });
  server.silenceWatches();
  server.put(rawService("missed"));
  await clock.pass(280_000);
  assertEquals(trouble(source).length, 1, trouble(source).join(""));
  assert(trouble(source)[0]?.includes("Nothing arrived from"), trouble(source)[0]);
  isDead = false;
  await clock.passUntil(() => source.recorder.objects.has("Service default/missed"), "it", 121_000);
});

Deno.test("a watch that is cut off after some time is opened again without an error", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  await using source = start(server, clock);
  await source.recorder.untilSynced();
  for (let round = 0; round < 5; round++) {
    await clock.passUntil(() => server.watches() === 3, "three watches", 2_000);
    await clock.pass(35_000);
    server.endWatches("broken");
    server.put(rawService(`after-${round}`));
    const name = `Service default/after-${round}`;
    await clock.passUntil(() => source.recorder.objects.has(name), name, 1_700);
  }
  assertEquals(trouble(source), []);
});

Deno.test("versions that expire again and again make the waits longer, though each list is good", async () => {
  // As the whole answer, as an event, and as an event after one that was good.
  const gone = JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, message: "too old" } });
  const good = JSON.stringify({ type: "ADDED", object: rawService("web") });
  for (
    const [index, fault] of [{ status: 410 }, { status: 200, text: `${gone}\n` }, {
      status: 200,
      text: `${good}\n${gone}\n`,
    }].entries()
  ) {
    await using server = new ListWatchServer();
    putWeb(server);
    for (let i = 0; i < 20; i++) {
      server.plan(({ path, watch }) => watch && path.endsWith("/services"), fault);
    }
    const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
    await using source = start(server, clock, { random: () => 0 });
    const waits: number[] = [];
    for (let round = 0; round < 8; round++) {
      waits.push(await clock.passWait(REFLECTOR_TIMES.backoffMaxMs));
      // The first version that expires costs a list at once.
      await until(() => listsOf(server, "services") === round + 3, "a list after the wait");
    }
    assertEquals(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000], `case ${index}`);
    assertEquals(trouble(source).length, 1, trouble(source).join(""));
    assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
  }
});

Deno.test("versions that expired during an outage cost two lists soon, not the outage's long wait", async () => {
  await using rig = await watched({}, { random: () => 0 });
  const { server, clock, source } = rig;
  let isAway = true;
  planUntil(server, () => !isAway, ({ watch }) => watch, { status: 503 });
  server.endWatches("broken");
  await clock.pass(60_000);
  isAway = false;
  let expired = 0;
  for (let i = 0; i < 2; i++) {
    const counts = ({ path, watch }: ApiRequest): boolean => {
      const isSo = !isAway && watch && path.endsWith("/services");
      if (isSo) expired++;
      return isSo;
    };
    // A server that has just started knows no version from before its start, and its first list may have such a one.
    server.plan(counts, { status: 410 });
  }
  await clock.passUntil(() => expired === 2, "two versions that expired", 31_000);
  server.put(rawService("late"));
  await clock.passUntil(() => source.recorder.objects.has("Service default/late"), "the change", 1_700);
});

Deno.test("a new token in the file ends the waits of all that were refused with the old one", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const path = `${folder}/token`;
    await Deno.writeTextFile(path, "one");
    await using server = new ListWatchServer();
    putWeb(server);
    server.accepted = new Set(["Bearer one"]);
    const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
    await using source = start(server, clock, {
      access: { ...masterAccess(server.url), identity: { kind: "tokenFile", path } },
      random: () => 0.99,
    });
    await source.recorder.untilSynced();
    await watching(server);
    await clock.pass(20_000);
    server.accepted = new Set(["Bearer two"]);
    server.endWatches("cleanly");
    server.put(rawService("new"));
    await clock.pass(1_000);
    await until(() => server.requests.length >= 12, "the new watches of three kinds, refused twice");
    // Waits of 1.6, 3.2, 6.4, 12.8 and 25.5 s: the last one is under way.
    await clock.pass(30_000);
    assertEquals(
      trouble(source).filter((line) => line.includes("does not accept the credentials")).length,
      1,
    );
    await Deno.writeTextFile(path, "two");
    await clock.passUntil(() => source.recorder.objects.has("Service default/new"), "it", 2_500);
    await until(() => server.watches() === 3, "all watches");
    assertEquals(listsOf(server, "services") <= 4, true);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a new file ends the waits for a lost connection: one side may have known another authority only", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/token`;
    await Deno.writeTextFile(path, "one");
    const access = (
      server: string,
    ) => ({ ...masterAccess(server), identity: { kind: "tokenFile", path } } as const);
    await using server = new ListWatchServer();
    putWeb(server);
    const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
    await using source = start(server, clock, { access: access(server.url), random: () => 0.99 });
    await source.recorder.untilSynced();
    await watching(server);
    let isAway = true;
    planUntil(server, () => !isAway, () => true, { cutAfterBytes: 0 });
    server.endWatches("broken");
    server.put(rawService("new"));
    // Waits of 1.6, 3.2, 6.4, 12.8 and 25.5 s: the last one is under way.
    await clock.pass(30_000);
    isAway = false;
    await clock.pass(5_000);
    assertEquals(source.recorder.objects.has("Service default/new"), false);
    await Deno.writeTextFile(path, "two");
    await clock.passUntil(() => source.recorder.objects.has("Service default/new"), "it", 2_500);
  });
});

Deno.test("one success ends all waits: after an outage, after 401 and after 503, not after Retry-After", async () => {
  const cases: readonly (readonly [string, { status: number; retryAfter?: number }, boolean])[] = [
    ["401", { status: 401 }, true],
    ["503", { status: 503 }, true],
    ["a login page", { status: 200 }, true],
    ["429 with Retry-After", { status: 429, retryAfter: 10 }, false],
    ["503 with Retry-After", { status: 503, retryAfter: 10 }, false],
    ["403", { status: 403 }, false],
  ];
  for (const [what, fault, endsTogether] of cases) {
    await using server = new ListWatchServer();
    putWeb(server);
    const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
    // Many failures, so that the waits are long and fall apart.
    let isBroken = true;
    planUntil(server, () => !isBroken, () => true, { ...fault, text: "<html>" });
    await using source = start(server, clock, { qps: -1 });
    await clock.pass(60_000);
    assertEquals(source.recorder.objects.size, 0, what);
    isBroken = false;
    await clock.passUntil(() => source.recorder.objects.size > 0, "the first success", 61_000);
    const firstMs = clock.nowMs();
    await clock.passUntil(() => source.recorder.objects.size === 3, "everything", 61_000);
    assertEquals(clock.nowMs() === firstMs, endsTogether, `${what}: ${clock.nowMs() - firstMs} ms later`);
  }
});

Deno.test("events of one kind do not hurry another one that the server cannot give, nor one that cannot connect", async () => {
  const faults: readonly Fault[] = [{ status: 500 }, { status: 200, text: "<html>" }, { cutAfterBytes: 0 }];
  for (const fault of faults) {
    await using server = new ListWatchServer();
    putWeb(server);
    planUntil(server, () => false, ({ path }) => path.endsWith("/services"), fault);
    await using source = startKubeSource(server, {
      times: { ...REFLECTOR_TIMES, backoffInitialMs: 60_000 },
      qps: -1,
    });
    await until(() => server.watches() === 2, "the watches of the other kinds");
    for (let i = 0; i < 30; i++) {
      const name = `web-${i}`;
      server.put(rawSlice(name, ["10.0.0.9"]));
      await source.recorder.untilThere(`EndpointSlice default/${name}-x`);
    }
    // Once for each of the first answers of the other kinds, and once for their events.
    assertLess(listsOf(server, "services"), 8, JSON.stringify(fault));
    assertLess(trouble(source).length, 8, source.lines.join(""));
  }
});
