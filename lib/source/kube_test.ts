import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, assertEquals, assertLess, assertMatch, assertStringIncludes } from "@std/assert";
import { ListWatchServer, type RawApiObject } from "../../tests/support/list_watch_server.ts";
import { rawEndpoints, rawNode, rawService, rawSlice } from "../../tests/support/raw_objects.ts";
import { type RunningSource, runSource } from "../../tests/support/source_recorder.ts";
import { KubeSource, type KubeSourceOptions } from "./kube.ts";
import { masterAccess } from "./kube_access.ts";
import type { ReflectorTimes } from "./kube_reflector.ts";
import type { EndpointSlice, Service } from "../model/objects.ts";

const QUICK: ReflectorTimes = {
  backoffInitialMs: 20,
  backoffMaxMs: 200,
  stallMs: 30_000,
  watchMs: 60_000,
  answerMs: 30_000,
  shortWatchMs: 0,
};

function start(server: ListWatchServer, options: Partial<KubeSourceOptions> = {}): RunningSource {
  return runSource((log) =>
    new KubeSource({
      access: masterAccess(server.url),
      nodeName: "n1",
      endpointsSource: "auto",
      configSyncPeriodMs: 900_000,
      qps: -1,
      burst: 10,
      log,
      times: QUICK,
      ...options,
    })
  );
}

function withWeb(server: ListWatchServer): void {
  server.put(rawNode("n1"));
  server.put(rawService("web"));
  server.put(rawSlice("web", ["10.1.0.1", "10.1.0.2"]));
}

async function until(condition: () => boolean, what: string, timeoutMs = 10_000): Promise<void> {
  const deadlineMs = Date.now() + timeoutMs;
  while (!condition()) {
    if (Date.now() > deadlineMs) throw new Error(`Not within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Resolves when the three watches are open. */
function watching(server: ListWatchServer): Promise<void> {
  return until(() => server.watches() >= 3, "three watches");
}

function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
}

function lists(server: ListWatchServer, plural: string): number {
  return server.requests.filter(({ path, watch }) => path.endsWith(`/${plural}`) && !watch).length;
}

Deno.test("the first lists, then added, changed and deleted objects", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  server.put(rawNode("other"));
  await using source = start(server);
  const { recorder } = source;
  await recorder.untilSynced();
  assertEquals(recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/web"]);
  await watching(server);
  const from = recorder.batches.length;
  server.put(rawService("api"));
  server.put(rawService("api", { port: 81 }));
  server.put(rawService("api", { port: 81, labels: { irrelevant: "yes" } }));
  server.remove(rawService("web"));
  await recorder.untilThere("Service default/web", false);
  assertEquals(recorder.story(from), [
    "add Service default/api",
    "update Service default/api",
    "delete Service default/web",
  ]);
  assertEquals((recorder.objects.get("Service default/api") as Service).ports[0]?.port, 81);
});

Deno.test("selectors are the server's business: lists and watches carry kube-proxy's", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("foreign", { labels: { "service.kubernetes.io/service-proxy-name": "" } }));
  server.put(rawService("headless", { clusterIP: "None" }));
  server.put(rawService("web"));
  await using source = start(server);
  await source.recorder.untilSynced();
  await watching(server);
  assertEquals(source.recorder.names("Service"), ["Service default/web"]);
  const query = (path: string) =>
    server.requests.filter((request) => request.path === path).map(({ query }) => [
      query.get("labelSelector"),
      query.get("fieldSelector"),
    ]);
  const services = ["!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"];
  assertEquals(query("/api/v1/services"), [services, services]);
  const slices = ["!service.kubernetes.io/headless", null];
  assertEquals(query("/apis/discovery.k8s.io/v1/endpointslices"), [slices, slices]);
  assertEquals(query("/api/v1/nodes"), [[null, "metadata.name=n1"], [null, "metadata.name=n1"]]);
  const from = source.recorder.batches.length;
  server.put(rawService("web", { labels: { "service.kubernetes.io/service-proxy-name": "other" } }));
  server.put(rawService("web"));
  await source.recorder.until(() => source.recorder.batches.flat().length >= 6, "label gained and lost");
  assertEquals(source.recorder.story(from), ["delete Service default/web", "add Service default/web"]);
});

Deno.test("a server that refuses the field selector is asked by labels alone, at once", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  server.put(rawService("headless", { clusterIP: "None", labels: { "service.kubernetes.io/headless": "" } }));
  server.refuseFields = true;
  await using source = start(server, { times: { ...QUICK, backoffInitialMs: 5000 } });
  await source.recorder.untilSynced(2000);
  await watching(server);
  assertEquals(source.recorder.names("Service"), ["Service default/web"]);
  const last = server.requests.findLast(({ path }) => path === "/api/v1/services");
  assertEquals(
    last?.query.get("labelSelector"),
    "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name",
  );
  assertEquals(last?.query.get("fieldSelector"), null);
});

Deno.test("long lists come in pages and are delivered as one", async () => {
  await using server = new ListWatchServer();
  for (let i = 0; i < 1201; i++) server.put(rawService(`s${i}`));
  await using source = start(server);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names("Service").length, 1201);
  assertEquals(lists(server, "services"), 3);
  const batch = source.recorder.batches.find((events) => events.length > 1);
  assertEquals(batch?.length, 1202);
  assertEquals(batch?.at(-1), { type: "synced", kind: "services" });
});

Deno.test("a page that fails or is too old starts the list over, and nothing half is delivered", async () => {
  for (
    const fault of [{ status: 500 }, { cutAfterBytes: 300 }, { status: 410 }, { status: 200, text: "<html>" }]
  ) {
    await using server = new ListWatchServer();
    for (let i = 0; i < 1001; i++) server.put(rawService(`s${i}`));
    server.plan(({ query }) => query.get("continue")?.endsWith(":500") ?? false, fault);
    await using source = start(server);
    await source.recorder.untilSynced();
    assertEquals(source.recorder.names("Service").length, 1001);
    assertEquals(source.recorder.story().filter((line) => line === "add Service default/s1000").length, 1);
    const again = server.requests.filter(({ path, watch }) => path.endsWith("/services") && !watch)[2];
    assertEquals(again?.query.has("continue"), false);
    // Versions that vanish while we page would vanish again.
    assertEquals(again?.query.get("limit"), fault.status === 410 ? "0" : "500");
  }
});

Deno.test("an answer that is no list never counts as an empty one", async () => {
  const answers = [
    "{}",
    "null",
    "",
    "[]",
    '{"kind":"ServiceList","metadata":{"resourceVersion":"7"}}',
    '{"kind":"ServiceList","metadata":{},"items":[]}',
    '{"kind":"Status","metadata":{"resourceVersion":"7"},"items":[]}',
  ];
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
  await source.recorder.untilSynced();
  await watching(server);
  for (const text of answers) {
    server.plan(({ path, watch }) => path.endsWith("/services") && !watch, { status: 200, text });
  }
  const before = lists(server, "services");
  server.compact();
  server.put(rawService("new"));
  server.compact();
  server.endWatches("broken");
  await source.recorder.untilThere("Service default/new");
  assertEquals(lists(server, "services") - before, answers.length + 1);
  assertEquals(source.recorder.story().filter((line) => line.startsWith("delete")), []);
});

Deno.test("a watch that ends, cleanly or not, goes on where it was", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
  await source.recorder.untilSynced();
  for (const [index, how] of (["cleanly", "broken"] as const).entries()) {
    await watching(server);
    server.bookmark();
    server.endWatches(how);
    server.put(rawService(`during-${index}`));
    await source.recorder.untilThere(`Service default/during-${index}`);
  }
  assertEquals(lists(server, "services"), 1);
  const versions = server.requests.filter(({ path, watch }) => path.endsWith("/services") && watch).map(
    ({ query }) => Number(query.get("resourceVersion")),
  );
  assert(
    versions.every((version, index) => index === 0 || version > (versions[index - 1] ?? 0)),
    `${versions}`,
  );
});

Deno.test("half a line at the end of a broken watch is no event, its other half comes with the next watch", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
  await source.recorder.untilSynced();
  await watching(server);
  server.send('{"type":"ADDED","object":{"kind":"Service","metadata":{"name":"half","names', "services");
  await new Promise((resolve) => setTimeout(resolve, 50));
  server.endWatches("broken");
  server.put(rawService("whole"));
  await source.recorder.untilThere("Service default/whole");
  assertEquals(source.recorder.objects.has("Service default/half"), false);
});

Deno.test("events of one write arrive in one batch and in order, a line in pieces arrives whole", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
  await source.recorder.untilSynced();
  await watching(server);
  const line = (type: string, object: RawApiObject) => `${JSON.stringify({ type, object })}\n`;
  const from = source.recorder.batches.length;
  server.send(
    line("ADDED", rawService("a")) + line("ADDED", rawService("b")) + line("DELETED", rawService("a")),
    "services",
  );
  await source.recorder.until(() => source.recorder.batches.length > from, "the batch");
  assertEquals(source.recorder.batches.length, from + 1);
  assertEquals(source.recorder.story(from), [
    "add Service default/a",
    "add Service default/b",
    "delete Service default/a",
  ]);
  const text = line("ADDED", rawService("ünïcode".replace(/[^a-z]/g, "x"), { labels: { note: "é" } }));
  for (const piece of [text.slice(0, 30), text.slice(30, 31), text.slice(31)]) {
    server.send(piece, "services");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await source.recorder.untilThere("Service default/xnxcode");
});

Deno.test("410 for a watch, as its answer or as an event, lists again and delivers the difference only", async () => {
  const answers = { event: undefined, answer: 410, "old server": 500, "server from a backup": 504 };
  for (const [how, status] of Object.entries(answers)) {
    await using server = new ListWatchServer();
    withWeb(server);
    server.put(rawService("gone-meanwhile"));
    await using source = start(server);
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
    assertEquals(lists(server, "services"), 2, how);
  }
});

Deno.test("a server that calls every version too old is not hammered", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  for (let i = 0; i < 100; i++) {
    server.plan(({ path, watch }) => watch && path.endsWith("/services"), { status: 410 });
  }
  await using source = start(server, { times: { ...QUICK, backoffInitialMs: 100, backoffMaxMs: 10_000 } });
  await source.recorder.untilSynced();
  await new Promise((resolve) => setTimeout(resolve, 600));
  assertLess(lists(server, "services"), 8);
});

Deno.test("a watch that always ends at once is not opened again and again without a pause", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  for (let i = 0; i < 1000; i++) {
    server.plan(({ path, watch }) => watch && path.endsWith("/services"), { status: 200, text: "" });
  }
  const times = { ...QUICK, backoffInitialMs: 50, backoffMaxMs: 10_000, shortWatchMs: 1000 };
  await using source = start(server, { times });
  await source.recorder.untilSynced();
  await new Promise((resolve) => setTimeout(resolve, 500));
  assertLess(server.requests.filter(({ path, watch }) => watch && path.endsWith("/services")).length, 8);
});

Deno.test("a watch on which nothing arrives is given up, and what was missed is caught up with", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server, { times: { ...QUICK, stallMs: 300 } });
  await source.recorder.untilSynced();
  await watching(server);
  server.silenceWatches();
  server.put(rawService("missed"));
  await source.recorder.untilThere("Service default/missed");
  assert(source.lines.some((line) => line.includes("Nothing arrived from")), source.lines.join(""));
});

Deno.test("a silent watch is given up also after a garbage collection, and so is stopping", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server, { times: { ...QUICK, stallMs: 600 } });
  await source.recorder.untilSynced();
  await watching(server);
  server.silenceWatches();
  collectGarbage();
  await new Promise((resolve) => setTimeout(resolve, 50));
  collectGarbage();
  server.put(rawService("missed"));
  await source.recorder.untilThere("Service default/missed");
});

Deno.test("bookmarks keep a quiet watch alive", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server, { times: { ...QUICK, stallMs: 400 } });
  await source.recorder.untilSynced();
  await watching(server);
  const before = server.requests.length;
  for (let i = 0; i < 10; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    server.bookmark();
  }
  assertEquals(server.requests.length, before);
});

Deno.test("a list that never begins is given up, a slow one is not", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  server.plan(({ path }) => path.endsWith("/services"), { hang: true });
  server.plan(({ path }) => path.endsWith("/nodes"), { delayMs: 200 });
  await using source = start(server, { times: { ...QUICK, answerMs: 400 } });
  await source.recorder.untilSynced();
  assertEquals([lists(server, "services"), lists(server, "nodes")], [2, 1]);
});

Deno.test("auto uses v1 Endpoints where the server has no EndpointSlices", async () => {
  await using server = new ListWatchServer();
  server.missing.add("endpointslices");
  server.put(rawService("web"));
  server.put(rawEndpoints("web", ["10.1.0.1", "2001:db8::1"]));
  await using source = start(server);
  const { recorder } = source;
  await recorder.untilSynced();
  assertEquals(recorder.names("EndpointSlice"), [
    "EndpointSlice default/endpoints/web/IPv4",
    "EndpointSlice default/endpoints/web/IPv6",
  ]);
  await watching(server);
  const from = recorder.batches.length;
  server.put(rawEndpoints("web", ["10.1.0.1", "10.1.0.9"]));
  await recorder.untilThere("EndpointSlice default/endpoints/web/IPv6", false);
  assertEquals(recorder.story(from), [
    "update EndpointSlice default/endpoints/web/IPv4",
    "delete EndpointSlice default/endpoints/web/IPv6",
  ]);
  const endpoints = server.requests.find(({ path }) => path === "/api/v1/endpoints");
  assertEquals(endpoints?.query.get("labelSelector"), "!service.kubernetes.io/headless");
});

Deno.test("the modes slices and endpoints ask for nothing else", async () => {
  for (
    const [mode, asked, other] of [["slices", "endpointslices", "endpoints"], [
      "endpoints",
      "endpoints",
      "endpointslices",
    ]] as const
  ) {
    await using server = new ListWatchServer();
    withWeb(server);
    server.put(rawEndpoints("web", ["10.1.0.1"]));
    server.plan(({ path }) => path.endsWith(`/${asked}`), { status: 404 });
    await using source = start(server, { endpointsSource: mode });
    await source.recorder.untilSynced();
    assertEquals(lists(server, asked), 2);
    assertEquals(lists(server, other), 0);
  }
});

Deno.test("a Node that may not be read holds nothing up and is delivered when it may", async () => {
  for (const refuse of ["forbidden", "missing"] as const) {
    await using server = new ListWatchServer();
    withWeb(server);
    server[refuse].add("nodes");
    await using source = start(server);
    const { recorder } = source;
    await recorder.untilSynced();
    assertEquals(recorder.names(), ["EndpointSlice default/web-x", "Service default/web"]);
    server[refuse].delete("nodes");
    await recorder.untilThere("Node n1");
    const told = source.lines.filter((line) => line.startsWith("E") && line.includes("/api/v1/nodes"));
    assertEquals(told.length, 1, told.join(""));
    assert(source.lines.some((line) => line.includes("answers the request again")));
  }
});

Deno.test("Retry-After is waited for", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  server.plan(({ path }) => path.endsWith("/services"), { status: 429, retryAfter: 1 });
  await using source = start(server);
  await until(() => lists(server, "services") === 1, "the first list");
  const startMs = Date.now();
  await source.recorder.untilSynced();
  assert(Date.now() - startMs > 900, `${Date.now() - startMs} ms`);
});

Deno.test("malformed objects are refused by name and keep their last good form", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  server.put({ ...rawService("bad"), spec: { clusterIP: "10.96.0.9", ports: [{ port: "eighty" }] } });
  await using source = start(server);
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

Deno.test("a malformed object in a later list keeps its last good form", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
  const { recorder } = source;
  await recorder.untilSynced();
  await watching(server);
  server.silenceWatches();
  server.put({ ...rawService("web"), spec: { clusterIP: 7 } });
  server.compact();
  server.closeConnections();
  await recorder.until(() => recorder.rejections.length > 0, "the rejection");
  await watching(server);
  assertEquals(recorder.names("Service"), ["Service default/web"]);
  assertEquals(recorder.story().filter((line) => line.startsWith("delete")), []);
});

Deno.test("lines that are no events break the watch, and the next one goes on", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  await using source = start(server);
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

Deno.test("objects are delivered again each period, unchanged, without listing", async () => {
  await using server = new ListWatchServer();
  withWeb(server);
  for (let i = 0; i < 450; i++) server.put(rawService(`s${i}`));
  await using source = start(server, { configSyncPeriodMs: 300 });
  const { recorder } = source;
  await recorder.untilSynced();
  const from = recorder.batches.length;
  const known = new Map(recorder.objects);
  await recorder.until(() => recorder.batches.slice(from).flat().length >= 453, "all objects again");
  const events = recorder.batches.slice(from).flat().slice(0, 453);
  for (const event of events) {
    assertEquals(event.type, "update");
    if (event.type === "update") assert(event.old === event.object, "the same object");
  }
  assertEquals(new Set(events.map((event) => event.type === "update" ? event.object : event)).size, 453);
  assert(recorder.batches.slice(from).every((batch) => batch.length <= 200), "small batches");
  assertEquals(recorder.objects, known);
  assertEquals(lists(server, "services"), 1);
});

Deno.test("first lists do not wait for the limit of requests, what follows does", async () => {
  await using server = new ListWatchServer();
  for (let i = 0; i < 2600; i++) server.put(rawService(`s${i}`));
  withWeb(server);
  await using source = start(server, { qps: 2, burst: 1 });
  const startMs = Date.now();
  await source.recorder.untilSynced();
  assertLess(Date.now() - startMs, 1400);
  assertEquals(lists(server, "services"), 6);
  await watching(server);
  // One watch at once, the others half a second apart.
  assert(Date.now() - startMs > 900, `${Date.now() - startMs} ms`);
});

Deno.test("a lost connection is told once, and once that it is back; waiting ends at once everywhere", async () => {
  const server = new ListWatchServer();
  withWeb(server);
  const port = Number(new URL(server.url).port);
  const times = { ...QUICK, backoffInitialMs: 50, backoffMaxMs: 60_000 };
  await using source = start(server, { times, random: () => 0 });
  await source.recorder.untilSynced();
  await watching(server);
  await server[Symbol.asyncDispose]();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assertEquals(source.recorder.names().length, 3);
  await using again = new ListWatchServer(port);
  withWeb(again);
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
    withWeb(server);
    prepare(server);
    const source = start(server, { times: { ...QUICK, backoffInitialMs: 60_000, backoffMaxMs: 60_000 } });
    await until(() => server.requests.length >= 3, "requests");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const startMs = Date.now();
    await source[Symbol.asyncDispose]();
    assertLess(Date.now() - startMs, 500);
  }
});
