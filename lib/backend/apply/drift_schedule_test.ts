import { assertEquals } from "@std/assert";
import { DriftSchedule } from "./drift_schedule.ts";

const NONE = { permissions: "none" } as const;

/** A check of everything that finds one chain so; null: it fails. Yields what is left as damage. */
function look(known: DriftSchedule, text: string | null): readonly string[] {
  known.begin(0);
  if (text === null) return [];
  const differing = new Map([["KUBE-SERVICES", text]]);
  known.sift(differing, true);
  return [...differing.values()];
}

Deno.test(
  "a chain that is printed as before right after it was written is known, as long as it is printed so",
  NONE,
  () => {
    const known = new DriftSchedule();
    assertEquals(look(known, "-j X"), ["-j X"]);
    known.fullySynced();
    assertEquals([look(known, "-j X"), look(known, "-j X"), look(known, "")], [[], [], [""]]);
  },
);

Deno.test("the same damage twice is damage twice, if the check after the repair failed", NONE, () => {
  const known = new DriftSchedule();
  assertEquals(look(known, ""), [""]);
  known.fullySynced();
  assertEquals([look(known, null), look(known, "")], [[], [""]]);
});
