/**
 * The chart of `deploy/helm`, as Helm's own libraries read it (`tests/lab/kapi/chart`).
 *
 * @module
 */
import { parseAll } from "@std/yaml";
import { systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Manifest } from "../deploy/kustomization.ts";
import { buildChart } from "./kapi.ts";

export const CHART = `${ROOT}/deploy/helm/kproxy`;

/** Values of a chart, as a file of values has them. */
export type Values = Readonly<Record<string, unknown>>;

/** What Helm says; on standard error why it refuses. */
export interface HelmAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What `helm template`, `helm lint` or, for `notes`, `helm install` says of the chart. Builds the program if need be. */
export async function askChart(
  question: "template" | "lint" | "notes",
  values: Values,
  namespace = "kube-system",
): Promise<HelmAnswer> {
  const chart = await buildChart();
  return await withValues(values, async (file) => {
    const flags = [`-values=${file}`, `-namespace=${namespace}`];
    return await systemExec.run([chart, question, ...flags, CHART]);
  });
}

/** Runs `work` with a file of these values. */
export async function withValues<T>(values: Values, work: (file: string) => Promise<T>): Promise<T> {
  const file = await Deno.makeTempFile({ prefix: "kproxy-values-", suffix: ".yaml" });
  try {
    await Deno.writeTextFile(file, JSON.stringify(values));
    return await work(file);
  } finally {
    await Deno.remove(file);
  }
}

/**
 * The objects of the chart.
 *
 * @throws {Error} with what Helm says, if it refuses the values
 */
export async function chartObjects(values: Values, namespace?: string): Promise<Manifest[]> {
  const { code, stdout, stderr } = await askChart("template", values, namespace);
  if (code !== 0) throw new Error(stderr);
  return objectsOf(stdout);
}

/** The objects of a text; between two separators there may be none. */
export function objectsOf(text: string): Manifest[] {
  return (parseAll(text) as (Manifest | null)[]).filter((object) => object !== null);
}
