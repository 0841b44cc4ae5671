/**
 * A container of a Pod on the host's network, as far as namespaces and capabilities make one: the command, the mounts and the rights
 * that its manifest names, and the files that `deploy/Dockerfile` copies; for the programs of the image stand those of this machine.
 * There is no filter of system calls and no namespace of processes.
 *
 * @module
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import { ROOT } from "../../tools/project_files.ts";
import { copiesIn, readInstructions } from "../deploy/dockerfile.ts";
import { pathExists } from "./path_exists.ts";
import { isPrivileged, mountsOf, type PodHost, startOf } from "./pod_host.ts";

/** The programs of an image, which are all of the machine's. */
const SYSTEM_FOLDERS = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** In an image; the build makes it in the project's `dist`. */
const BUNDLE = "dist/kproxy-js";

/** The command that becomes the container's process, for a namespace with mounts of its own, as `ip netns exec` makes one. */
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

/** What is run inside, with its variables and as whom. */
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

/** What the image copies: the bundle is the host's. */
async function imageMounts(root: string, { bundle }: PodHost): Promise<string[]> {
  const copied = copiesIn(await readInstructions()).flatMap(({ sources, target }) =>
    sources.map((source): [from: string, to: string] => {
      const from = source === BUNDLE ? bundle : `${ROOT}/${source}`;
      // Of several each keeps its name below the target.
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
