/**
 * The objects of `deploy/kubernetes`.
 *
 * @module
 */
import type { V1Container, V1DaemonSet, V1PodSpec } from "@kubernetes/client-node";
import { parseAll } from "@std/yaml";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { ROOT } from "../../tools/project_files.ts";

/** kube-proxy's DaemonSet, as far as it matters who serves a node. */
export const KUBE_PROXY = `apiVersion: apps/v1
kind: DaemonSet
metadata: { name: kube-proxy, namespace: kube-system }
spec:
  selector: { matchLabels: { k8s-app: kube-proxy } }
  template:
    metadata: { labels: { k8s-app: kube-proxy } }
    spec: { nodeSelector: { kubernetes.io/os: linux }, containers: [{ name: kube-proxy, image: x }] }
`;

/** An object as the API takes it. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

/** All objects of a YAML file. */
export async function readManifests(path: string): Promise<Manifest[]> {
  return parseAll(await Deno.readTextFile(path)) as Manifest[];
}

/** The objects of `deploy/kubernetes/base`, which patches nothing. */
export async function baseManifests(): Promise<Manifest[]> {
  const files = ["rbac.yaml", "daemonset.yaml"].map((name) => `${ROOT}/deploy/kubernetes/base/${name}`);
  return (await Promise.all(files.map(readManifests))).flat();
}

/** The objects that a folder's kustomization stands for. */
export async function kustomize(folder: string): Promise<Manifest[]> {
  const text = await runOk(systemExec, ["kubectl", "kustomize", folder], { env: { HOME: folder } });
  return parseAll(text) as Manifest[];
}

/** The objects that a kustomization beside a copy of `deploy` stands for, as docs/deploy.md has it. */
export async function kustomizeText(kustomization: string): Promise<Manifest[]> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-kustomize-" });
  try {
    await runOk(systemExec, ["cp", "-r", `${ROOT}/deploy`, folder]);
    await Deno.writeTextFile(`${folder}/kustomization.yaml`, `${kustomization}\n`);
    return await kustomize(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** The Pods of the only DaemonSet. */
export function podOf(objects: readonly Manifest[]): V1PodSpec {
  const set = objects.find(({ kind }) => kind === "DaemonSet") as unknown as V1DaemonSet | undefined;
  const pod = set?.spec?.template.spec;
  if (pod === undefined || pod === null) throw new TypeError("There is no DaemonSet");
  return pod;
}

/** In the order in which they are started. */
export function containersOf(pod: V1PodSpec): V1Container[] {
  return [...pod.initContainers ?? [], ...pod.containers];
}

/** `kind name`, or `kind namespace/name`. */
export function nameOf({ kind, metadata: { namespace, name } }: Manifest): string {
  return `${kind} ${namespace === undefined ? "" : `${namespace}/`}${name}`;
}
