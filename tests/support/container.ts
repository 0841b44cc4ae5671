/**
 * A Pod's container on the host's network, built from namespaces and capabilities: command, mounts and rights of its
 * manifest, and the files that `deploy/Dockerfile` copies; the image's programs are those of this machine.
 * There is no seccomp filter and no PID namespace.
 *
 * @module
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { ROOT } from "../../tools/project_files.ts";
import { copiesIn, readInstructions } from "../deploy/dockerfile.ts";
import { pathExists } from "./path_exists.ts";
import { isPrivileged, mountsOf, type PodHost, startOf } from "./pod_host.ts";

/** Folders with the image's programs, taken from this machine. */
const SYSTEM_FOLDERS = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** Folder of the bundle in an image build, below the project's `dist`. */
const BUNDLE = "dist/kproxy-js";

/** Command that becomes the container's process, for a mount namespace such as `ip netns exec` makes. */
export async function containerCommand(
  pod: V1PodSpec,
  container: V1Container,
  host: PodHost,
): Promise<string[]> {
  const root = `${host.folder}/root`;
  await Deno.mkdir(root, { recursive: true });
  const script = [
    `mount -t tmpfs -o mode=0755 kproxy-root ${root}`,
    ...await systemMounts(root),
    ...await imageMounts(root, host),
    ...await volumeMounts(root, pod, container, host),
    ...isPrivileged(container) ? [] : [`mount -o bind,ro ${root}/proc/sys ${root}/proc/sys`],
    ...container.securityContext?.readOnlyRootFilesystem === true ? [`mount -o remount,ro ${root}`] : [],
    `exec chroot ${root} "$@"`,
  ];
  return ["sh", "-ec", script.join("\n"), "sh", ...processOf(container, host)];
}

/** Command inside, with its variables and its user. */
function processOf(container: V1Container, host: PodHost): string[] {
  const { env, command } = startOf(container, host);
  const all = [["PATH", PATH], ...env];
  return ["env", "-i", ...all.map(([name, value]) => `${name}=${value}`), ...rightsOf(container), ...command];
}

function rightsOf(container: V1Container): string[] {
  const { runAsUser, allowPrivilegeEscalation, capabilities } = container.securityContext ?? {};
  if (runAsUser !== 0) throw new TypeError(`${container.name}: only root is made here`);
  if (isPrivileged(container)) return [];
  if (capabilities?.drop?.join() !== "ALL") throw new TypeError(`${container.name}: it keeps capabilities`);
  const added = (capabilities.add ?? []).map((name) => `,+${name.toLowerCase()}`).join("");
  const noNewPrivileges = allowPrivilegeEscalation === false ? ["--no-new-privs"] : [];
  return ["setpriv", ...noNewPrivileges, `--bounding-set=-all${added}`, "--inh-caps=-all"];
}

async function systemMounts(root: string): Promise<string[]> {
  const there: string[] = [];
  for (const folder of SYSTEM_FOLDERS) if (await pathExists(folder)) there.push(folder);
  return [
    `cd ${root}`,
    "mkdir -p dev proc sys tmp run var/lib opt",
    "ln -s /run var/run",
    ...["/dev", "/proc", "/sys"].map((folder) => `mount --rbind ${folder} ${root}${folder}`),
    ...there.flatMap((
      folder,
    ) => [`mkdir -p ${root}${folder}`, `mount -o bind,ro ${folder} ${root}${folder}`]),
  ];
}

/** Mounts for the files that the image copies; the bundle is the host's. */
async function imageMounts(root: string, { bundle }: PodHost): Promise<string[]> {
  const copied = copiesIn(await readInstructions()).flatMap(({ sources, target }) =>
    sources.map((source): [from: string, to: string] => {
      const from = source === BUNDLE ? bundle : `${ROOT}/${source}`;
      // Of several sources each keeps its name below the target.
      return [from, sources.length === 1 ? target : `${target}/${source.split("/").at(-1)}`];
    })
  );
  const all = [[Deno.execPath(), "/usr/local/bin/deno"], ...copied] as const;
  const binds = await Promise.all(all.map(async ([from, to]) => bind(root, from, to, !(await isFile(from)))));
  return [`mount -t tmpfs kproxy-bin ${root}/usr/local/bin`, ...binds.flat()];
}

async function volumeMounts(
  root: string,
  pod: V1PodSpec,
  container: V1Container,
  host: PodHost,
): Promise<string[]> {
  const mounts = await mountsOf(pod, container, host);
  return mounts.flatMap(({ from, to, isFolder, readOnly }) => bind(root, from, to, isFolder, readOnly));
}

function bind(root: string, from: string, to: string, isFolder: boolean, readOnly = true): string[] {
  const place = `${root}${to}`;
  const make = isFolder
    ? `[ -d '${place}' ] || mkdir -p '${place}'`
    : `[ -e '${place}' ] || { mkdir -p '${place.replace(/\/[^/]*$/, "")}' && touch '${place}'; }`;
  return [make, `mount -o bind${readOnly ? ",ro" : ""} '${from}' '${place}'`];
}

async function isFile(path: string): Promise<boolean> {
  return (await Deno.stat(path)).isFile;
}
