import { assert, assertEquals } from "@std/assert";
import { frameBytes, joined } from "../support/kube_protobuf.ts";
import { KAPI } from "../support/kapi.ts";
import { rawService } from "../support/raw_objects.ts";
import { e2eTest } from "../support/skip.ts";
import { HerdCounts } from "./herd_counts.ts";
import { withoutObjects } from "./herd_frames.ts";
import { type IncidentFigures, measureHerd } from "./herd_measure.ts";

Deno.test("a client counts as in step while all of its kinds are, and requests by their second", {
  permissions: "none",
}, async () => {
  const counts = new HerdCounts(2, 2);
  counts.begin();
  for (const code of ["200", "200", "<error>"]) counts.answered(code);
  counts.received(2_000_000);
  for (const client of [0, 0, 1]) counts.follows(client, true);
  assertEquals(counts.areAllInStep, false);
  counts.follows(1, true);
  await counts.untilAllInStep(1_000);
  const { peakPerSecond, codes, megabytes, series, recovered } = counts.figures(performance.now());
  assertEquals([peakPerSecond, megabytes, series], [2, 2, [2]]);
  assertEquals(codes, { 200: 2, "<error>": 1 });
  assertEquals(recovered.all, 0);
  counts.follows(0, false);
  assertEquals(counts.areAllInStep, false);
  counts.begin();
  assertEquals(counts.figures(performance.now()).series, []);
});

Deno.test("of a watch only added objects are dropped, however it is cut into pieces", {
  permissions: "none",
}, async () => {
  const type = { apiVersion: "v1", kind: "Service" };
  const mark = {
    metadata: { resourceVersion: "7", annotations: { "k8s.io/initial-events-end": "true" } },
  };
  const kept = [
    frameBytes("BOOKMARK", { ...type, ...mark }, type),
    frameBytes("DELETED", rawService("gone"), type),
  ];
  const bytes = joined([frameBytes("ADDED", rawService("web"), type), ...kept]);
  for (const size of [1, 7, bytes.length]) {
    let [received, ends] = [0, 0];
    const pieces = Array.from(
      { length: Math.ceil(bytes.length / size) },
      (_, at) => bytes.slice(at * size, (at + 1) * size),
    );
    const filter = withoutObjects({ onBytes: (count) => received += count, onListEnd: () => ends++ });
    const passed = ReadableStream.from(pieces).pipeThrough(filter);
    assertEquals(await new Response(passed as ReadableStream<Uint8Array<ArrayBuffer>>).bytes(), joined(kept));
    assertEquals([received, ends], [bytes.length, 1]);
  }
});

e2eTest("herds of both sorts come into step with kapi", KAPI, async () => {
  const [clients, services] = [4, 20];
  const figures = await Promise.all((["kproxy", "client-go"] as const).map(async (kind) => {
    const found: IncidentFigures[] = [];
    await measureHerd({
      clients,
      services,
      endpoints: 2,
      kind,
      incidents: ["start"],
      downMs: 0,
      onProgress: () => {},
      onIncident: (incident) => found.push(incident),
    });
    return found;
  }));
  for (const [start] of figures) {
    assert(start !== undefined);
    // One request for each of three kinds: a list that goes on as the watch.
    assertEquals(start.codes, { 200: 3 * clients });
    assert(start.megabytes > 0 && start.serverCpuSeconds > 0 && start.recovered.all > 0);
  }
});
