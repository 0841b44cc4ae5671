import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { putWeb } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawNode, rawService, rawSlice } from "../../../tests/support/raw_objects.ts";
import { SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import type { Clock } from "../../kernel/clock.ts";
import { createLogger } from "../../observe/log.ts";
import { SnapshotSource } from "./snapshot_source.ts";
import { identityOf, type Source } from "../source.ts";
import type { ApiObject } from "../../model/objects.ts";
import {
  ALL,
  LONG,
  PATIENCE,
  rememberedAndGone,
  SAVED_AT_MS,
  SnapshotRig,
} from "../../../tests/support/snapshot_rig.ts";
import { until } from "../../../tests/support/until.ts";

/** Time that passes only when a test says so. */
class HeldClock implements Clock {
  /** Length of a sleep in milliseconds → function that ends it. */
  readonly #ends = new Map<number, () => void>();

  nowMs(): number {
    return 0;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (signal?.aborted) resolve();
    signal?.addEventListener("abort", () => resolve(), { once: true });
    this.#ends.set(ms, resolve);
    return promise;
  }

  /** Resolves once such a wait has begun. */
  untilAsked(ms: number): Promise<void> {
    return until(() => this.#ends.has(ms), `a wait of ${ms} ms`);
  }

  /** Ends the wait of this length. */
  pass(ms: number): void {
    this.#ends.get(ms)?.();
  }
}

Deno.test("without a server, what the former process heard from it is served", async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  await using source = rig.start(url, { patience: PATIENCE });
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), ALL);
  assertEquals(source.recorder.batches.length, 1);
  assertEquals(rig.restored, [
    { savedAtMs: SAVED_AT_MS, kinds: ["services", "endpointslices"], expiresAtMs: null, isServed: true },
  ]);
  assertMatch(
    source.lines.join(""),
    /not answered yet, serving from the snapshot.*2026-11-21T17:00:00.000Z.*objects=5/,
  );
});

Deno.test("the lists of the server replace the snapshot, kind by kind, each in one batch", async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  await using source = rig.start(url, { patience: PATIENCE });
  const { recorder } = source;
  await recorder.untilSynced();
  await using server = new ListWatchServer(Number(new URL(url).port));
  server.put(rawNode("n1"));
  server.put(rawService("web"));
  server.put(rawService("new"));
  server.put(rawSlice("web", ["10.1.0.9"]));
  await recorder.untilThere("EndpointSlice default/api-x", false);
  await recorder.untilThere("Service default/api", false);
  await recorder.untilThere("Service default/new");
  assertEquals(recorder.names(), [
    "EndpointSlice default/web-x",
    "Node n1",
    "Service default/new",
    "Service default/web",
  ]);
  // Only what is gone is deleted: what is in both is never away, and no kind is announced twice (the recorder sees to it).
  const later = recorder.batches.slice(1);
  const deletions = recorder.story(1).filter((line) => line.startsWith("delete"));
  assertEquals(deletions.sort(), ["delete EndpointSlice default/api-x", "delete Service default/api"]);
  for (const kind of ["Service", "EndpointSlice"]) {
    const of = later.filter((batch) =>
      batch.some((event) =>
        event.type !== "synced" && (event.type === "delete" ? event.old : event.object).kind === kind
      )
    );
    assertEquals(of.length, 1, kind);
  }
  assertEquals(rig.restored.at(-1), null);
  assertEquals(rig.restored.length, 3);
  // The recorder also checks that the old object of each event is the one delivered before.
  server.put(rawService("web", { port: 81 }));
  await recorder.until(() => recorder.story().at(-1) === "update Service default/web", "the change after it");
});

Deno.test("objects that are read while the server comes back are all there", async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  await using source = rig.start(url, { patience: PATIENCE });
  await source.recorder.untilSynced();
  const reading = source.objects();
  const read: ApiObject[] = [reading.next().value];
  await using server = new ListWatchServer(Number(new URL(url).port));
  server.put(rawNode("n1"));
  putWeb(server);
  await source.recorder.untilThere("Service default/api", false);
  for (let next = reading.next(); next.done !== true; next = reading.next()) read.push(next.value);
  const names = new Set(read.map(identityOf));
  for (const name of source.recorder.names()) assert(names.has(name), name);
});

Deno.test("a server that answers in time is all there is: the snapshot is not used", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await rig.remember(server);
  server.remove(rawService("web"));
  const clock = new HeldClock();
  await using source = rig.start(server.url, { clock });
  await clock.untilAsked(LONG.silentMs);
  await source.recorder.untilSynced();
  clock.pass(LONG.silentMs);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(source.recorder.names(), ["EndpointSlice default/web-x", "Node n1"]);
  assertEquals(rig.restored, []);
});

Deno.test("of a server that answers, the lists are waited for longer; then only the missing kind is restored", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await rig.remember(server);
  server.remove(rawService("web"));
  server.put(rawService("other"));
  const slices = Promise.withResolvers<void>();
  server.plan(({ path, watch }) => path.endsWith("/endpointslices") && !watch, { after: slices.promise });
  const clock = new HeldClock();
  await using source = rig.start(server.url, { clock, patience: { silentMs: 50, answeringMs: 400 } });
  await source.recorder.untilThere("Service default/other");
  clock.pass(50);
  await clock.untilAsked(350);
  assertEquals(rig.restored, []);
  clock.pass(350);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/other"]);
  const [restored] = rig.restored;
  assertEquals([rig.restored.length, restored?.kinds], [1, ["endpointslices"]]);
  slices.resolve();
  await until(() => rig.restored.at(-1) === null, "the list of slices");
});

Deno.test("a server that refuses everything counts as one that does not answer, and a refused Node stays in force", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await rig.remember(server);
  for (const plural of ["services", "endpointslices", "nodes"]) server.forbidden.add(plural);
  await using source = rig.start(server.url, { patience: PATIENCE });
  const { recorder } = source;
  await recorder.until(() => recorder.objects.size === 3, "the snapshot's objects");
  server.forbidden.delete("services");
  server.forbidden.delete("endpointslices");
  await until(() => rig.restored.at(-1) === null, "the lists");
  assertEquals(recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/web"]);
  server.put(rawNode("n1", "10.244.9.0/24"));
  server.forbidden.delete("nodes");
  await recorder.until(() => recorder.story().at(-1) === "update Node n1", "the Node");
});

Deno.test("what changed is written, for the owner only; without a change nothing is", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = rig.start(server.url, { intervalMs: 20 });
  await source.recorder.untilSynced();
  await until(() => rig.saved.length === 1, "the first write");
  assertEquals(((await Deno.stat(rig.path)).mode ?? 0) & 0o777, 0o600);
  server.put(rawService("web", { labels: { irrelevant: "yes" } }));
  server.bookmark();
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(rig.saved.length, 1);
  server.put(rawService("web", { port: 81 }));
  await until(() => rig.saved.length === 2, "the second write");
  assertStringIncludes(await Deno.readTextFile(rig.path), '"port":81');
  assertEquals((await Array.fromAsync(Deno.readDir(rig.folder))).map(({ name }) => name), ["snapshot"]);
});

Deno.test("objects read again without a change are not written again", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = rig.start(server.url, { intervalMs: 20 });
  await until(() => rig.saved.length === 1, "the first write");
  const gone = { type: "ERROR", object: { kind: "Status", code: 410, message: "too old resource version" } };
  server.send(`${JSON.stringify(gone)}\n`);
  await until(
    () => server.requests.filter(({ path, watch }) => path.endsWith("/nodes") && !watch).length > 1,
    "lists",
  );
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(rig.saved.length, 1);
  assertEquals(source.recorder.names().length, 3);
});

Deno.test("before the server has listed everything nothing is written", async () => {
  await using rig = await SnapshotRig.create();
  const url = await rememberedAndGone(rig);
  const before = await Deno.readTextFile(rig.path);
  rig.saved.length = 0;
  await using server = new ListWatchServer(Number(new URL(url).port));
  server.forbidden.add("services");
  server.put(rawSlice("web", ["10.1.0.9"]));
  {
    await using source = rig.start(url, { patience: PATIENCE, intervalMs: 20 });
    const wanted = ["EndpointSlice default/web-x", "Service default/api", "Service default/web"];
    await source.recorder.until(
      () => `${source.recorder.names()}` === `${wanted}`,
      "the snapshot's Services",
    );
    await new Promise((resolve) => setTimeout(resolve, 200));
    assertEquals(source.recorder.names(), wanted);
  }
  assertEquals([rig.saved, await Deno.readTextFile(rig.path)], [[], before]);
});

Deno.test("a snapshot stays young while the server is there, though nothing changes, and only then", async () => {
  await using rig = await SnapshotRig.create();
  const clock = new ManualClock({ requestMs: -1 });
  const kinds = ["services", "endpointslices", "nodes"] as const;
  let speak = (): void => {};
  const origin: Source = {
    name: "x",
    run: (handler, signal) => {
      speak = () => kinds.forEach((kind) => handler.heard?.(kind));
      speak();
      handler.events(kinds.map((kind) => ({ type: "synced", kind })));
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    },
  };
  const savedMs: number[] = [];
  const observer = { saved: () => void savedMs.push(clock.nowMs()), saveFailed: () => {} };
  // Asked once for each write, at its beginning.
  let begun = 0;
  const epochMs = () => SAVED_AT_MS + begun++;
  await using _source = rig.start("http://unused", {
    source: origin,
    clock,
    maxAgeMs: 3_600_000,
    observer,
    epochMs,
  });
  for (let minute = 0; minute < 62; minute++) {
    await clock.pass(60_000);
    speak();
    // A disk knows nothing of this clock.
    await until(() => savedMs.length === begun, "the end of the write");
  }
  await until(() => savedMs.length === 5, "the first write, and one every quarter of an hour");
  const gaps = savedMs.slice(1).map((ms, index) => ms - (savedMs[index] ?? 0));
  assert(gaps.every((ms) => ms >= 840_000 && ms <= 960_000), `${gaps}`);
  await clock.pass(2 * 3_600_000);
  assertEquals(savedMs.length, 5);
});

Deno.test("a folder that is not there costs a warning, not the proxy", async () => {
  await using rig = await SnapshotRig.create();
  await using server = new ListWatchServer();
  putWeb(server);
  {
    await using source = rig.start(server.url, { path: `${rig.folder}/no/snapshot`, intervalMs: 20 });
    await until(() => rig.failures > 1, "two failures");
    server.put(rawService("later"));
    await source.recorder.untilThere("Service default/later");
    const warnings = source.lines.filter((line) => line.startsWith("W"));
    assertEquals(warnings.length, 1);
    assertMatch(warnings[0]!, /Cannot write the snapshot, going on without.*No such file or directory/);
  }
  assertEquals(rig.saved, []);
});

Deno.test("a source that gives up is heard, and nothing goes on without it", async () => {
  await using rig = await SnapshotRig.create();
  const log = createLogger({ format: "text", verbosity: 0, write: () => {}, nowMs: () => 0, pid: 1 });
  const failing: Source = { name: "x", run: () => Promise.reject(new TypeError("no credentials")) };
  const source = new SnapshotSource({
    source: failing,
    hasAnswered: () => false,
    path: rig.path,
    maxAgeMs: 60_000,
    node: "n1",
    log,
    epochMs: () => SAVED_AT_MS,
    observer: { saved: () => {}, saveFailed: () => {} },
  });
  await assertRejects(
    () => source.run(new SourceRecorder(), new AbortController().signal),
    TypeError,
    "no credentials",
  );
});
