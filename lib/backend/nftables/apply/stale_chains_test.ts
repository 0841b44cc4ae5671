/** Stale chains are deleted a second later. */
import { assert, assertEquals } from "@std/assert";
import {
  A,
  B,
  endState,
  freshState,
  nftablesRig as rig,
  STICKY,
  TABLE,
} from "../../../../tests/support/nftables_rig.ts";
import { parseTable } from "../../../netfilter/nft_listing.ts";

const NONE = { permissions: "none" } as const;

Deno.test(
  "stale chains are deleted a second later, alone, and a failure of that harms nothing",
  NONE,
  async () => {
    const { fake, sync, clock } = rig();
    await sync([...A, ...STICKY]);
    const count = () =>
      [...parseTable(fake.listed(TABLE)).chains.keys()].filter((name) => name.includes("/")).length;
    assertEquals(count(), 3);
    await sync(A, ["s3"]);
    assertEquals(count(), 3, "flushed, not deleted");
    fake.runs.length = 0;
    clock.nowMs = 999;
    await sync(A, ["s1"]);
    assertEquals(fake.runs, []);
    clock.nowMs = 1_000;
    // The kernel does not let one of them go.
    fake.refuse = (line) =>
      line.startsWith("delete chain ip kproxy service-") ? "Device or resource busy" : undefined;
    const report = await sync([...B, ...A], ["s2"]);
    assertEquals([report.failedDeletions, report.quarantined], [1, []]);
    assertEquals(count(), 1);
    assert(
      fake.transactions.every(({ stdin }) => !stdin.includes("delete chain") || !stdin.includes("element")),
    );
    fake.refuse = () => undefined;
    clock.nowMs = 2_000;
    assertEquals((await sync([...B, ...A], ["s2"])).failedDeletions, undefined);
    assertEquals(count(), 0);
    // One that comes back is not deleted.
    await sync([...A, ...B, ...STICKY], ["s3"]);
    await sync([...A, ...B], ["s3"]);
    await sync([...A, ...B, ...STICKY], ["s3"]);
    clock.nowMs = 9_000;
    await sync([...A, ...B, ...STICKY], ["s1"]);
    assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
  },
);

Deno.test("stale chains go with the next check, if no sync comes; none under a sync", NONE, async () => {
  const { fake, sync, clock, proxier } = rig();
  await sync([...A, ...STICKY]);
  await sync(A, ["s3"]);
  const chains = () => [...parseTable(fake.listed(TABLE)).chains.keys()].filter((name) => name.includes("/"));
  assertEquals([await proxier.findDamage(), chains().length], [false, 3]);
  clock.nowMs = 1_000;
  fake.refuse = (line) =>
    line.startsWith("delete chain ip kproxy service-") ? "Device or resource busy" : undefined;
  assertEquals([await proxier.findDamage(), chains().length], [false, 1]);
  fake.refuse = () => undefined;
  assertEquals((await sync([...A, ...B], ["s2"])).failedDeletions, 1);
  clock.nowMs = 2_000;
  // A sync that fills the chain again comes in the middle of the deletion.
  const checking = proxier.findDamage();
  await sync([...A, ...B, ...STICKY], ["s3"]);
  assertEquals(await checking, false);
  assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
  assertEquals(await proxier.findDamage(), false);
  assertEquals(endState(fake), await freshState([...A, ...B, ...STICKY]));
});
