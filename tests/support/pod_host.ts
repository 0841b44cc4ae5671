/**
 * Parts of a Pod's container that come from its node and kubelet, for any engine: command, variables, mounts.
 *
 * @module
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { pathExists } from "./path_exists.ts";

/** Files that a node and its kubelet provide for a Pod. */
export interface PodHost {
  /**
   * Holds the containers' roots while they run, `lock`, the folders `config` and `secrets` as kubelet makes them, and
   * `empty-NAME` for each emptyDir volume.
   */
  readonly folder: string;
  /** Folder that `deno task bundle` builds. */
  readonly bundle: string;
  readonly nodeName: string;
}

/** A file or folder of the node, and its place in the container. */
export interface PodMount {
  readonly from: string;
  readonly to: string;
  readonly isFolder: boolean;
  readonly readOnly: boolean;
}

const SECRETS = "/run/secrets/kubernetes.io/serviceaccount";

/** True for a privileged container. */
export function isPrivileged({ securityContext }: V1Container): boolean {
  return securityContext?.privileged === true;
}

/**
 * The container's command line and variables, with those that kubelet gives every Pod.
 *
 * @throws {TypeError} if a variable has an unsupported source
 */
export function startOf(
  { env = [], command = [], args = [] }: V1Container,
  { nodeName }: PodHost,
): { readonly env: readonly (readonly [name: string, value: string])[]; readonly command: string[] } {
  const own = env.map(({ name, value, valueFrom }) => {
    if (valueFrom === undefined) return [name, value ?? ""] as const;
    if (valueFrom.fieldRef?.fieldPath === "spec.nodeName") return [name, nodeName] as const;
    throw new TypeError(`${name} is of a source that is not known here`);
  });
  const expand = (text: string): string =>
    own.reduce((rest, [name, value]) => rest.replaceAll(`$(${name})`, value), text);
  return {
    // Every Pod gets the address of the API server's Service, which does not work before kproxy runs.
    env: [["KUBERNETES_SERVICE_HOST", "10.96.255.1"], ["KUBERNETES_SERVICE_PORT", "443"], ...own],
    command: [...command, ...args].map(expand),
  };
}

/** The container's volumes, and the account's token. @throws {TypeError} if a volume is missing in the Pod, or unsupported */
export async function mountsOf(
  pod: V1PodSpec,
  { volumeMounts = [] }: V1Container,
  { folder }: PodHost,
): Promise<PodMount[]> {
  const mounts: PodMount[] = [];
  for (const { name, mountPath: to, readOnly = false } of volumeMounts) {
    const volume = pod.volumes?.find((one) => one.name === name);
    if (volume === undefined) throw new TypeError(`There is no volume ${name}`);
    const { hostPath, emptyDir, projected } = volume;
    if (emptyDir !== undefined) {
      const from = `${folder}/empty-${name}`;
      await Deno.mkdir(from, { recursive: true });
      // Mode as kubelet sets it, whatever the umask; for a tmpfs as the kernel sets it.
      await Deno.chmod(from, emptyDir.medium === "Memory" ? 0o1777 : 0o777);
      mounts.push({ from, to, isFolder: true, readOnly });
    } else if (projected !== undefined) {
      mounts.push({ from: `${folder}/config`, to, isFolder: true, readOnly: true });
    } else if (hostPath === undefined) {
      throw new TypeError(`The volume ${name} is of a sort that is not known here`);
    } else if (hostPath.type === "FileOrCreate") {
      // The lock of the Pod's node, not of the machine.
      mounts.push({ from: `${folder}/lock`, to, isFolder: false, readOnly });
    } else if (await pathExists(hostPath.path)) {
      // Kernel modules: a machine with all of them built in has no such folder.
      mounts.push({ from: hostPath.path, to, isFolder: true, readOnly });
    }
  }
  return [...mounts, { from: `${folder}/secrets`, to: SECRETS, isFolder: true, readOnly: true }];
}
