/** Answers in protobuf and JSON, good and hostile ones, at the source. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  envelope,
  field,
  frameBytes,
  joined,
  listBytes,
  objectBytes,
  statusBytes,
} from "../../../tests/support/kube_protobuf.ts";
import {
  expire,
  isStream,
  ofServices,
  serverOf,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import type { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService, rawSlice } from "../../../tests/support/raw_objects.ts";
import { AnswerError } from "./response.ts";
import { SERVICES } from "./kube_source.ts";
import { acceptHeader, readPage } from "./serializers.ts";

const PROTOBUF = "application/vnd.kubernetes.protobuf";
/** A server with protobuf and with lists as watches. */
function newServer(): ListWatchServer {
  return serverOf(true, true);
}

Deno.test("the form asked for is the setting's, JSON at last; another one is never asked for", async () => {
  const cases = [
    [PROTOBUF, "", `${PROTOBUF},application/json`],
    ["application/json", "", "application/json"],
    [PROTOBUF, "application/json", "application/json"],
    [PROTOBUF, `application/json, ${PROTOBUF}`, `application/json,${PROTOBUF}`],
    ["application/json", `${PROTOBUF};q=1`, `${PROTOBUF},application/json`],
    ["application/cbor", "", "application/json"],
    ["", "", "application/json"],
  ] as const;
  for (const [contentType, acceptContentTypes, header] of cases) {
    assertEquals(acceptHeader({ contentType, acceptContentTypes }), header);
  }
  await using server = newServer();
  await using json = startKubeSource(server, {
    contentTypes: { contentType: "application/json", acceptContentTypes: "" },
  });
  await json.recorder.untilSynced();
  assertEquals(
    new Set(server.requests.map(({ headers }) => headers.get("accept"))),
    new Set(["application/json"]),
  );
});

/** A Service that keeps its name, and is no message after that. */
function broken(name: string): Uint8Array {
  const { metadata } = rawService(name);
  return joined([objectBytes("Service", { metadata: { ...metadata, resourceVersion: "5000" } }), [
    0x12,
    100,
    1,
  ]]);
}

Deno.test("one object that is no message costs no other, in a list and in a watch, and keeps its last good form", async () => {
  await using rig = await watchedSource({}, newServer());
  const { server, recorder } = rig;
  const type = { apiVersion: "v1", kind: "Service" };
  const from = recorder.batches.length;
  server.send(
    joined([
      frameBytes("MODIFIED", envelope("v1", "Service", broken("web")), type),
      frameBytes("ADDED", rawService("next"), type),
    ]),
    "services",
  );
  await recorder.untilThere("Service default/next");
  assertEquals(recorder.story(from), ["add Service default/next"]);
  assertEquals(recorder.rejections.map(({ object, message }) => [object, message]), [
    ["Service default/web", "no message: spec cut off"],
  ]);
  assertEquals(recorder.names("Service"), ["Service default/next", "Service default/web"]);
  // The same with a list in pages.
  server.streamsLists = false;
  const metadata = { resourceVersion: "6000" };
  const items = [rawService("first"), broken("web"), broken("new"), rawService("last")];
  const bytes = listBytes({ apiVersion: "v1", kind: "ServiceList", metadata, items });
  server.plan((request) => ofServices(request) && !request.watch, { status: 200, bytes, type: PROTOBUF });
  server.plan((request) => ofServices(request) && request.watch, { status: 410 });
  server.endWatches("broken");
  await recorder.untilThere("Service default/last");
  assertEquals(recorder.names("Service"), [
    "Service default/first",
    "Service default/last",
    "Service default/web",
  ]);
  assertEquals(recorder.rejections.map(({ object }) => object), [
    "Service default/web",
    "Service default/new",
  ]);
});

Deno.test("bytes that are no list or no event never take anything away", async () => {
  await using server = serverOf(true, false);
  await using source = startKubeSource(server);
  const { recorder } = source;
  await recorder.untilSynced();
  await watching(server);
  const good = listBytes({
    apiVersion: "v1",
    kind: "ServiceList",
    metadata: { resourceVersion: "7" },
    items: [rawService("x")],
  });
  const metadata = {};
  const answers = [
    new Uint8Array(0),
    new TextEncoder().encode("<html>"),
    good.subarray(0, good.length - 6),
    good.subarray(4),
    listBytes({ apiVersion: "v1", kind: "ServiceList", metadata, items: [] }),
    listBytes({ apiVersion: "v1", kind: "NodeList", metadata: { resourceVersion: "7" }, items: [] }),
    listBytes({ apiVersion: "v2", kind: "ServiceList", metadata: { resourceVersion: "7" }, items: [] }),
    listBytes({
      apiVersion: "v1",
      kind: "ServiceList",
      metadata: { resourceVersion: "7" },
      items: [broken("x")],
    }),
    statusBytes({ code: 200, message: "fine" }),
    joined([good.subarray(0, 4), field(2, [0x12, 0xff, 0xff, 0xff, 0xff, 0x0f])]),
  ];
  for (const bytes of answers) {
    server.plan((request) => ofServices(request) && !request.watch, { status: 200, bytes, type: PROTOBUF });
  }
  for (const bytes of [[255, 255, 255, 255], [0, 0, 0, 1, 7], [0, 0, 0, 0]]) {
    server.plan((request) => ofServices(request) && request.watch, {
      status: 200,
      bytes: new Uint8Array(bytes),
      type: `${PROTOBUF};stream=watch`,
    });
  }
  server.put(rawSlice("late", ["10.1.0.9"]));
  expire(server);
  server.put(rawService("new"));
  await recorder.untilThere("Service default/new");
  assertEquals(recorder.story().filter((line) => line.startsWith("delete")), []);
  assertEquals(recorder.rejections, []);
});

Deno.test("a refusal in protobuf is reported in its words, and its wait is kept", async () => {
  await using server = newServer();
  server.forbidden.add("nodes");
  const said = {
    message: "slow down, please",
    reason: "TooManyRequests",
    code: 429,
    details: { retryAfterSeconds: 1 },
  };
  server.plan((request) => ofServices(request) && isStream(request), {
    status: 429,
    bytes: statusBytes(said),
    type: PROTOBUF,
  });
  const startMs = performance.now();
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assert(performance.now() - startMs >= 1_000);
  assertStringIncludes(source.lines.join(""), "cannot list resource nodes");
  assertStringIncludes(source.lines.join(""), "slow down, please");
});

Deno.test("a list of many megabytes in JSON is what it is in small pages, and none if a part of it is no JSON", async () => {
  await using server = serverOf(false, false);
  const note = '}],{[\\"items\\":' + "x".repeat(4_000);
  for (let i = 0; i < 900; i++) server.put(rawService(`s${i}`, { port: 1 + i, labels: { note } }));
  await using paged = startKubeSource(server);
  await paged.recorder.untilSynced();
  const response = await fetch(`${server.url}/api/v1/services`);
  const text = await response.text();
  assert(text.length > 3_500_000, `${text.length}`);
  const half = text.lastIndexOf('"spec"');
  for (const each of [text.slice(0, half) + text.slice(half + 1), text]) {
    server.plan((request) => ofServices(request) && !request.watch, { status: 200, text: each });
  }
  await using whole = startKubeSource(server);
  await whole.recorder.untilSynced();
  assertEquals(whole.recorder.objects, paged.recorder.objects);
  assertStringIncludes(whole.lines.join(""), "no list");
});

Deno.test("a list in JSON that ends inside of a character is no list", async () => {
  const text = `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`;
  const read = (ending: readonly number[]) =>
    readPage(
      { contentType: "application/json", body: new Blob([text, Uint8Array.from(ending)]).stream() },
      SERVICES,
      { signal: new AbortController().signal, note: () => {} },
      () => {},
    );
  await read([]);
  await assertRejects(() => read([0xe0]), AnswerError, "no list");
});
