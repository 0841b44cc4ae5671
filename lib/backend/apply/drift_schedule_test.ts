import { assertEquals } from "@std/assert";
import { DriftSchedule } from "./drift_schedule.ts";

const NONE = { permissions: "none" } as const;

/** A check of everything that finds one chain printed so; null: it fails. Returns the remaining damage. */
function look(known: DriftSchedule, text: string | null): readonly string[] {
  known.begin(0);
  if (text === null) return [];
  const differing = new Map([["KUBE-SERVICES", text]]);
  known.sift(differing, true);
  return [...differing.values()];
}

/** A check of everything that finds nothing. */
function sound(schedule: DriftSchedule): readonly string[] {
  schedule.begin(0);
  return schedule.sift(new Map(), true);
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

Deno.test("the same foreign rule every night is damage every night", NONE, () => {
  const schedule = new DriftSchedule();
  for (let night = 0; night < 3; night++) {
    assertEquals(look(schedule, "-j FOREIGN"), ["-j FOREIGN"]);
    schedule.fullySynced();
    assertEquals(sound(schedule), []);
  }
  // A change overtook the check that found it, so nothing was repaired.
  assertEquals([look(schedule, "-j FOREIGN"), look(schedule, "-j FOREIGN")], [["-j FOREIGN"], [
    "-j FOREIGN",
  ]]);
});

Deno.test("a chain that was printed as it was written is not known any more", NONE, () => {
  const schedule = new DriftSchedule();
  look(schedule, "-j X");
  schedule.fullySynced();
  assertEquals([look(schedule, "-j X"), sound(schedule), look(schedule, "-j X")], [[], [], ["-j X"]]);
});

Deno.test("the same damage twice is damage twice, if the check after the repair failed", NONE, () => {
  const known = new DriftSchedule();
  assertEquals(look(known, ""), [""]);
  known.fullySynced();
  assertEquals([look(known, null), look(known, "")], [[], [""]]);
});

Deno.test("a chain that is flushed time after time is damage each time", NONE, () => {
  const schedule = new DriftSchedule();
  for (let times = 0; times < 4; times++) {
    assertEquals(look(schedule, ""), [""]);
    schedule.fullySynced();
  }
});
