/** Lists that a watch begins with, and answers in protobuf, at the source. */
import { assert, assertEquals } from "@std/assert";
import { frameBytes, joined } from "../../../tests/support/kube_protobuf.ts";
import {
  expire,
  isStream,
  listsOf,
  ofServices,
  QUICK_TIMES,
  serverOf,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import type { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService, rawServiceCidr } from "../../../tests/support/raw_objects.ts";
import { SourceRecorder } from "../../../tests/support/source_recorder.ts";
import { until } from "../../../tests/support/until.ts";
import type { Service } from "../../model/objects.ts";
import { SERVICES } from "./kube_source.ts";
import { KubeStore, Listing } from "./store.ts";

const PROTOBUF = "application/vnd.kubernetes.protobuf";
const WEB = ["EndpointSlice default/web-x", "Node n1", "Service default/web"];

/** Each sort of server: with and without protobuf, with and without lists as watches. */
const SERVERS = [[false, false], [false, true], [true, false], [true, true]] as const;

/** A server with protobuf and with lists as watches. */
function newServer(): ListWatchServer {
  return serverOf(true, true);
}

const streamsOf = (server: ListWatchServer): number =>
  server.requests.filter((one) => ofServices(one) && isStream(one)).length;

class WantingRecorder extends SourceRecorder {
  readonly wantsServiceCidrs = true;
}

for (const [hasProtobuf, streamsLists] of SERVERS) {
  const name = `${hasProtobuf ? "protobuf" : "JSON"}, lists ${streamsLists ? "as watches" : "in pages"}`;
  Deno.test(`${name}: all kinds, their changes, an outage, and nothing twice`, async () => {
    await using server = serverOf(hasProtobuf, streamsLists);
    server.put(rawServiceCidr("kubernetes", ["10.96.0.0/16"]));
    for (let i = 0; i < 700; i++) server.put(rawService(`s${i}`));
    await using source = startKubeSource(server, {}, new WantingRecorder());
    const { recorder } = source;
    await recorder.until(() => recorder.synced.length === 4, "first lists");
    assertEquals(recorder.names("Service ").length, 701);
    assertEquals(
      recorder.names().filter((one) => !/ default\/s\d/.test(one)),
      [
        ...WEB.slice(0, 2),
        WEB[2],
        "ServiceCIDR kubernetes",
      ].sort(),
    );
    await until(() => server.watches() >= 4, "four watches");
    assertEquals(listsOf(server, "services") === 0, streamsLists);
    let from = recorder.batches.length;
    server.put(rawService("api", { port: 81 }));
    server.put(rawService("api", { port: 82 }));
    server.remove(rawService("s0"));
    await recorder.untilThere("Service default/s0", false);
    assertEquals(recorder.story(from), [
      "add Service default/api",
      "update Service default/api",
      "delete Service default/s0",
    ]);
    assertEquals((recorder.objects.get("Service default/api") as Service).ports[0]?.port, 82);
    // Without a watch: one comes, one goes, one changes.
    server.closeConnections();
    from = recorder.batches.length;
    server.remove(rawService("s1"));
    server.put(rawService("s2", { port: 99 }));
    server.put(rawService("s999"));
    expire(server);
    await recorder.untilThere("Service default/s999");
    assertEquals(recorder.story(from).sort(), [
      "add Service default/s999",
      "delete Service default/s1",
      "update Service default/s2",
    ]);
    assertEquals(recorder.rejections, []);
  });
}

Deno.test("a list as a watch that ends before its bookmark changes nothing, and is asked for again", async () => {
  for (const how of ["cleanly", "broken"] as const) {
    await using rig = await watchedSource({}, newServer());
    const { server, recorder } = rig;
    const from = recorder.batches.length;
    server.remove(rawService("web"));
    for (let i = 0; i < 50; i++) server.put(rawService(`s${i}`));
    await recorder.untilThere("Service default/s49");
    const delivered = recorder.batches.length;
    const added = joined(
      ["a", "b"].map((one) => frameBytes("ADDED", rawService(one), { apiVersion: "v1", kind: "Service" })),
    );
    const fault = how === "cleanly"
      ? { status: 200, bytes: added, type: `${PROTOBUF};stream=watch` }
      : { cutAfterBytes: 700 };
    server.plan((request) => ofServices(request) && isStream(request), fault);
    server.remove(rawService("s7"));
    expire(server);
    await recorder.untilThere("Service default/s7", false);
    await until(() => streamsOf(server) === 3, "the list asked for again");
    assert(delivered > from);
    // Taken when it was whole, and only the difference.
    const story = recorder.story(delivered).filter((line) => line.includes("Service"));
    assertEquals(story, ["delete Service default/s7"]);
  }
});

Deno.test("a server that accepts such a watch and never ends its list is asked for pages, and only once for the other", async () => {
  await using server = newServer();
  server.endsLists = false;
  await using source = startKubeSource(server, { times: { ...QUICK_TIMES, streamMs: 100 } });
  const { recorder } = source;
  await recorder.untilSynced();
  assertEquals(recorder.names(), WEB);
  assertEquals([streamsOf(server), listsOf(server, "services")], [1, 1]);
  await watching(server);
  expire(server);
  await until(() => listsOf(server, "services") === 2, "another list");
  assertEquals(streamsOf(server), 1);
  assertEquals(
    source.lines.filter((line) => /^[EW]/.test(line) && line.includes("services")).length <= 1,
    true,
  );
});

Deno.test("a server whose storage cannot make such a list says so in the watch, and is asked for pages at once", async () => {
  await using server = newServer();
  const message =
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
  const status = { kind: "Status", apiVersion: "v1", code: 500, reason: "InternalError", message };
  for (let kind = 0; kind < 3; kind++) {
    const bytes = frameBytes("ERROR", status, { apiVersion: "v1", kind: "Status" });
    server.plan(isStream, { status: 200, bytes, type: `${PROTOBUF};stream=watch` });
  }
  // A wait would be longer than the test.
  await using source = startKubeSource(server, {
    times: { ...QUICK_TIMES, backoffInitialMs: 300_000, backoffMaxMs: 300_000 },
  });
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), WEB);
  assertEquals(source.lines.filter((line) => /^[EW]/.test(line)), []);
});

Deno.test("a server that fails at such lists again and again is asked for pages in between", async () => {
  await using server = newServer();
  const failing = { status: 500, text: "internal error" };
  for (let i = 0; i < 20; i++) server.plan((request) => ofServices(request) && isStream(request), failing);
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assertEquals(listsOf(server, "services"), 1);
  assert(streamsOf(server) <= 2, `${streamsOf(server)}`);
});

Deno.test("who may list but not watch still gets the list", async () => {
  await using server = newServer();
  for (let i = 0; i < 5; i++) server.plan((request) => ofServices(request) && request.watch, { status: 403 });
  await using source = startKubeSource(server);
  await source.recorder.untilSynced();
  assertEquals(source.recorder.names(), WEB);
});

Deno.test("pages are asked for from the server's memory, never older than what is known, from storage only if that fails", async () => {
  for (
    const fault of [{ status: 504, text: "Too large resource version: 7" }, { status: 410, text: "gone" }]
  ) {
    await using server = serverOf(true, false);
    await using source = startKubeSource(server);
    await source.recorder.untilSynced();
    await watching(server);
    const asked = () =>
      server.requests.filter((request) => ofServices(request) && !request.watch)
        .map(({ query }) => [query.get("resourceVersion"), query.get("limit")]);
    assertEquals(asked(), [["0", "500"]]);
    server.put(rawService("newest"));
    await source.recorder.untilThere("Service default/newest");
    const version = server.version;
    server.plan((request) => ofServices(request) && !request.watch, fault);
    expire(server);
    await until(() => asked().length === 3, "two more lists");
    assertEquals(asked().slice(1), [[version, null], [null, "500"]]);
  }
});

Deno.test("what changes or goes while a list is sent as a watch counts as it is in the end", async () => {
  await using server = newServer();
  const type = { apiVersion: "v1", kind: "Service" };
  const metadata = { resourceVersion: "900", annotations: { "k8s.io/initial-events-end": "true" } };
  const bytes = joined([
    frameBytes("ADDED", rawService("gone"), type),
    frameBytes("ADDED", rawService("web", { port: 81 }), type),
    frameBytes("ADDED", rawService("UNREADABLE"), type),
    frameBytes("ADDED", rawService("BAD"), type),
    frameBytes("DELETED", rawService("gone"), type),
    frameBytes("MODIFIED", rawService("web", { port: 82 }), type),
    frameBytes("DELETED", rawService("BAD"), type),
    frameBytes("BOOKMARK", { metadata: { resourceVersion: "800" } }, type),
    frameBytes("BOOKMARK", { metadata }, type),
    frameBytes("ADDED", rawService("after"), type),
  ]);
  server.plan((request) => ofServices(request) && isStream(request), {
    status: 200,
    bytes,
    type: `${PROTOBUF};stream=watch`,
  });
  server.plan((request) => ofServices(request) && request.watch, { hang: true });
  await using source = startKubeSource(server);
  const { recorder } = source;
  await recorder.untilThere("Service default/after");
  assertEquals(recorder.names("Service"), ["Service default/after", "Service default/web"]);
  assertEquals((recorder.objects.get("Service default/web") as Service).ports[0]?.port, 82);
  assertEquals(recorder.rejections.map(({ object }) => object), ["Service default/UNREADABLE"]);
});

Deno.test("a list as a watch is asked for as it is now, later never older than what is known", async () => {
  await using rig = await watchedSource({}, newServer());
  const { server, source } = rig;
  server.put(rawService("newest"));
  await source.recorder.untilThere("Service default/newest");
  const version = server.version;
  const tooLarge = { status: 504, text: "Too large resource version: 7" };
  server.plan((request) => ofServices(request) && isStream(request), tooLarge);
  expire(server);
  await until(() => streamsOf(server) === 3, "two more lists");
  const asked = server.requests.filter((request) => ofServices(request) && isStream(request)).map((
    { query },
  ) => query);
  assertEquals(asked.map((query) => query.get("resourceVersion")), ["", version, ""]);
  for (const query of asked) {
    assertEquals(
      [query.get("watch"), query.get("allowWatchBookmarks"), query.get("resourceVersionMatch")],
      ["1", "true", "NotOlderThan"],
    );
  }
});

Deno.test("an object that becomes malformed while it is listed keeps the good form of the list", {
  permissions: "none",
}, () => {
  const rejected: string[] = [];
  const store = new KubeStore(SERVICES, "server", ({ object }) => rejected.push(object));
  const listing = new Listing(store);
  const bad = (name: string) => ({ ...rawService(name), spec: { clusterIP: 7 } });
  listing.take([rawService("web"), bad("web"), rawService("db"), bad("db"), rawService("db")]);
  assertEquals(listing.finish("/services").map(({ type }) => type), ["add", "add"]);
  assertEquals(store.identities().sort(), ["default/db", "default/web"]);
  assertEquals(rejected, ["Service default/web"]);
});
