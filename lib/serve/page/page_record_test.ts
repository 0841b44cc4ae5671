import { assertEquals } from "@std/assert";
import { syncOutcome } from "../../../tests/support/sync_outcome.ts";
import type { QuarantinedService } from "../../backend/backend.ts";
import type { SyncOutcome } from "../../sync/family_runner.ts";
import { PageRecord } from "./page_record.ts";

const PURE = { permissions: "none" } as const;

const partial = (...services: string[]) => ({ ...syncOutcome("IPv4"), full: false, services });

Deno.test(
  "Services may look different after a sync that looked at some, or whose refusals are others",
  PURE,
  () => {
    const record = new PageRecord();
    const isNews = (outcome: SyncOutcome): boolean => {
      const { generation } = record;
      record.observer.synced(outcome);
      return record.generation !== generation;
    };
    const refusing = (quarantined: readonly QuarantinedService[]): SyncOutcome => ({
      ...partial(),
      report: { ...syncOutcome("IPv4").report, quarantined },
    });
    const one = [{ service: "a/x", problem: "no" }];
    assertEquals(isNews(syncOutcome("IPv4")), true);
    assertEquals(isNews(partial("a/x", "a/y")), true);
    assertEquals(isNews(partial()), false);
    assertEquals(isNews(refusing(one)), true);
    assertEquals([...record.quarantined], [["a/x", "no"]]);
    assertEquals(isNews(refusing(one)), false);
    assertEquals(isNews(refusing([])), true);
    assertEquals(isNews(refusing([])), false);
    assertEquals([...record.states.keys()], ["IPv4"]);
  },
);
