/**
 * Prometheus' own engine, through the unit tests of `promtool`.
 *
 * @module
 */
import { stringify } from "@std/yaml";
import { pathExists } from "../support/path_exists.ts";
import { withYamlFile } from "../support/temp_files.ts";
import type { Series } from "./alert_cases.ts";

/** Series, and what they must come to. */
export interface PromtoolTest {
  /** Between two values of a series, as `15s`. */
  readonly interval: string;
  readonly series: Series;
  readonly questions: readonly Question[];
}

/** An expression, and the only value that it must have at a time, as `20m`. */
export interface Question {
  readonly expr: string;
  readonly at: string;
  readonly value: number;
}

/** Rules that are evaluated beside the tests. */
export interface EvaluatedRules {
  readonly files: readonly string[];
  /** As `1m`. */
  readonly every: string;
}

/** What promtool says about the tests; empty if all is as expected. */
export async function failuresIn(
  tests: readonly PromtoolTest[],
  rules: EvaluatedRules = { files: [], every: "1m" },
): Promise<string> {
  return await withYamlFile(
    stringify({
      rule_files: [...rules.files],
      evaluation_interval: rules.every,
      tests: tests.map(({ interval, series, questions }) => ({
        interval,
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        promql_expr_test: questions.map(({ expr, at, value }) => ({
          expr,
          eval_time: at,
          exp_samples: [{ value }],
        })),
      })),
    }),
    async (path) => {
      const { code, out } = await promtool("test", "rules", path);
      return code === 0 ? "" : out;
    },
  );
}

/** Runs promtool; resolves to its status and all that it says. */
export async function promtool(...args: readonly string[]): Promise<{ code: number; out: string }> {
  // It writes a database for each test, which a disk under load makes long.
  const memory = await pathExists("/dev/shm") ? { TMPDIR: "/dev/shm" } : {};
  const { code, stdout, stderr } = await new Deno.Command("promtool", { args: [...args], env: memory })
    .output();
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout) + decoder.decode(stderr) };
}
