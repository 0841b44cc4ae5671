/**
 * A container of a Pod that podman runs from an image, in a namespace of the lab: the command, the mounts and the rights of its
 * manifest, podman's own filter of system calls, namespaces of processes and mounts.
 *
 * @module
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { runOk, systemExec } from "../../lib/kernel/exec.ts";
import { findProgram } from "../../tools/setup.ts";
import type { Netns } from "./netns.ts";
import { isPrivileged, mountsOf, type PodHost, startOf } from "./pod_host.ts";

const TIMEOUT_MS = 120_000;
/** Podman as root lowers its own limit of processes to this one, and nothing below it may have more. */
const PODMAN_PROCESSES = 32_768;

/** Which container, for podman. */
export interface PodmanContainer {
  readonly pod: V1PodSpec;
  readonly container: V1Container;
  readonly host: PodHost;
  readonly netns: Netns;
  readonly image: string;
  /** Podman's, by which it is asked and ended. */
  readonly name: string;
}

/** The command that runs it to its end; signals and status are passed on. */
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

/** The runtime below containerd, where it is there: crun refuses machines that have cgroups of both versions. */
function runtime(): string[] {
  return findProgram("runc") === undefined ? [] : ["--runtime=runc"];
}

/**
 * The limits that are in force here: to raise them may need more than this machine's root has, and podman would, also when told to
 * take the host's.
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
  // Where the manifest names no filter, kubelet has none; podman's default is its own.
  if (!isPrivileged(container) && seccompProfile?.type !== "RuntimeDefault") {
    throw new TypeError(`${container.name}: it has no filter of system calls`);
  }
  return [
    ...runAsUser === undefined ? [] : [`--user=${runAsUser}`],
    ...isPrivileged(container) ? ["--privileged"] : [],
    // Kubelet gives no folder to write to, podman would.
    ...readOnlyRootFilesystem === true ? ["--read-only", "--read-only-tmpfs=false"] : [],
    ...allowPrivilegeEscalation === false ? ["--security-opt=no-new-privileges"] : [],
    ...(capabilities?.drop ?? []).map((name) => `--cap-drop=${name}`),
    ...(capabilities?.add ?? []).map((name) => `--cap-add=${name}`),
  ];
}

/** What a command in the running container prints, as `kubectl exec` shows it. */
export async function podmanExec(name: string, command: readonly string[]): Promise<string> {
  return await runOk(systemExec, ["podman", "exec", name, ...command], { timeoutMs: TIMEOUT_MS });
}

/** Ends what is left of it. */
export async function podmanRemove(name: string): Promise<void> {
  await runOk(systemExec, ["podman", "rm", "--force", "--ignore", "--time=0", name], {
    timeoutMs: TIMEOUT_MS,
  });
}
