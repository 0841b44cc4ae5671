import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { putWeb, QUICK_TIMES, until } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawEndpoints, rawNode, rawService, rawSlice } from "../../../tests/support/raw_objects.ts";
import { type RunningSource, runSource, SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import type { Clock } from "../../kernel/clock.ts";
import { createLogger } from "../../observe/log.ts";
import { KubeSource } from "../kube/kube.ts";
import { masterAccess } from "../kube/kube_access.ts";
import { type FileOwnership, ownershipProblem } from "./snapshot_file.ts";
import { SnapshotSource, type SnapshotSourceOptions } from "./snapshot_source.ts";
import type { RestoredState, Source, SourceSink } from "../source.ts";

const SAVED_AT_MS = Date.UTC(2026, 10, 21, 17);
const PATIENCE = { silentMs: 50, answeringMs: 50 };
const LONG = { silentMs: 60_000, answeringMs: 60_000 };

/** Time that passes only when a test says so. */
class HeldClock implements Clock {
  /** What ends the sleeps, by how long they were to be. */
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

  /** Resolves once somebody has begun to wait for so long. */
  untilAsked(ms: number): Promise<void> {
    return until(() => this.#ends.has(ms), `a wait of ${ms} ms`);
  }

  /** Ends the wait of this length. */
  pass(ms: number): void {
    this.#ends.get(ms)?.();
  }
}

class Bench implements AsyncDisposable {
  readonly restored: (RestoredState | null)[] = [];
  readonly saved: number[] = [];
  failures = 0;
  private constructor(readonly folder: string) {}

  static async create(): Promise<Bench> {
    return new Bench(await Deno.makeTempDir());
  }

  get path(): string {
    return `${this.folder}/snapshot`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }

  start(server: string, options: Partial<SnapshotSourceOptions> = {}): RunningSource {
    return runSource((log) => {
      let hasAnswered = false;
      const source = new SnapshotSource({
        hasAnswered: () => hasAnswered,
        source: new KubeSource({
          access: masterAccess(server),
          nodeName: "n1",
          endpointsSource: "auto",
          configSyncPeriodMs: 900_000,
          qps: -1,
          burst: 10,
          log,
          times: QUICK_TIMES,
          onRequest: ({ code }) => {
            hasAnswered ||= code === "200";
          },
        }),
        path: this.path,
        maxAgeMs: 0,
        node: "n1",
        log,
        epochMs: () => SAVED_AT_MS,
        observer: { saved: ({ bytes }) => this.saved.push(bytes), saveFailed: () => this.failures++ },
        patience: LONG,
        ...options,
      });
      return { name: source.name, run: (sink, signal) => source.run(this.#noting(sink), signal) };
    });
  }

  /** Runs once against the server until all is there, and ends, so that a snapshot is left. */
  async remember(server: ListWatchServer): Promise<void> {
    await using source = this.start(server.url);
    await source.recorder.untilSynced();
  }

  #noting(sink: SourceSink): SourceSink {
    return {
      events: (batch) => sink.events(batch),
      rejected: (rejection) => sink.rejected(rejection),
      restored: (state) => void this.restored.push(state),
    };
  }
}

/** A server's address after its end: nobody listens there. */
async function rememberedAndGone(bench: Bench): Promise<string> {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put(rawService("api"));
  server.put(rawSlice("api", ["10.1.0.3"]));
  await bench.remember(server);
  return server.url;
}

const ALL = [
  "EndpointSlice default/api-x",
  "EndpointSlice default/web-x",
  "Node n1",
  "Service default/api",
  "Service default/web",
];

Deno.test("without a server, what the former process heard from it is served", async () => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  await using source = bench.start(url, { patience: PATIENCE });
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), ALL);
  assertEquals(source.recorder.batches.length, 1);
  assertEquals(bench.restored, [
    { savedAtMs: SAVED_AT_MS, kinds: ["services", "endpointslices"], expiresAtMs: null, isServed: true },
  ]);
  assertMatch(
    source.lines.join(""),
    /not answered yet, serving from the snapshot.*2026-11-21T17:00:00.000Z.*objects=5/,
  );
});

Deno.test("the lists of the server replace the snapshot, kind by kind, each in one batch", async () => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  await using source = bench.start(url, { patience: PATIENCE });
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
  assertEquals(bench.restored.at(-1), null);
  assertEquals(bench.restored.length, 3);
  // The recorder also checks that the old object of each event is the one delivered before.
  server.put(rawService("web", { port: 81 }));
  await recorder.until(() => recorder.story().at(-1) === "update Service default/web", "the change after it");
});

Deno.test("a server that answers in time is all there is: the snapshot is not used", async () => {
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await bench.remember(server);
  server.remove(rawService("web"));
  const clock = new HeldClock();
  await using source = bench.start(server.url, { clock });
  await clock.untilAsked(LONG.silentMs);
  await source.recorder.untilSynced();
  clock.pass(LONG.silentMs);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(source.recorder.names(), ["EndpointSlice default/web-x", "Node n1"]);
  assertEquals(bench.restored, []);
});

Deno.test("of a server that answers, the lists are waited for longer; then only the missing kind is restored", async () => {
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await bench.remember(server);
  server.remove(rawService("web"));
  server.put(rawService("other"));
  const slices = Promise.withResolvers<void>();
  server.plan(({ path, watch }) => path.endsWith("/endpointslices") && !watch, { after: slices.promise });
  const clock = new HeldClock();
  await using source = bench.start(server.url, { clock, patience: { silentMs: 50, answeringMs: 400 } });
  await source.recorder.untilThere("Service default/other");
  clock.pass(50);
  await clock.untilAsked(350);
  assertEquals(bench.restored, []);
  clock.pass(350);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/other"]);
  const [restored] = bench.restored;
  assertEquals([bench.restored.length, restored?.kinds], [1, ["endpointslices"]]);
  slices.resolve();
  await until(() => bench.restored.at(-1) === null, "the list of slices");
});

Deno.test("a server that refuses everything counts as one that does not answer, and a refused Node stays in force", async () => {
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await bench.remember(server);
  for (const plural of ["services", "endpointslices", "nodes"]) server.forbidden.add(plural);
  await using source = bench.start(server.url, { patience: PATIENCE });
  const { recorder } = source;
  await recorder.until(() => recorder.objects.size === 3, "the snapshot's objects");
  server.forbidden.delete("services");
  server.forbidden.delete("endpointslices");
  await until(() => bench.restored.at(-1) === null, "the lists");
  assertEquals(recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/web"]);
  server.put(rawNode("n1", "10.244.9.0/24"));
  server.forbidden.delete("nodes");
  await recorder.until(() => recorder.story().at(-1) === "update Node n1", "the Node");
});

Deno.test("endpoints of a server without EndpointSlices are remembered too", async () => {
  await using bench = await Bench.create();
  let url = "";
  {
    await using server = new ListWatchServer();
    server.missing.add("endpointslices");
    server.put(rawService("web"));
    server.put(rawEndpoints("web", ["10.1.0.1"]));
    await bench.remember(server);
    url = server.url;
  }
  await using source = bench.start(url, { patience: PATIENCE });
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), ["EndpointSlice default/endpoints/web/IPv4", "Service default/web"]);
});

Deno.test("what changed is written, for the owner only; without a change nothing is", async () => {
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = bench.start(server.url, { intervalMs: 20 });
  await source.recorder.untilSynced();
  await until(() => bench.saved.length === 1, "the first write");
  assertEquals(((await Deno.stat(bench.path)).mode ?? 0) & 0o777, 0o600);
  server.put(rawService("web", { labels: { irrelevant: "yes" } }));
  server.bookmark();
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(bench.saved.length, 1);
  server.put(rawService("web", { port: 81 }));
  await until(() => bench.saved.length === 2, "the second write");
  assertStringIncludes(await Deno.readTextFile(bench.path), '"port":81');
  assertEquals((await Array.fromAsync(Deno.readDir(bench.folder))).map(({ name }) => name), ["snapshot"]);
});

Deno.test("objects read again without a change are not written again", async () => {
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = bench.start(server.url, { intervalMs: 20 });
  await until(() => bench.saved.length === 1, "the first write");
  const gone = { type: "ERROR", object: { kind: "Status", code: 410, message: "too old resource version" } };
  server.send(`${JSON.stringify(gone)}\n`);
  await until(
    () => server.requests.filter(({ path, watch }) => path.endsWith("/nodes") && !watch).length > 1,
    "lists",
  );
  await new Promise((resolve) => setTimeout(resolve, 200));
  assertEquals(bench.saved.length, 1);
  assertEquals(source.recorder.names().length, 3);
});

Deno.test("before the server has listed everything nothing is written", async () => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  const before = await Deno.readTextFile(bench.path);
  bench.saved.length = 0;
  await using server = new ListWatchServer(Number(new URL(url).port));
  server.forbidden.add("services");
  server.put(rawSlice("web", ["10.1.0.9"]));
  {
    await using source = bench.start(url, { patience: PATIENCE, intervalMs: 20 });
    const wanted = ["EndpointSlice default/web-x", "Service default/api", "Service default/web"];
    await source.recorder.until(
      () => `${source.recorder.names()}` === `${wanted}`,
      "the snapshot's Services",
    );
    await new Promise((resolve) => setTimeout(resolve, 200));
    assertEquals(source.recorder.names(), wanted);
  }
  assertEquals([bench.saved, await Deno.readTextFile(bench.path)], [[], before]);
});

Deno.test("a file that cannot serve is told and left; the server is waited for as without one", async (t) => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  const good = await Deno.readTextFile(bench.path);
  const cases: readonly (readonly [name: string, content: string, reason: string])[] = [
    ["torn", good.slice(0, -100), "the file is not complete: its end is missing"],
    ["damaged", good.replace("10.1.0.3", "10.1.0.4"), "the file is damaged: its checksum is wrong"],
    ["foreign", "hello\n", "the file is no snapshot of kproxy"],
    ["newer", good.replace('Snapshot":1', 'Snapshot":2'), "was written by a newer release"],
    ["of another node", good.replace('"n1"', '"n2"'), "is of another node"],
  ];
  for (const [name, content, reason] of cases) {
    await t.step(name, async () => {
      await Deno.writeTextFile(bench.path, content);
      await using source = bench.start(url, { patience: PATIENCE });
      await until(
        () => source.lines.some((line) => line.includes("the snapshot is of no use")),
        "the reason",
      );
      assertStringIncludes(source.lines.join(""), reason);
      await using server = new ListWatchServer(Number(new URL(url).port));
      putWeb(server);
      await source.recorder.untilSynced();
      assertEquals([source.recorder.names().length, bench.restored], [3, []]);
    });
  }
  const others: readonly (readonly [name: string, make: () => Promise<unknown>, reason: string])[] = [
    ["a folder", () => Deno.mkdir(bench.path), "the file is not a regular file"],
    [
      "a pipe",
      () => new Deno.Command("mkfifo", { args: [bench.path] }).output(),
      "the file is not a regular file",
    ],
    ["a link to a good one", async () => {
      await Deno.writeTextFile(`${bench.folder}/good`, good, { mode: 0o600 });
      await Deno.symlink(`${bench.folder}/good`, bench.path);
    }, "the file is a symbolic link"],
    ["one that a group may write", async () => {
      await Deno.writeTextFile(bench.path, good);
      await Deno.chmod(bench.path, 0o660);
    }, "the file may be written by others: its mode is 0660, wanted is 0600"],
    ["one that all may write", async () => {
      await Deno.writeTextFile(bench.path, good);
      await Deno.chmod(bench.path, 0o602);
    }, "the file may be written by others: its mode is 0602, wanted is 0600"],
  ];
  for (const [name, make, reason] of others) {
    await t.step(name, async () => {
      await Deno.remove(bench.path, { recursive: true });
      await make();
      await using source = bench.start(url, { patience: PATIENCE });
      await until(() => source.lines.some((line) => line.includes(reason)), reason);
      assertEquals([source.recorder.names(), bench.restored], [[], []]);
    });
  }
});

Deno.test("whose file it is decides whether it is served", () => {
  const file = { isFile: true, isSymlink: false, uid: 7, mode: 0o100600 };
  const cases: readonly (readonly [Partial<FileOwnership>, number | null, string | null])[] = [
    [{}, 7, null],
    [{ mode: 0o100644 }, 7, null],
    [{ uid: 0 }, 7, null],
    [{}, 0, "belongs to user 7, not to 0"],
    [{}, 8, "belongs to user 7, not to 8"],
    [{ mode: 0o100620 }, 7, "may be written by others: its mode is 0620, wanted is 0600"],
    [{ uid: 0, mode: 0o101602 }, 7, "may be written by others: its mode is 1602, wanted is 0600"],
    [{ isFile: false }, 7, "is not a regular file"],
    [{ isFile: false, isSymlink: true }, 7, "is a symbolic link"],
    [{ uid: null, mode: null }, null, null],
  ];
  for (const [fields, uid, problem] of cases) {
    assertEquals(ownershipProblem({ ...file, ...fields }, uid), problem);
  }
});

Deno.test("a snapshot of another user is not served", { ignore: Deno.uid() !== 0 }, async () => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  await Deno.chown(bench.path, 65_534, 65_534);
  await using source = bench.start(url, { patience: PATIENCE });
  const reason = "the file belongs to user 65534, not to 0";
  await until(() => source.lines.some((line) => line.includes(reason)), reason);
  assertEquals(source.recorder.names(), []);
});

Deno.test("a snapshot that is too old is not served, which is told until the server has listed everything", async () => {
  await using bench = await Bench.create();
  const url = await rememberedAndGone(bench);
  for (const [ageMs, isServed] of [[60_000, true], [60_001, false]] as const) {
    bench.restored.length = 0;
    const epochMs = () => SAVED_AT_MS + ageMs;
    await using source = bench.start(url, { patience: PATIENCE, maxAgeMs: 60_000, epochMs });
    await until(() => bench.restored.length === 1, "the snapshot");
    const kinds = ["services", "endpointslices"] as const;
    const expiresAtMs = SAVED_AT_MS + 60_000;
    assertEquals(bench.restored, [{ savedAtMs: SAVED_AT_MS, kinds, expiresAtMs, isServed }]);
    assertEquals(source.recorder.names(), isServed ? ALL : []);
    assertEquals(source.lines.some((line) => /^W.*too old to be served/.test(line)), !isServed);
    if (isServed) continue;
    await using server = new ListWatchServer(Number(new URL(url).port));
    putWeb(server);
    await source.recorder.untilSynced();
    await until(() => bench.restored.at(-1) === null, "the lists");
  }
});

Deno.test("a snapshot stays young while the server is there, though nothing changes, and only then", async () => {
  await using bench = await Bench.create();
  const clock = new ManualClock({ requestMs: -1 });
  const kinds = ["services", "endpointslices", "nodes"] as const;
  let speak = (): void => {};
  const origin: Source = {
    name: "x",
    run: (sink, signal) => {
      speak = () => kinds.forEach((kind) => sink.heard?.(kind));
      speak();
      sink.events(kinds.map((kind) => ({ type: "synced", kind })));
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    },
  };
  const savedMs: number[] = [];
  const observer = { saved: () => void savedMs.push(clock.nowMs()), saveFailed: () => {} };
  // Asked once for each write, at its beginning.
  let begun = 0;
  const epochMs = () => SAVED_AT_MS + begun++;
  await using _source = bench.start("http://unused", {
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
  await using bench = await Bench.create();
  await using server = new ListWatchServer();
  putWeb(server);
  {
    await using source = bench.start(server.url, { path: `${bench.folder}/no/snapshot`, intervalMs: 20 });
    await until(() => bench.failures > 1, "two failures");
    server.put(rawService("later"));
    await source.recorder.untilThere("Service default/later");
    const warnings = source.lines.filter((line) => line.startsWith("W"));
    assertEquals(warnings.length, 1);
    assertMatch(warnings[0]!, /Cannot write the snapshot, going on without.*No such file or directory/);
  }
  assertEquals(bench.saved, []);
});

Deno.test("a source that gives up is heard, and nothing goes on without it", async () => {
  await using bench = await Bench.create();
  const log = createLogger({ format: "text", verbosity: 0, write: () => {}, nowMs: () => 0, pid: 1 });
  const failing: Source = { name: "x", run: () => Promise.reject(new TypeError("no credentials")) };
  const source = new SnapshotSource({
    source: failing,
    hasAnswered: () => false,
    path: bench.path,
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
