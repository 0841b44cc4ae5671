/**
 * What the kustomizations of `deploy/kubernetes` come to. Only what they use is known, and everything else refused; a test holds
 * it equal to what `kubectl kustomize` prints.
 *
 * @module
 */
import type { V1Container, V1DaemonSet, V1PodSpec } from "@kubernetes/client-node";
import { parse, parseAll } from "@std/yaml";

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

interface Kustomization {
  readonly apiVersion: string;
  readonly kind: "Kustomization" | "Component";
  readonly resources?: readonly string[];
  readonly components?: readonly string[];
  readonly configMapGenerator?: readonly {
    readonly name: string;
    readonly namespace: string;
    readonly files: readonly string[];
    readonly options: { readonly disableNameSuffixHash: true };
  }[];
  readonly patches?: readonly {
    readonly target: { readonly kind: string; readonly name: string };
    /** JSON patch, as YAML. */
    readonly patch: string;
  }[];
}

interface Operation {
  readonly op: "replace" | "remove";
  readonly path: string;
  readonly value?: unknown;
}

const KNOWN_FIELDS = [
  "apiVersion",
  "kind",
  "resources",
  "components",
  "configMapGenerator",
  "patches",
];

/** All objects of a YAML file. */
export async function readManifests(path: string): Promise<Manifest[]> {
  return parseAll(await Deno.readTextFile(path)) as Manifest[];
}

/**
 * The objects that a folder's kustomization stands for.
 *
 * @throws {SyntaxError} if it uses something unknown, or patches what is not there
 */
export async function resolveKustomization(
  folder: string,
  before: readonly Manifest[] = [],
): Promise<Manifest[]> {
  const kustomization = parse(await Deno.readTextFile(`${folder}/kustomization.yaml`)) as Kustomization;
  const unknown = Object.keys(kustomization).filter((field) => !KNOWN_FIELDS.includes(field));
  if (unknown.length > 0) throw new SyntaxError(`${folder}: unknown: ${unknown.join(", ")}`);
  let objects = [...before];
  for (const resource of kustomization.resources ?? []) {
    const path = `${folder}/${resource}`;
    const { isDirectory } = await Deno.stat(path);
    objects.push(...isDirectory ? await resolveKustomization(path) : await readManifests(path));
  }
  for (const component of kustomization.components ?? []) {
    objects = await resolveKustomization(`${folder}/${component}`, objects);
  }
  for (const { name, namespace, files } of kustomization.configMapGenerator ?? []) {
    const data: Record<string, string> = {};
    for (const file of files) data[file] = await Deno.readTextFile(`${folder}/${file}`);
    const made = { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace }, data };
    objects.push(made);
  }
  for (const { target, patch } of kustomization.patches ?? []) {
    const isTarget = ({ kind, metadata }: Manifest): boolean =>
      kind === target.kind && metadata.name === target.name;
    if (!objects.some(isTarget)) throw new SyntaxError(`${folder}: no ${target.kind} ${target.name}`);
    const operations = parse(patch) as Operation[];
    objects = objects.map((object) => isTarget(object) ? patched(object, operations) : object);
  }
  return objects;
}

function patched(object: Manifest, operations: readonly Operation[]): Manifest {
  const copy = structuredClone(object);
  for (const { op, path, value } of operations) {
    const keys = path.slice(1).split("/").map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = keys.pop() ?? "";
    const parent = keys.reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], copy);
    const holder = parent as Record<string, unknown> | undefined;
    if (holder?.[last] === undefined) throw new SyntaxError(`${op} ${path}: there is no such field`);
    if (op === "remove") delete holder[last];
    else if (op === "replace") holder[last] = value;
    else throw new SyntaxError(`${op}: unknown`);
  }
  return copy;
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
