/**
 * Table-driven tests of `kproxy doctor`'s findings.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import type { Finding } from "../../lib/inspect/doctor/report.ts";

/** A case: name, findings, and the wanted texts (`level start of what`); findings are cut to the wanted length. */
export type FindingCase = readonly [name: string, found: readonly Finding[], wanted: readonly string[]];

/** Registers a test per case, by subject. Every finding that is not ok must have a fix. */
export function testFindings(tables: Readonly<Record<string, readonly FindingCase[]>>): void {
  for (const [subject, cases] of Object.entries(tables)) {
    for (const [name, found, wanted] of cases) {
      Deno.test(`${subject}: ${name}`, { permissions: "none" }, () => {
        const shown = found.map(({ level, what }) => `${level} ${what}`.slice(0, 200));
        assertEquals(shown.map((line, index) => line.slice(0, wanted[index]?.length ?? 200)), wanted);
        for (const { level, fix } of found) assertEquals(fix === "", level === "ok");
      });
    }
  }
}
