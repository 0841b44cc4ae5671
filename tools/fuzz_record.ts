/**
 * Records of `deno task fuzz --keep` in `docs/records/fuzz.json`, and their table in `docs/reliability.md`.
 *
 * @module
 */
import record from "../docs/records/fuzz.json" with { type: "json" };
import { replaceRow } from "./figures/records.ts";
import { markdownTable } from "./markdown_table.ts";
import { ROOT } from "./project_files.ts";
import { buildCommit } from "./release/commit.ts";

const FILE = "docs/records/fuzz.json";

/** The latest run of one target. */
export interface FuzzRun {
  readonly target: string;
  readonly minutes: number;
  readonly seed: number;
  readonly inputs: number;
  /** Executed blocks of code, as V8 counts them. */
  readonly blocks: number;
  /** Violations, in words. */
  readonly finds: readonly string[];
  /** Date, `YYYY-MM-DD`. */
  readonly date: string;
  /** Commit of kproxy, with `+` if files differed from it; empty: unknown. */
  readonly commit: string;
  /** Load of the machine when the run ended. */
  readonly load: number;
}

/** Stores a run in place of the target's former one. */
export async function keepFuzzRun(run: Omit<FuzzRun, "date" | "commit" | "load">): Promise<void> {
  const made: FuzzRun = {
    ...run,
    date: new Date().toISOString().slice(0, 10),
    commit: (await buildCommit(ROOT, ["lib"])).replace("-dirty", "+"),
    load: Math.round(Deno.loadavg()[0]!),
  };
  await replaceRow(`${ROOT}/${FILE}`, made, ({ target }) => target === run.target);
}

/** Table with a row per target. */
export function fuzzTable(runs: readonly FuzzRun[] = record): string {
  const rows = runs.toSorted((a, b) => a.target < b.target ? -1 : 1).map((run) => {
    const when = [run.date, run.commit.slice(0, 8), `load ${run.load}`].filter((part) => part !== "");
    const counts = [run.inputs, run.blocks].map((count) => count.toLocaleString("en"));
    return [run.target, `${run.minutes}`, ...counts, run.finds.join("; ") || "none", when.join(", ")];
  });
  const head = ["target", "minutes", "inputs", "blocks run", "finds", "when"];
  return markdownTable(head, rows, (column) => column > 0 && column < 4);
}
