/**
 * What one object costs that was written to cost much, as `docs/benchmarks.md` shows it.
 *
 * @module
 */
import type { HostileRecord } from "./records.ts";
import { AGE_LINE } from "./tables.ts";

/** All rows, with what they were measured by. */
export function hostileTable(
  { record, code }: { readonly record: HostileRecord | undefined; readonly code: string },
): string {
  if (record === undefined) return "Not measured yet.";
  const { date, commit, machine, load, n, command } = record;
  const head =
    "| mode | object | `/livez`, ms | of that computing | resident, MB | edit beside it, ms | edit later, ms |";
  return [
    head,
    "| --- | --- | --: | --: | --: | --: | --: |",
    ...record.rows.map(({ mode, object, worst: { livezMs, computingMs, residentMb, firstEditMs, editMs } }) =>
      `| ${[mode, object, livezMs, computingMs, residentMb, firstEditMs, editMs].join(" | ")} |`
    ),
    "",
    `Measured on ${date} by \`${command}\`, kproxy from source at commit ${
      commit.slice(0, 9)
    }; ${machine}, load`,
    `${
      load.map((value) => value.toFixed(1)).join(" before and ")
    } after. Of each figure the worst of ${n} rounds.`,
    "",
    `${AGE_LINE}${record.code === code ? "the code has not changed." : "the code has changed."}`,
  ].join("\n");
}
