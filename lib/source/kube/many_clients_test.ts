/** How kproxy keeps many nodes from asking a server at one moment. */
import { assertEquals } from "@std/assert";
import {
  listsOf,
  putWeb,
  startKubeSource,
  watchedSource,
  watching,
} from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { ManualClock } from "../../../tests/support/manual_clock.ts";
import { rawNode, rawService } from "../../../tests/support/raw_objects.ts";
import { until } from "../../../tests/support/until.ts";
import { REFLECTOR_TIMES } from "./reflector.ts";

/** A source that watches a server, on a clock that the test holds, with this chance. */
async function watched(random: number) {
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  return { ...await watchedSource({ times: REFLECTOR_TIMES, clock, random: () => random }), clock };
}

Deno.test("watches that a server ends before their time are opened again within 0.8 s, each node at its own moment", async () => {
  for (const [random, afterMs] of [[0, 0], [0.5, 400], [0.99, 792]] as const) {
    await using rig = await watched(random);
    const { server, clock, source } = rig;
    await clock.pass(20_000);
    server.endWatches("cleanly");
    if (afterMs > 0) {
      await clock.pass(afterMs - 1);
      assertEquals(server.watches(), 0, `${afterMs} ms`);
    }
    await clock.pass(1);
    await watching(server);
    assertEquals(source.lines.filter((line) => /^[EW]/.test(line)), []);
    server.put(rawService("late"));
    await source.recorder.untilThere("Service default/late");
    assertEquals(listsOf(server, "services"), 1);
  }
});

Deno.test("a watch that ends when its time is over is opened again at once", async () => {
  await using rig = await watched(0.99);
  const { server, clock } = rig;
  const { watchMs, silenceMs } = REFLECTOR_TIMES;
  // Not silent, so that none is opened again before.
  for (let passedMs = 0; passedMs <= watchMs; passedMs += silenceMs / 2) {
    server.bookmark();
    await clock.pass(silenceMs / 2);
  }
  server.endWatches("cleanly");
  await watching(server);
});

Deno.test("a server that has sent a list as a watch before is not taken for one that cannot, because it has much to do", async () => {
  await using server = new ListWatchServer();
  Object.assign(server, { hasProtobuf: true, streamsLists: true });
  putWeb(server);
  const clock = new ManualClock({ requestMs: REFLECTOR_TIMES.answerMs });
  await using source = startKubeSource(server, { times: REFLECTOR_TIMES, clock, random: () => 0 });
  await source.recorder.untilSynced();
  await watching(server);
  // From now on lists take very long.
  server.endsLists = false;
  server.put(rawNode("other"));
  server.compact();
  const before = server.requests.length;
  server.endWatches("broken");
  const asked = (): number => server.requests.length - before;
  await clock.passUntil(() => asked() >= 6, "watches of versions that are gone, and lists", 60_000);
  await clock.pass(4 * REFLECTOR_TIMES.streamMs);
  assertEquals(listsOf(server, "services"), 0, "no list in pages");
  assertEquals(source.recorder.names().includes("Service default/web"), true);
});

Deno.test("a server that refuses watches for its own reasons, however often, is not asked for lists afterwards", async () => {
  for (const status of [401, 429, 503]) {
    await using rig = await watchedSource();
    const { server, source } = rig;
    let refused = 0;
    for (let time = 0; time < 6; time++) {
      server.plan(({ path, watch }) => {
        const isSo = watch && path.endsWith("/services");
        if (isSo) refused++;
        return isSo;
      }, { status });
    }
    server.endWatches("broken");
    await until(() => refused === 6, `${refused} times ${status}`);
    server.put(rawService("late"));
    await source.recorder.untilThere("Service default/late");
    assertEquals(listsOf(server, "services"), 1, `${status}`);
  }
});
