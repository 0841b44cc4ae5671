import { assertEquals } from "@std/assert";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import { PageRecord } from "./page_record.ts";

const PURE = { permissions: "none" } as const;

const partial = (...services: string[]) => ({ ...syncOutcome("IPv4"), full: false, services });

Deno.test("a client that asked before gets what has changed since", PURE, () => {
  const one = new PageRecord();
  one.observer.synced(syncOutcome("IPv4"));
  const first = one.generation;
  assertEquals(one.changedSince(first), new Set());
  one.observer.synced(partial("a/x", "a/y"));
  one.observer.synced(partial("a/y", "b/z"));
  one.observer.synced(partial());
  assertEquals(one.changedSince(first), new Set(["a/x", "a/y", "b/z"]));
  assertEquals(one.changedSince(one.generation), new Set());
  // No change was reported before.
  assertEquals(one.changedSince(one.generation + 1), null);
  assertEquals(one.changedSince(Number.NaN), null);
  one.observer.synced(syncOutcome("IPv4"));
  assertEquals(one.changedSince(first), null);
});

Deno.test(
  "a client that has not asked for long gets everything, and so does one that missed thousands",
  PURE,
  () => {
    const one = new PageRecord();
    for (let i = 0; i < 64; i++) one.observer.synced(partial(`a/${i}`));
    assertEquals(one.changedSince(0)?.size, 64);
    one.observer.synced(partial("a/x"));
    assertEquals(one.changedSince(0), null);
    assertEquals(one.changedSince(1)?.size, 64);
    one.observer.synced(partial(...Array.from({ length: 501 }, (_, i) => `b/${i}`)));
    assertEquals(one.changedSince(one.generation - 1), null);
  },
);

Deno.test("a Service that the kernel refuses, or takes again, has changed", PURE, () => {
  const one = new PageRecord();
  const quarantined = [{ service: "a/x", problem: "no" }];
  const outcome = { ...partial(), report: { ...syncOutcome("IPv4").report, quarantined } };
  one.observer.synced(outcome);
  assertEquals(one.changedSince(0), new Set(["a/x"]));
  assertEquals([...one.quarantined], [["a/x", "no"]]);
  const { generation } = one;
  one.observer.synced(outcome);
  assertEquals(one.generation, generation);
  one.observer.synced({ ...outcome, report: { ...outcome.report, quarantined: [] } });
  assertEquals(one.changedSince(generation), new Set(["a/x"]));
});
