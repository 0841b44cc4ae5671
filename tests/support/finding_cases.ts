/**
 * Tables of findings of `kproxy doctor`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { Finding } from "../../lib/inspect/doctor/report.ts";

/** A name, what was checked, and the findings (`level start of what`), each cut to the length of what is wanted. */
export type FindingCase = readonly [name: string, found: readonly Finding[], wanted: readonly string[]];

/** A test for each case, by subject. Whatever is not well has a way to mend it. */
export function testFindings(tables: Readonly<Record<string, readonly FindingCase[]>>): void {
  for (const [subject, cases] of Object.entries(tables)) {
    for (const [name, found, wanted] of cases) {
      Deno.test(`${subject}: ${name}`, { permissions: "none" }, () => {
        const shown = found.map(({ level, what }) => `${level} ${what}`.slice(0, 200));
        assertEquals(shown.map((line, index) => line.slice(0, wanted[index]?.length ?? 200)), wanted);
        for (const { level, mend } of found) assertEquals(mend === "", level === "ok");
      });
    }
  }
}
