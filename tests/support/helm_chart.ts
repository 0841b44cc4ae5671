/**
 * The chart of `deploy/helm`, as Helm reads it, which is built with the API server (`KAPI_BUILD`).
 *
 * @module
 */
import { parseAll } from "@std/yaml";
import { systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";
import type { Manifest } from "../deploy/kustomization.ts";
import { buildHelm } from "./kapi.ts";

export const CHART = `${ROOT}/deploy/helm/kproxy`;

/** Values of a chart, as a file of values has them. */
export type Values = Readonly<Record<string, unknown>>;

/** What Helm says; on standard error why it refuses. */
export interface HelmAnswer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs Helm, built if need be, with a home of its own and without a cluster. */
export async function askHelm(words: readonly string[]): Promise<HelmAnswer> {
  const helm = await buildHelm();
  const home = await Deno.makeTempDir({ prefix: "kproxy-helm-" });
  try {
    return await systemExec.run([helm, ...words], { env: { HOME: home, KUBECONFIG: `${home}/none` } });
  } finally {
    await Deno.remove(home, { recursive: true });
  }
}

/** What `helm template` or `helm lint` says of the chart with these values. */
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
