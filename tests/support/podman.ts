/**
 * A Pod's container that podman runs from an image, in a namespace of the lab: command, mounts and rights of its
 * manifest, podman's own seccomp filter, PID and mount namespaces.
 *
 * @module
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { findProgram } from "../../tools/setup.ts";
import type { Netns } from "./netns.ts";
import { isPrivileged, mountsOf, type PodHost, startOf } from "./pod_host.ts";

const TIMEOUT_MS = 120_000;
/** Limit of processes to which podman as root lowers its own, and which nothing below it may exceed. */
const PODMAN_PROCESSES = 32_768;

/** A container for podman. */
export interface PodmanContainer {
  readonly pod: V1PodSpec;
  readonly container: V1Container;
  readonly host: PodHost;
  readonly netns: Netns;
  readonly image: string;
  /** Name in podman, to query and remove it. */
  readonly name: string;
}

/** Command that runs the container to its end; signals and status are passed on. */
export async function podmanRun(wanted: PodmanContainer): Promise<string[]> {
  const { pod, container, host, netns, image, name } = wanted;
  const { env, command: [entrypoint = "", ...args] } = startOf(container, host);
  const mounts = await mountsOf(pod, container, host);
  return [
    ...["podman", ...runtime()],
    ...["run", "--rm", "--pull=never", `--name=${name}`, `--network=ns:/run/netns/${netns.name}`],
    ...await limits(),
    ...rightsOf(container),
    ...env.map(([variable, value]) => `--env=${variable}=${value}`),
    ...mounts.map(({ from, to, readOnly }) => `--volume=${from}:${to}${readOnly ? ":ro" : ""}`),
    ...[`--entrypoint=${entrypoint}`, image, ...args],
  ];
}

/** runc, as used by containerd, if it is installed: crun refuses machines with cgroups of both versions. */
function runtime(): string[] {
  return findProgram("runc") === undefined ? [] : ["--runtime=runc"];
}

/**
 * Limits as they are here: raising them may exceed the rights of this machine's root, and podman would, also when told to
 * use the host's.
 */
async function limits(): Promise<string[]> {
  const text = await Deno.readTextFile("/proc/self/limits");
  const hard = (name: string): number => {
    const [, limit = ""] = new RegExp(`^${name} +\\S+ +(\\S+)`, "m").exec(text) ?? [];
    return limit === "unlimited" ? Infinity : Number(limit);
  };
  const flag = (name: string, limit: number): string[] =>
    Number.isFinite(limit) ? [`--ulimit=${name}=${limit}:${limit}`] : [];
  return [
    ...flag("nofile", hard("Max open files")),
    ...flag("nproc", Math.min(hard("Max processes"), PODMAN_PROCESSES)),
  ];
}

function rightsOf(container: V1Container): string[] {
  const { runAsUser, allowPrivilegeEscalation, capabilities, readOnlyRootFilesystem, seccompProfile } =
    container.securityContext ?? {};
  // If the manifest names no seccomp filter, kubelet uses none; podman would use its own.
  if (!isPrivileged(container) && seccompProfile?.type !== "RuntimeDefault") {
    throw new TypeError(`${container.name}: it has no filter of system calls`);
  }
  return [
    ...runAsUser === undefined ? [] : [`--user=${runAsUser}`],
    ...isPrivileged(container) ? ["--privileged"] : [],
    // kubelet provides no writable folder, podman would.
    ...readOnlyRootFilesystem === true ? ["--read-only", "--read-only-tmpfs=false"] : [],
    ...allowPrivilegeEscalation === false ? ["--security-opt=no-new-privileges"] : [],
    ...(capabilities?.drop ?? []).map((name) => `--cap-drop=${name}`),
    ...(capabilities?.add ?? []).map((name) => `--cap-add=${name}`),
  ];
}

/** Output of a command in the running container, as of `kubectl exec`. */
export async function podmanExec(name: string, command: readonly string[]): Promise<string> {
  return await runOk(systemExec, ["podman", "exec", name, ...command], { timeoutMs: TIMEOUT_MS });
}

/** Removes the container, if it is left. */
export async function podmanRemove(name: string): Promise<void> {
  await runOk(systemExec, ["podman", "rm", "--force", "--ignore", "--time=0", name], {
    timeoutMs: TIMEOUT_MS,
  });
}
