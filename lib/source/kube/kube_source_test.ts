import { assert, assertEquals } from "@std/assert";
import {
  listsOf,
  putWeb,
  QUICK_TIMES,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer, type RawApiObject } from "../../../tests/support/list_watch_server.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import { rawService, rawServiceCidr } from "../../../tests/support/raw_objects.ts";
import { SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { REFLECTOR_TIMES } from "./reflector.ts";

Deno.test("selectors are the server's business: lists and watches carry kube-proxy's", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("foreign", { labels: { "service.kubernetes.io/service-proxy-name": "" } }));
  server.put(rawService("headless", { clusterIP: "None" }));
  server.put(rawService("web"));
  await using source = startKubeSource(server);
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
  putWeb(server);
  server.put(rawService("headless", { clusterIP: "None", labels: { "service.kubernetes.io/headless": "" } }));
  server.refuseFields = true;
  await using source = startKubeSource(server, {
    times: { ...QUICK_TIMES, backoffInitialMs: 300_000, backoffMaxMs: 300_000 },
  });
  await source.recorder.untilSynced();
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
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names("Service").length, 1201);
  assertEquals(listsOf(server, "services"), 3);
  const batch = source.recorder.batches.find((events) => events.length > 1);
  assertEquals(batch?.length, 1202);
  assertEquals(batch?.at(-1), { type: "synced", kind: "services" });
});

Deno.test("events of one write arrive in one batch and in order, a line in pieces arrives whole", async () => {
  await using rig = await watchedSource();
  const { server, source } = rig;
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

Deno.test("bookmarks keep a quiet watch alive", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  const { silenceMs, watchMs } = REFLECTOR_TIMES;
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  await using source = startKubeSource(server, { times: REFLECTOR_TIMES, clock });
  await source.recorder.untilSynced();
  await watching(server);
  const before = server.requests.length;
  // Not until the watches' own time is over.
  for (let passedMs = 0; passedMs < Math.min(3 * silenceMs, watchMs / 2); passedMs += silenceMs / 2) {
    server.bookmark();
    await clock.pass(silenceMs / 2);
  }
  assertEquals(server.requests.length, before);
  await clock.pass(silenceMs);
  assert(server.requests.length > before, "without a word they are opened again");
});

Deno.test("a Node that may not be read holds nothing up and is delivered when it may", async () => {
  for (const refuse of ["forbidden", "missing"] as const) {
    await using server = new ListWatchServer();
    putWeb(server);
    server[refuse].add("nodes");
    await using source = startKubeSource(server);
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

/** A handler that wants ServiceCIDRs. */
class WantingRecorder extends SourceRecorder {
  readonly wantsServiceCidrs = true;
}

Deno.test("ServiceCIDRs are asked for only by those who want them", async () => {
  await using server = new ListWatchServer();
  putWeb(server);
  server.put(rawServiceCidr("kubernetes", ["10.96.0.0/16"]));
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assertEquals(listsOf(server, "servicecidrs"), 0);
  await using wanting = startKubeSource(server, {}, new WantingRecorder());
  await wanting.recorder.untilThere("ServiceCIDR kubernetes");
  server.put(rawServiceCidr("more", ["10.98.0.0/24"]));
  await wanting.recorder.untilThere("ServiceCIDR more");
  server.remove(rawServiceCidr("more", []));
  await wanting.recorder.untilThere("ServiceCIDR more", false);
  assertEquals(listsOf(server, "servicecidrs"), 1);
});

Deno.test("a server without ServiceCIDRs, or that keeps them, holds nothing up and is reported once", async () => {
  for (const refuse of ["forbidden", "missing"] as const) {
    await using server = new ListWatchServer();
    putWeb(server);
    server.put(rawServiceCidr("kubernetes", ["10.96.0.0/16"]));
    server[refuse].add("servicecidrs");
    await using source = startKubeSource(server, {}, new WantingRecorder());
    const { recorder } = source;
    await recorder.until(() => recorder.synced.length === 4, "first lists");
    assertEquals(recorder.names("ServiceCIDR"), []);
    // Asked again, and still refused.
    await recorder.until(() => listsOf(server, "servicecidrs") >= 3, "more requests");
    const told = source.lines.filter((line) =>
      line.includes("servicecidrs") && !line.includes("streams no lists")
    );
    assertEquals(told.map((line) => [line[0], line.includes("Going on without")]), [["I", true]]);
    server[refuse].delete("servicecidrs");
    await recorder.untilThere("ServiceCIDR kubernetes");
    // Objects stay in force when access to them is taken away later.
    server[refuse].add("servicecidrs");
    server.endWatches("cleanly");
    const asked = server.requests.length;
    await recorder.until(
      () => server.requests.slice(asked).filter(({ path }) => path.endsWith("/servicecidrs")).length >= 2,
      "more requests",
    );
    assertEquals(recorder.names("ServiceCIDR"), ["ServiceCIDR kubernetes"]);
    assertEquals(source.lines.filter((line) => line.startsWith("E")), []);
  }
});

Deno.test("first lists do not wait for the limit of requests, what follows does", async () => {
  await using server = new ListWatchServer();
  for (let i = 0; i < 2600; i++) server.put(rawService(`s${i}`));
  putWeb(server);
  {
    // Two requests that waited for the limit would take longer than any machine.
    await using source = startKubeSource(server, { qps: 0.01, burst: 1 });
    await source.recorder.untilSynced();
    assertEquals(listsOf(server, "services"), 6);
  }
  const startMs = Date.now();
  await using source = startKubeSource(server, { qps: 2, burst: 1 });
  await source.recorder.untilSynced();
  await watching(server);
  // One watch at once, the others half a second apart.
  assert(Date.now() - startMs > 900, `${Date.now() - startMs} ms`);
});
