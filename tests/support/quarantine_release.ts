/**
 * How a Service leaves quarantine once the tools accept its rules, in every mode with quarantine.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { ApplyReport } from "../../lib/backend/backend.ts";
import { RETRY_MS } from "../../lib/backend/quarantine.ts";
import type { ApiObject } from "../../lib/model/objects.ts";

type Sync = (objects: readonly ApiObject[], changed?: readonly string[]) => Promise<ApplyReport>;

/** Events that release a Service. */
export const RELEASES = ["its change", "a later sync", "a full sync", "its end", "a new process"] as const;

/** Service `s1` is in quarantine since time 0, and would be accepted from now on. */
export interface Quarantined {
  readonly sync: Sync;
  readonly clock: { nowMs: number };
  /** Sync of another process on the same kernel. */
  readonly nextSync: Sync;
  readonly service: readonly ApiObject[];
  /** Other objects, among them Service `s2`. */
  readonly others: readonly ApiObject[];
}

/** Releases the Service. @returns the objects afterwards */
export async function releaseBy(
  release: typeof RELEASES[number],
  { sync, clock, nextSync, service, others }: Quarantined,
): Promise<readonly ApiObject[]> {
  const wanted = release === "its end" ? others : [...service, ...others];
  const left = async (report: Promise<ApplyReport>): Promise<number | undefined> =>
    (await report).quarantined?.length;
  clock.nowMs = RETRY_MS - 1_000;
  switch (release) {
    case "its change":
    case "its end":
      assertEquals(await left(sync(wanted, ["s1"])), 0);
      break;
    case "a later sync":
      assertEquals(await left(sync(wanted, ["s2"])), 1);
      clock.nowMs = RETRY_MS;
      assertEquals(await left(sync(wanted, ["s2"])), 0);
      break;
    case "a full sync":
      assertEquals(await left(sync(wanted)), 0);
      break;
    case "a new process":
      assertEquals(await left(nextSync(wanted)), 0);
  }
  return wanted;
}
