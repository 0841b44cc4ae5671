/**
 * The chart of `deploy/helm`, as rendered by Helm, which is built with the API server (`KAPI_BUILD`).
 *
 * @module
 */
import { parseAll } from "@std/yaml";
import { systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Manifest } from "../deploy/kustomization.ts";
import { buildHelm } from "./kapi.ts";

export const CHART = `${ROOT}/deploy/helm/kproxy`;

/** Values of a chart, as in a values file. */
export type Values = Readonly<Record<string, unknown>>;

/** Output of Helm; errors are on standard error. */
export interface HelmAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs Helm, built if needed, with a home folder of its own and without a cluster. */
export async function askHelm(words: readonly string[]): Promise<HelmAnswer> {
  const helm = await buildHelm();
  const home = await Deno.makeTempDir({ prefix: "kproxy-helm-" });
  try {
    return await systemExec.run([helm, ...words], { env: { HOME: home, KUBECONFIG: `${home}/none` } });
  } finally {
    await Deno.remove(home, { recursive: true });
  }
}

/** Output of `helm template` or `helm lint` for the chart with these values. */
export async function askChart(
  question: "template" | "lint",
  values: Values,
  namespace = "kube-system",
): Promise<HelmAnswer> {
  const words = question === "lint" ? ["lint", "--strict"] : ["template", "kproxy"];
  return await withValues(
    values,
    (file) => askHelm([...words, CHART, `--namespace=${namespace}`, `--values=${file}`]),
  );
}

/** Runs `work` with a values file. */
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
 * Objects of the chart.
 *
 * @throws {Error} with Helm's output, if it refuses the values
 */
export async function chartObjects(values: Values, namespace?: string): Promise<Manifest[]> {
  const { code, stdout, stderr } = await askChart("template", values, namespace);
  if (code !== 0) throw new Error(stderr);
  return objectsOf(stdout);
}

/** Objects of a multi-document text; documents may be empty. */
export function objectsOf(text: string): Manifest[] {
  return (parseAll(text) as (Manifest | null)[]).filter((object) => object !== null);
}
