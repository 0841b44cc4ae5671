/** What the API server source reports beside objects: signs of life, and its requests. */
import { assert, assertEquals } from "@std/assert";
import { steadyPorts } from "../../../tests/support/steady_ports.ts";
import { putWeb, quickKubeSource, watching } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService } from "../../../tests/support/raw_objects.ts";
import { SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { until } from "../../../tests/support/until.ts";
import { silentLogger } from "../../observe/log.ts";
import type { ApiAnswer, ApiRequest } from "../../observe/metrics.ts";
import { CombinedSource } from "../combined_source.ts";
import type { ResourceKind, Source } from "../source.ts";

class SignRecorder extends SourceRecorder {
  signs: ResourceKind[] = [];

  heard(kind: ResourceKind): void {
    this.signs.push(kind);
  }
}

interface Running extends AsyncDisposable {
  readonly handler: SignRecorder;
  readonly requests: ApiRequest[];
  readonly answers: ApiAnswer[];
}

/** Runs the source against `server` until disposed. */
function start(server: string, wrap: (source: Source) => Source = (source) => source): Running {
  const requests: ApiRequest[] = [];
  const answers: ApiAnswer[] = [];
  const source = quickKubeSource(server, silentLogger, {
    onRequest: (request) => requests.push(request),
    onAnswer: (answer) => answers.push(answer),
  });
  const handler = new SignRecorder();
  const stop = new AbortController();
  const running = wrap(source).run(handler, stop.signal);
  return {
    handler,
    requests,
    answers,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      handler.assertSound();
    },
  };
}

const NOTHING: Source = {
  name: "nothing",
  run: (handler) => {
    const kinds = ["services", "endpointslices", "nodes"] as const;
    handler.events(kinds.map((kind) => ({ type: "synced", kind })));
    return Promise.resolve();
  },
};

Deno.test("lists, opened watches, bookmarks and events are signs of life of their kind", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  for (const wrap of [undefined, (source: Source) => new CombinedSource(NOTHING, source, () => {})]) {
    await using source = start(server.url, wrap);
    const { handler } = source;
    await handler.untilSynced();
    await until(() => handler.signs.length >= 6, "a sign of each list and each watch");
    assertEquals([...new Set(handler.signs)].sort(), ["endpointslices", "nodes", "services"]);
    handler.signs = [];
    server.bookmark();
    await until(() => handler.signs.length >= 3, "a sign of each bookmark");
    assertEquals([...handler.signs].sort(), ["endpointslices", "nodes", "services"]);
    handler.signs = [];
    server.put(rawService("api"));
    await handler.untilThere("Service default/api");
    assertEquals(handler.signs, ["services"]);
    server.remove(rawService("api"));
    await handler.untilThere("Service default/api", false);
  }
});

Deno.test("a server that refuses or does not answer gives no sign of life", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.forbidden.add("nodes");
  server.plan(({ path, watch }) => path.endsWith("/services") && watch, { hang: true });
  await using source = start(server.url);
  await source.handler.untilSynced();
  await until(() => source.requests.length >= 4, "the answers");
  await until(
    () => source.handler.signs.filter((kind) => kind === "endpointslices").length >= 2,
    "the other watch",
  );
  assertEquals(source.handler.signs.filter((kind) => kind === "nodes"), []);
  assertEquals(source.handler.signs.filter((kind) => kind === "services").length, 1);
});

Deno.test("requests are reported by method, host and status, and how long the answer took", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.streamsLists = true;
  server.forbidden.add("nodes");
  server.plan(({ path }) => path.endsWith("/services"), { delayMs: 120 });
  await using source = start(server.url);
  await source.handler.untilSynced();
  await until(() => server.watches() >= 2, "two watches");
  await until(() => source.requests.length >= 3, "all told");
  const { host } = new URL(server.url);
  for (const request of source.requests) {
    assertEquals([request.method, request.host], ["GET", host]);
    assert(request.durationMs >= 0 && request.durationMs < 30_000, JSON.stringify(request));
  }
  assert(source.requests.some(({ durationMs }) => durationMs >= 100));
  assertEquals([...new Set(source.requests.map(({ code }) => code))].sort(), ["200", "403"]);
});

Deno.test("answers are reported with their size: lists and refusals, never a watch", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.forbidden.add("nodes");
  server.plan(({ path, watch }) => path.endsWith("/services") && watch, { status: 503 });
  await using source = start(server.url);
  await source.handler.untilSynced();
  await until(() => server.watches() >= 2, "two watches");
  const told = new Set(
    source.answers.map(({ method, host, receivedBytes }) => `${method} ${host} ${receivedBytes}`),
  );
  const wanted = new Set<string>();
  for (const path of ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes"]) {
    const { length } = await (await fetch(server.url + path)).bytes();
    wanted.add(`GET ${new URL(server.url).host} ${length}`);
  }
  assertEquals([told, wanted.size], [wanted, 3]);
});

Deno.test("a request without an answer is reported as an error", async () => {
  await using source = start(`http://127.0.0.1:${steadyPorts()}`);
  await until(() => source.requests.length >= 3, "three tries");
  assertEquals([...new Set(source.requests.map(({ code }) => code))], ["<error>"]);
});

Deno.test("a watch that is ended and opened again tells of it", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  await using source = start(server.url);
  await source.handler.untilSynced();
  await watching(server);
  await until(() => source.handler.signs.length >= 6, "lists and watches");
  source.handler.signs = [];
  server.endWatches("cleanly");
  await until(() => source.handler.signs.length >= 3, "the watches' return");
});
