import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import {
  assert,
  assertEquals,
  assertLess,
  assertMatch,
  assertStrictEquals,
  assertStringIncludes,
} from "@std/assert";
import {
  listsOf,
  putWeb,
  QUICK_TIMES,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { type ApiRequest, ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import { rawService, rawSlice } from "../../../tests/support/raw_objects.ts";
import { until } from "../../../tests/support/until.ts";
import type { EndpointSlice } from "../../model/objects.ts";
import { REFLECTOR_TIMES } from "./reflector.ts";

function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
}

Deno.test("a page that fails or is too old starts the list over, and nothing half is delivered", async () => {
  for (
    const fault of [{ status: 500 }, { cutAfterBytes: 300 }, { status: 410 }, { status: 200, text: "<html>" }]
  ) {
    await using server = new ListWatchServer();
    for (let i = 0; i < 1001; i++) server.put(rawService(`s${i}`));
    server.plan(({ query }) => query.get("continue")?.endsWith(":500") ?? false, fault);
    await using source = startKubeSource(server);
    await source.recorder.untilSynced();
    assertEquals(source.recorder.names("Service").length, 1001);
    assertEquals(source.recorder.story().filter((line) => line === "add Service default/s1000").length, 1);
    const again = server.requests.filter(({ path, watch }) => path.endsWith("/services") && !watch)[2];
    assertEquals(again?.query.has("continue"), false);
    // Versions that expire during the paging would expire again.
    assertEquals(again?.query.get("limit"), fault.status === 410 ? "0" : "500");
  }
});

/** A good list without Services, but for these fields. */
function list(fields: Readonly<Record<string, unknown>>): string {
  const good = { kind: "ServiceList", apiVersion: "v1", metadata: { resourceVersion: "7" }, items: [] };
  return JSON.stringify({ ...good, ...fields });
}

Deno.test("a list that is empty takes everything away, also one that says so with null", async () => {
  for (const items of [[], null]) {
    await using rig = await watchedSource();
    const { server, source } = rig;
    const metadata = { resourceVersion: "7" };
    const text = list({ items, metadata });
    server.plan(({ path, watch }) => path.endsWith("/services") && !watch, { status: 200, text });
    server.plan(({ path, watch }) => path.endsWith("/services") && watch, { status: 410 });
    server.silenceWatches();
    server.closeConnections();
    await source.recorder.untilThere("Service default/web", false);
  }
});

Deno.test("an answer that is no list never counts as an empty one", async () => {
  const answers = [
    "{}",
    "null",
    "",
    "[]",
    "<html><body>Please log in</body></html>",
    list({ items: undefined }),
    list({ metadata: {} }),
    list({ metadata: { resourceVersion: "" } }),
    list({ kind: "Status" }),
    list({ kind: "Table" }),
    list({ kind: "ConfigMapList" }),
    list({ kind: "EndpointSliceList" }),
    list({ apiVersion: "v2" }),
    list({ apiVersion: undefined }),
    list({ items: {} }),
    // Something, but nothing of it can be read.
    list({ items: [{}] }),
    list({ items: [7, "x", null] }),
    list({ items: [{ metadata: { name: "a", namespace: "b" }, spec: { ports: "none" } }] }),
    JSON.stringify({ kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", code: 401 }),
    JSON.stringify({ kind: "Service", apiVersion: "v1", metadata: { name: "web", resourceVersion: "7" } }),
  ];
  await using rig = await watchedSource();
  const { server, source } = rig;
  for (const text of answers) {
    server.plan(({ path, watch }) => path.endsWith("/services") && !watch, { status: 200, text });
  }
  // A good list in text, but of another type: no API server says so.
  const text = list({});
  server.plan(({ path, watch }) => path.endsWith("/services") && !watch, {
    status: 200,
    text,
    type: "text/html",
  });
  const before = listsOf(server, "services");
  server.compact();
  server.put(rawService("new"));
  server.compact();
  server.endWatches("broken");
  await source.recorder.untilThere("Service default/new");
  assertEquals(listsOf(server, "services") - before, answers.length + 2);
  assertEquals(source.recorder.rejections, []);
  assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
});

Deno.test("a watch that ends, cleanly or not, goes on where it was", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  for (const [index, how] of (["cleanly", "broken"] as const).entries()) {
    await watching(server);
    server.bookmark();
    server.endWatches(how);
    server.put(rawService(`during-${index}`));
    await source.recorder.untilThere(`Service default/during-${index}`);
  }
  assertEquals(listsOf(server, "services"), 1);
  const versions = server.requests.filter(({ path, watch }) => path.endsWith("/services") && watch).map(
    ({ query }) => Number(query.get("resourceVersion")),
  );
  assert(
    versions.every((version, index) => index === 0 || version > (versions[index - 1] ?? 0)),
    `${versions}`,
  );
});

Deno.test("half a line at the end of a broken watch is no event, its other half comes with the next watch", async () => {
  await using rig = await watchedSource();
  const { server, source } = rig;
  server.send('{"type":"ADDED","object":{"kind":"Service","metadata":{"name":"half","names', "services");
  await new Promise((resolve) => setTimeout(resolve, 50));
  server.endWatches("broken");
  server.put(rawService("whole"));
  await source.recorder.untilThere("Service default/whole");
  assertEquals(source.recorder.objects.has("Service default/half"), false);
});

Deno.test("410 for a watch, as its answer or as an event, lists again and delivers the difference only", async () => {
  const answers = { event: undefined, answer: 410, "old server": 500, "server from a backup": 504 };
  for (const [how, status] of Object.entries(answers)) {
    await using server = new ListWatchServer();
    putWeb(server);
    server.put(rawService("gone-meanwhile"));
    await using source = startKubeSource(server);
    await source.recorder.untilSynced();
    await watching(server);
    const from = source.recorder.batches.length;
    const text = JSON.stringify({
      message: `Too ${how === "server from a backup" ? "large" : "old"} resource version: 5`,
    });
    for (const plural of ["services", "endpointslices", "nodes"]) {
      if (status === undefined) continue;
      server.plan(({ path, watch }) => watch && path.endsWith(`/${plural}`), { status, text });
    }
    server.silenceWatches();
    server.remove(rawService("gone-meanwhile"));
    server.put(rawService("new"));
    if (status === undefined) server.compact();
    server.closeConnections();
    await source.recorder.untilThere("Service default/new");
    assertEquals(source.recorder.story(from).sort(), [
      "add Service default/new",
      "delete Service default/gone-meanwhile",
    ]);
    assertEquals(listsOf(server, "services"), 2, how);
  }
});

Deno.test("a watch that always ends at once is not opened again and again without a pause", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  for (let i = 0; i < 1000; i++) {
    server.plan(({ path, watch }) => watch && path.endsWith("/services"), { status: 200, text: "" });
  }
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  await using source = startKubeSource(server, { times: REFLECTOR_TIMES, clock, random: () => 0 });
  await source.recorder.untilSynced();
  const watches = (): number =>
    server.requests.filter(({ path, watch }) => watch && path.endsWith("/services")).length;
  await clock.passUntil(() => watches() >= 3, "some that end", 60_000);
  const before = watches();
  await clock.pass(5 * 60_000);
  const times = watches() - before;
  assert(times > 3 && times < 20, `${times} times in five minutes`);
});

Deno.test("a silent watch is opened again also after a garbage collection", async () => {
  await using rig = await watchedSource({ times: { ...QUICK_TIMES, silenceMs: 600 } });
  const { server, source } = rig;
  server.silenceWatches();
  collectGarbage();
  await new Promise((resolve) => setTimeout(resolve, 50));
  collectGarbage();
  server.put(rawService("missed"));
  await source.recorder.untilThere("Service default/missed");
});

Deno.test("a list that never begins is given up, a slow one is not", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  server.plan(({ path }) => path.endsWith("/services"), { hang: true });
  server.plan(({ path }) => path.endsWith("/nodes"), { after: answered });
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs, patience: 100 });
  await using source = startKubeSource(server, { times: REFLECTOR_TIMES, clock });
  await until(() => server.requests.length >= 3, "a list of each kind");
  await clock.pass(REFLECTOR_TIMES.answerMs - 5_000);
  assertEquals([listsOf(server, "services"), listsOf(server, "nodes")], [1, 1]);
  answer();
  await source.recorder.until(() => source.recorder.synced.includes("nodes"), "the slow list");
  await clock.passUntil(() => source.recorder.synced.length === 3, "all lists", 10_000);
  assertEquals([listsOf(server, "services"), listsOf(server, "nodes")], [2, 1]);
});

Deno.test("Retry-After is waited for", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.plan(({ path }) => path.endsWith("/services"), { status: 429, retryAfter: 1 });
  // From before the request: the reader of its answer may be late.
  const startMs = Date.now();
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assert(Date.now() - startMs > 900, `${Date.now() - startMs} ms`);
  assertEquals(listsOf(server, "services"), 2);
});

Deno.test("malformed objects are refused by name and keep their last good form", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put({ ...rawService("bad"), spec: { clusterIP: "10.96.0.9", ports: [{ port: "eighty" }] } });
  await using source = startKubeSource(server);
  const { recorder } = source;
  await recorder.untilSynced();
  await watching(server);
  assertEquals(recorder.names("Service"), ["Service default/web"]);
  const [first] = recorder.rejections;
  assertEquals(first?.object, "Service default/bad");
  assertEquals(first?.where, `${server.url}/api/v1/services`);
  assertStringIncludes(first?.message ?? "", "spec.ports[0].port");
  server.put({ ...rawSlice("web", []), endpoints: [{ addresses: ["not-an-ip"] }] });
  server.put(rawService("after"));
  await recorder.untilThere("Service default/after");
  await recorder.until(() => recorder.rejections.length === 2, "the second rejection");
  assertEquals((recorder.objects.get("EndpointSlice default/web-x") as EndpointSlice).endpoints.length, 2);
  // Listing again must not take the good form away either.
  server.compact();
  server.bookmark();
  server.put(rawSlice("web", ["10.1.0.3"]));
  await recorder.until(
    () => (recorder.objects.get("EndpointSlice default/web-x") as EndpointSlice).endpoints.length === 1,
    "the good slice",
  );
  server.remove(rawSlice("web", []));
  await recorder.untilThere("EndpointSlice default/web-x", false);
});

Deno.test("lines that are no events break the watch, and the next one goes on", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  for (
    const [index, text] of [
      "{]\n",
      '"text"\n',
      '{"type":"MOVED","object":{}}\n',
      '{"type":"ADDED"}\n',
      '{"type":"ERROR","object":{"code":500,"message":"etcd is busy"}}\n',
    ].entries()
  ) {
    await watching(server);
    server.send(text, "services");
    server.put(rawService(`after-${index}`));
    await source.recorder.untilThere(`Service default/after-${index}`);
  }
});

Deno.test("an event that can never be read costs a new list, not everything that comes after it", async () => {
  for (const text of ['{"type":"ADDED"}\n', '{"type":"MOVED","object":{}}\n']) {
    const times = { ...QUICK_TIMES, backoffInitialMs: 5, backoffMaxMs: 10_000 };
    await using rig = await watchedSource({ times });
    const { server, source } = rig;
    const isWatch = ({ path, watch }: ApiRequest): boolean => watch && path.endsWith("/services");
    const version = server.requests.find(isWatch)?.query.get("resourceVersion");
    for (let i = 0; i < 100; i++) {
      const isOld = (request: ApiRequest): boolean =>
        isWatch(request) && request.query.get("resourceVersion") === version;
      server.plan(isOld, { status: 200, text });
    }
    server.send(text, "services");
    server.put(rawService("after"));
    await source.recorder.untilThere("Service default/after");
  }
});

Deno.test("a lost connection is reported once, and once that it is back; waiting ends at once everywhere", async () => {
  const server = new ListWatchServer();
  putWeb(server);
  const port = Number(new URL(server.url).port);
  const times = { ...QUICK_TIMES, backoffInitialMs: 50, backoffMaxMs: 60_000 };
  await using source = startKubeSource(server, { times, random: () => 0 });
  await source.recorder.untilSynced();
  await watching(server);
  await server[Symbol.asyncDispose]();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assertEquals(source.recorder.names().length, 3);
  await using again = new ListWatchServer(port);
  putWeb(again);
  again.put(rawService("later"));
  await source.recorder.untilThere("Service default/later");
  await watching(again);
  const told = source.lines.filter((line) => /^[EW]/.test(line));
  assertEquals(told.length, 1, told.join(""));
  assertMatch(told[0] ?? "", /Lost the connection to the API server/);
  assertEquals(source.lines.filter((line) => line.includes("is back")).length, 1);
  // The versions of the new server are behind: it says so, and everything is listed again without a gap.
  assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
});

Deno.test("stopping is immediate in every state and leaves nothing behind", async () => {
  const states: readonly ((server: ListWatchServer) => void)[] = [
    () => {},
    (server) => server.plan(({ path }) => path.endsWith("/services"), { hang: true }),
    (server) => server.plan(({ path }) => path.endsWith("/services"), { status: 429, retryAfter: 60 }),
    (server) => server.plan(({ path }) => path.endsWith("/services"), { cutAfterBytes: 10 }),
    (server) => server.plan(({ watch }) => watch, { hang: true }),
  ];
  for (const prepare of states) {
    await using server = new ListWatchServer();
    putWeb(server);
    prepare(server);
    const source = startKubeSource(server, {
      times: { ...QUICK_TIMES, backoffInitialMs: 60_000, backoffMaxMs: 60_000 },
    });
    await until(() => server.requests.length >= 3, "requests");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startMs = Date.now();
    await source[Symbol.asyncDispose]();
    assertLess(Date.now() - startMs, 20_000);
  }
});

Deno.test("a list that brings nothing new leaves what was delivered: later changes start from that", async () => {
  await using rig = await watchedSource();
  const { server, source, recorder } = rig;
  const gone = { type: "ERROR", object: { kind: "Status", code: 410, message: "too old resource version" } };
  server.send(`${JSON.stringify(gone)}\n`);
  await until(() => listsOf(server, "services") === 2, "a second list");
  const delivered = source.recorder.objects.get("Service default/web");
  server.put(rawService("web", { port: 81 }));
  await recorder.until(() => recorder.story().at(-1) === "update Service default/web", "the change");
  const update = recorder.batches.at(-1)?.at(-1);
  assertStrictEquals(update?.type === "update" ? update.old : undefined, delivered);
});

Deno.test("the end of a source is no watch that was cut off", async () => {
  const rig = await watchedSource();
  await rig[Symbol.asyncDispose]();
  assertEquals(rig.source.lines.filter((line) => line.includes("cut off")), []);
});
