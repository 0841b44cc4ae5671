import { assert, assertEquals } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { difference, wantedEndpoints } from "./endpoint_texts.ts";
import { measurePace, millisecondsOf } from "./pace_measure.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";

Deno.test("what is missing is told, and what is too much", { permissions: "none" }, () => {
  const size = { services: 2, endpoints: 2 };
  const wanted = wantedEndpoints(size, new Set([1]));
  assertEquals(wanted.size, 4);
  assertEquals(difference(wanted, wanted), { missing: 0, extra: 0 });
  assertEquals(difference(wanted, wantedEndpoints(size, new Set())), { missing: 1, extra: 1 });
  assertEquals([millisecondsOf("12.5ms"), millisecondsOf("1.20s")], [12.5, 1200]);
});

e2eTest("changes at a pace and in a burst all arrive", [ROOT_NAMESPACES, program("nft")], async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-test-" });
  try {
    const { lost, burst, parts, changes, syncs, idle } = await measurePace({
      size: { services: 400, endpoints: 2 },
      mode: NFTABLES_MODE,
      perSecond: 20,
      steadyMs: 2_000,
      partMs: 1_000,
      bursts: 1,
      burstSize: 10,
      burstSpacingMs: 1,
      restMs: 0,
      idleMs: 500,
      minSyncPeriodMs: 200,
      program: undefined,
      onProgress: () => {},
    }, folder);
    assertEquals(lost, { missing: 0, extra: 0 });
    assertEquals(burst?.all.count, 10);
    assertEquals(parts.reduce((sum, { change }) => sum + change.count, 0), changes);
    assert(changes > 2 && syncs > 0 && syncs <= changes, `${changes} changes in ${syncs} syncs`);
    assert(parts.every(({ anonymousMb, nowMb }) => anonymousMb > 5 && nowMb > anonymousMb));
    assert(idle !== null && idle.ownPercent >= 0);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
