import { assertEquals } from "@std/assert";
import { PrintedOtherwise } from "./printed_otherwise.ts";

const NONE = { permissions: "none" } as const;

/** A look at everything that finds one chain so; null: it fails. Yields what is left as damage. */
function look(known: PrintedOtherwise, text: string | null): readonly string[] {
  known.lookBegins();
  if (text === null) return [];
  const differing = new Map([["KUBE-SERVICES", text]]);
  known.sift(differing, true);
  return [...differing.values()];
}

Deno.test(
  "a chain that is printed as before right after it was written is known, as long as it is printed so",
  NONE,
  () => {
    const known = new PrintedOtherwise();
    assertEquals(look(known, "-j X"), ["-j X"]);
    known.fullySynced();
    assertEquals([look(known, "-j X"), look(known, "-j X"), look(known, "")], [[], [], [""]]);
  },
);

Deno.test("the same damage twice is damage twice, if the look after the repair failed", NONE, () => {
  const known = new PrintedOtherwise();
  assertEquals(look(known, ""), [""]);
  known.fullySynced();
  assertEquals([look(known, null), look(known, "")], [[], [""]]);
});
