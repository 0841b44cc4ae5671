/**
 * What a run of generic flips prints at its end.
 *
 * @module
 */
import type { Explanation } from "./explained.ts";
import { roomOf } from "./rooms.ts";
import type { Flip } from "./source_flips.ts";
import type { Verdict } from "./try_flips.ts";

/** How a flip ended, and by which tests: those beside its file, or those around its room. */
export interface Outcome {
  readonly flip: Flip;
  readonly stage: "beside" | "around";
  readonly verdict: Verdict;
  /** Null if nothing is known of it. */
  readonly explained: Explanation | null;
}

function percent(part: number, whole: number): string {
  return whole === 0 ? "0 %" : `${(100 * part / whole).toFixed(1)} %`;
}

function tableOf(outcomes: readonly Outcome[]): string[] {
  const rows = [["room", "flips", "noticed beside", "noticed around", "survived", "share"]];
  const add = (name: string, chosen: readonly Outcome[]): void => {
    const killed = chosen.filter(({ verdict }) => verdict.kind === "killed");
    const beside = killed.filter(({ stage }) => stage === "beside").length;
    const survived = chosen.length - killed.length;
    const counts = [chosen.length, beside, killed.length - beside, survived].map(String);
    rows.push([name, ...counts, percent(survived, chosen.length)]);
  };
  for (const room of new Set(outcomes.map(({ flip }) => roomOf(flip.file)))) {
    add(room, outcomes.filter(({ flip }) => roomOf(flip.file) === room));
  }
  add("all", outcomes);
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  return rows.map((row) =>
    row.map((cell, column) => column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))
      .join("  ")
  );
}

/** One line: where it is, and what changes. */
export function survivorLine({ flip, verdict }: Outcome): string {
  const place = flip.place === "" ? "" : ` ${flip.place}`;
  const note = verdict.kind === "unreached" ? " (no test comes by)" : "";
  return `${flip.file}:${flip.line}${place}: ${flip.change}${note}`;
}

/** Survivors by what is known of them, what ran on or crashed, and a table of the rooms. */
export function reportLines(outcomes: readonly Outcome[]): string[] {
  const survivors = outcomes.filter(({ verdict }) => verdict.kind !== "killed");
  const lines: string[] = [];
  const kinds = Map.groupBy(survivors, ({ explained }) => explained?.kind ?? "NOT EXPLAINED");
  for (const [kind, chosen] of kinds) {
    lines.push("", `${kind}: ${chosen.length}`);
    for (const outcome of chosen) {
      lines.push(survivorLine(outcome));
      if (outcome.explained !== null) lines.push(`    ${outcome.explained.why}`);
    }
  }
  const ended = new Map<string, number>();
  for (const { verdict } of outcomes) {
    const by = verdict.kind === "killed" ? verdict.by : "";
    if (/^(loading: )?(endless|waits for ever|memory|died)$/.test(by)) {
      ended.set(by, (ended.get(by) ?? 0) + 1);
    }
  }
  lines.push("", ...tableOf(outcomes));
  for (const [how, count] of ended) {
    lines.push(`noticed because the tests did not end by themselves (${how}): ${count}`);
  }
  for (const [kind, chosen] of kinds) {
    lines.push(
      `survivors, ${kind}: ${chosen.length}, ${percent(chosen.length, outcomes.length)} of all flips`,
    );
  }
  return lines;
}
