import { assert, assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { recordingLog } from "../../../tests/support/recording_log.ts";
import { systemClock } from "../../kernel/clock.ts";
import { type ProxyEvent, serviceHealthFailedEvent, startingEvent } from "../../observe/events.ts";
import { type EventBody, eventBody, type EventClient, KubeEvents, microTime } from "./event_recorder.ts";
import type { HttpAnswer } from "./response.ts";
import type { WriteRequest } from "./kube_client.ts";

/** Outcome of one request: an answer with this status, no answer ever, or no connection. */
type Fault = number | "hang" | "unreachable";

/** The Events of a server in memory. */
class FakeEvents implements EventClient {
  readonly server = "https://api";
  readonly requests: WriteRequest[] = [];
  readonly objects = new Map<string, Record<string, unknown>>();
  readonly faults: Fault[] = [];
  /** Status that every request is answered with; 0: as it should be. */
  always = 0;

  async send(request: WriteRequest, signal: AbortSignal): Promise<HttpAnswer> {
    this.requests.push(request);
    const fault = this.faults.shift() ?? this.always;
    if (fault === "unreachable") throw new TypeError("connection refused");
    if (fault === "hang") {
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    }
    const status = fault === 0 ? this.#apply(request) : Number(fault);
    const text = JSON.stringify({ kind: "Status", message: `status ${status}` });
    return {
      status,
      retryAfterSeconds: null,
      contentType: "",
      body: ReadableStream.from([new TextEncoder().encode(text)]),
    };
  }

  #apply({ method, path, body }: WriteRequest): number {
    const content = JSON.parse(body) as Partial<EventBody>;
    const key = method === "POST" ? `${path}/${content.metadata?.name}` : path;
    const known = this.objects.get(key);
    if (method === "POST" && known !== undefined) return 409;
    if (method === "PATCH" && known === undefined) return 404;
    this.objects.set(key, { ...known, ...content });
    return method === "POST" ? 201 : 200;
  }
}

class Setup implements AsyncDisposable {
  readonly time = new FakeTime(1735787045678);
  readonly api = new FakeEvents();
  readonly lines: readonly string[];
  readonly events: KubeEvents;
  readonly #stop = new AbortController();
  #ended: Promise<void> | undefined;

  constructor(verbosity = 1) {
    const { log, lines } = recordingLog(verbosity);
    this.lines = lines;
    this.events = new KubeEvents({
      client: this.api,
      hostname: "host-7",
      log,
      clock: { ...systemClock, nowMs: () => Date.now() },
      nowMs: () => Date.now(),
      random: () => 0,
    });
  }

  run(): void {
    this.#ended = this.events.run(this.#stop.signal);
  }

  async record(event: ProxyEvent = startingEvent("node-a")): Promise<void> {
    this.events.record(event);
    await this.time.tickAsync(1);
  }

  /** In small steps, so that what a timer sets off is done before the next one is due. */
  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 1000) {
      await this.time.tickAsync(Math.min(left, 1000));
      for (let i = 0; i < 50; i++) await Promise.resolve();
    }
  }

  /** `METHOD last part of path`, with the count of a series. */
  get story(): string[] {
    return this.api.requests.map(({ method, path, body }) => {
      const { series } = JSON.parse(body) as Partial<EventBody>;
      return [method, path.split("/").slice(5).join("/").replace(/\.[0-9a-f]+$/, ".X"), series?.count]
        .filter((part) => part !== undefined).join(" ");
    });
  }

  /** Ends the work and resolves when it has ended, which may take a second. */
  async end(): Promise<void> {
    this.#stop.abort();
    await this.pass(1_000);
    await this.#ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
    this.time[Symbol.dispose]();
  }
}

function conflict(port: number): ProxyEvent {
  return serviceHealthFailedEvent("node-a", { service: "shop/web", port, message: "in use" });
}

Deno.test("Events are created in the background, those from before the start too", async () => {
  await using setup = new Setup();
  await setup.record();
  assertEquals(setup.story, []);
  setup.run();
  await setup.record(conflict(32000));
  assertEquals(setup.story, ["POST default/events", "POST shop/events"]);
  const [first, second] = [...setup.api.objects.values()];
  assertEquals([first?.["reason"], second?.["reason"]], ["Starting", "FailedToStartServiceHealthcheck"]);
  assertEquals(setup.api.requests.map(({ contentType }) => contentType), [
    "application/json",
    "application/json",
  ]);
  assertEquals(setup.lines, []);
});

Deno.test("the same Event again is a series, written at once and then every half hour", async () => {
  await using setup = new Setup();
  setup.run();
  await setup.record();
  for (let minutes = 0; minutes < 65; minutes += 5) {
    await setup.time.tickAsync(300_000);
    await setup.record();
  }
  assertEquals(setup.story, [
    "POST default/events",
    "PATCH default/events/node-a.X 2",
    "PATCH default/events/node-a.X 8",
    "PATCH default/events/node-a.X 14",
  ]);
  assertEquals(setup.api.requests[1]?.contentType, "application/merge-patch+json");
  const [object] = setup.api.objects.values();
  assertEquals(
    (object?.["series"] as { lastObservedTime: string }).lastObservedTime,
    "2025-01-02T04:09:05.691000Z",
  );

  await setup.time.tickAsync(360_000);
  await setup.record();
  assertEquals(setup.story.at(-1), "POST default/events", "after a pause it is a new Event");
});

Deno.test("Events that differ in object or note are their own; a repeat before the first is written counts", async () => {
  await using setup = new Setup();
  await setup.record(conflict(32000));
  await setup.record(conflict(32001));
  await setup.record(conflict(32000));
  setup.run();
  await setup.pass(1);
  assertEquals(setup.story, ["POST shop/events 2", "POST shop/events"]);
});

Deno.test("a series whose Event has expired on the server begins anew", async () => {
  await using setup = new Setup();
  setup.run();
  await setup.record();
  setup.api.objects.clear();
  await setup.record();
  assertEquals(setup.story, [
    "POST default/events",
    "PATCH default/events/node-a.X 2",
    "POST default/events 2",
  ]);
  assertEquals(setup.api.objects.size, 1);
});

Deno.test("what may pass is tried again every ten seconds, twelve times", async () => {
  await using setup = new Setup();
  setup.run();
  setup.api.faults.push("unreachable", 503, 429, "hang");
  await setup.record();
  assertEquals(setup.api.requests.length, 1);
  await setup.pass(30_000);
  assertEquals(setup.api.requests.length, 4);
  await setup.pass(20_000);
  assertEquals(setup.api.objects.size, 1, "a server that never answers is given ten seconds");
  assertEquals(setup.lines, []);

  setup.api.always = 500;
  await setup.record(conflict(32000));
  await setup.pass(200_000);
  assertEquals(setup.api.requests.length, 5 + 12);
  assert(setup.lines[0]?.startsWith('I "Event could not be written"'), setup.lines[0]);
  setup.api.always = 0;
  await setup.record(conflict(32001));
  assertEquals(setup.api.objects.size, 2, "the next one has its own tries");
});

Deno.test("an answer that was lost does not make a second Event", async () => {
  await using setup = new Setup();
  setup.run();
  setup.api.faults.push(409);
  await setup.record();
  await setup.pass(60_000);
  assertEquals(setup.story, ["POST default/events"]);
});

Deno.test("a server that refuses is reported once and left alone for ten minutes", async () => {
  for (const status of [403, 404, 401]) {
    await using setup = new Setup();
    setup.run();
    setup.api.always = status;
    await setup.record();
    await setup.record(conflict(32000));
    assertEquals(setup.api.requests.length, 1);
    assertEquals(setup.lines, [
      'W "The API server does not take Events, the proxy goes on without" server="https://api" ' +
      `problem="POST /apis/events.k8s.io/v1/namespaces/default/events: status ${status}: status ${status}"`,
    ]);
    await setup.time.tickAsync(600_000);
    await setup.record(conflict(32001));
    assertEquals(setup.api.requests.length, 2);
    assertEquals(setup.lines.length, 1);

    setup.api.always = 0;
    await setup.time.tickAsync(600_000);
    await setup.record(conflict(32002));
    assertEquals(setup.api.objects.size, 1);
    assertEquals(setup.lines[1], 'I "The API server takes Events again" server="https://api"');
  }
});

Deno.test("an Event that the server finds wrong does not keep others back", async () => {
  await using setup = new Setup();
  setup.run();
  setup.api.faults.push(422);
  await setup.record();
  await setup.record(conflict(32000));
  assertEquals(setup.story, ["POST default/events", "POST shop/events"]);
  assertEquals(setup.api.objects.size, 1);
  assertEquals(setup.lines.length, 2);
});

Deno.test("a flood is slowed down and what is too much is dropped, oldest first", async () => {
  await using setup = new Setup();
  for (let port = 1; port <= 300; port++) setup.events.record(conflict(port));
  setup.run();
  await setup.pass(1);
  assertEquals(setup.api.requests.length, 25);
  assert(setup.api.requests[0]?.body.includes("port 201:"), setup.api.requests[0]?.body);
  await setup.pass(50_000);
  assertEquals(setup.api.requests.length, 35);
});

Deno.test("two Events of one object in the same moment are two", async () => {
  await using setup = new Setup();
  setup.events.record(conflict(32000));
  setup.events.record(conflict(32001));
  setup.run();
  await setup.pass(1);
  assertEquals(setup.api.objects.size, 2);
});

Deno.test("the end waits a second, no longer, for a server that does not answer", async () => {
  await using setup = new Setup();
  setup.run();
  setup.api.faults.push("hang", "hang");
  await setup.record();
  await setup.end();
  assertEquals(setup.api.requests.length, 2);
  assertEquals([setup.api.objects.size, setup.lines], [0, []]);
});

Deno.test("what was recorded just before the end, or waits for another try, is still written", async () => {
  await using setup = new Setup();
  setup.run();
  setup.api.faults.push("unreachable");
  await setup.record();
  setup.events.record(conflict(32000));
  setup.events.record(startingEvent("node-b"));
  await setup.end();
  const posts = ["default", "default", "shop", "default"].map((namespace) => `POST ${namespace}/events`);
  assertEquals(setup.story, posts);
  assertEquals(setup.api.objects.size, 3);
});

Deno.test("every Event can be seen in the log", async () => {
  await using setup = new Setup(2);
  await setup.record();
  assertEquals(setup.lines, ['I "Event" type="Normal" reason="Starting" regarding="Node node-a"']);
});

/** 2025-01-02T03:04:05.678901Z */
const NOW_MS = 1735787045678.901;

Deno.test("the birth Event is kube-proxy's", { permissions: "none" }, () => {
  assertEquals(eventBody(startingEvent("node-a"), "host-7", NOW_MS), {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name: `node-a.${(1735787045678901000n).toString(16)}`, namespace: "default" },
    eventTime: "2025-01-02T03:04:05.678901Z",
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-host-7",
    action: "StartKubeProxy",
    reason: "Starting",
    regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
    type: "Normal",
  });
});

Deno.test("an Event of a Service lives in its namespace", { permissions: "none" }, () => {
  const event = serviceHealthFailedEvent("node-a", { service: "shop/web", port: 32000, message: "in use" });
  const { metadata, regarding, note } = eventBody(event, "host-7", NOW_MS);
  assertEquals(metadata.namespace, "shop");
  assertEquals(regarding, { apiVersion: "v1", kind: "Service", namespace: "shop", name: "web" });
  assertEquals(note, event.note);
});

Deno.test("what the API limits is cut to fit, between characters", { permissions: "none" }, () => {
  const name = `${"a".repeat(250)}.b`;
  const long = { ...startingEvent(name), note: "é".repeat(600) };
  const { metadata, note = "", reportingInstance } = eventBody(long, "h".repeat(200), NOW_MS);
  assertEquals(metadata.name.length, 253);
  assert(/^a+\.[0-9a-f]{16}$/.test(metadata.name), metadata.name);
  assertEquals(note, "é".repeat(510) + "...");
  assertEquals(reportingInstance?.length, 128);
  assertEquals(eventBody({ ...long, note: "x".repeat(1024) }, "h", NOW_MS).note?.length, 1024);
});

Deno.test("times have six digits of a second", { permissions: "none" }, () => {
  assertEquals(microTime(NOW_MS), "2025-01-02T03:04:05.678901Z");
  assertEquals(microTime(0), "1970-01-01T00:00:00.000000Z");
  assertEquals(microTime(999.9996), "1970-01-01T00:00:01.000000Z");
});
