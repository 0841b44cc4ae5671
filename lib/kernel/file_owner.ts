/**
 * Which other users may write a file that the program relies on, or a directory that leads to it.
 *
 * Every directory from the root on is checked, and every link is followed, as ssh's StrictModes does for a home:
 * a user who may write one of them may put another file in the place of this one. They are checked from the top,
 * so that what was found good stays what it is: no other user could replace it between the check and the reading.
 *
 * @module
 */
/** Owner and mode of a file or directory. */
export type OwnedFile = Pick<Deno.FileInfo, "uid" | "gid" | "mode">;

const STICKY = 0o1000;
/** Most links in a path: the kernel does not follow more either. */
const MOST_LINKS = 40;

/**
 * Why others than root, this user and the owner of the root directory (in a namespace of users root has no number) may write it,
 * e.g. `belongs to user 1000`; null if they may not. The group of root counts as root.
 */
export function othersMayWrite({ uid, gid, mode }: OwnedFile): string | null {
  if (!isTrusted(uid)) return `belongs to user ${uid}`;
  const bits = (mode ?? 0) & 0o7777;
  const mayWrite = (bits & 0o002) !== 0 || (bits & 0o020) !== 0 && gid !== 0;
  return mayWrite ? `may be written by others (mode ${bits.toString(8).padStart(4, "0")})` : null;
}

/** True where every user of the machine may read the file: none of the directories that lead to it keeps them out. */
export async function anyoneMayRead(path: string): Promise<boolean> {
  try {
    let at = await Deno.realPath(path);
    let isOpen = ((await Deno.stat(at)).mode ?? 0) & 0o004;
    while (isOpen !== 0 && at !== "/") {
      at = dirname(at);
      isOpen = ((await Deno.stat(at)).mode ?? 0) & 0o001;
    }
    return isOpen !== 0;
  } catch (error) {
    if (isNotToBeSeen(error)) return false;
    throw error;
  }
}

let owners: ReadonlySet<number | null> | undefined;

function isTrusted(uid: number | null): boolean {
  owners ??= new Set([null, 0, Deno.uid(), Deno.lstatSync("/").uid]);
  return owners.has(uid);
}

/**
 * The first place on the way to `path` that others may write, and why: `/srv may be written by others (mode 0777)`;
 * null if there is none. Missing files, and `/dev/fd/N` that the shell hands over, have no owner here.
 */
export async function writableByOthers(path: string): Promise<string | null> {
  const absolute = path.startsWith("/") ? path : `${Deno.cwd()}/${path}`;
  if (/^\/(?:dev|proc)\//.test(absolute)) return null;
  try {
    return await walk(absolute);
  } catch (error) {
    if (isNotToBeSeen(error)) return null;
    throw error;
  }
}

/** True if the file is not there or not for us: its reader reports what is wrong with it. */
function isNotToBeSeen(error: unknown): boolean {
  const { NotFound, NotADirectory, PermissionDenied, NotCapable, FilesystemLoop } = Deno.errors;
  return [NotFound, NotADirectory, PermissionDenied, NotCapable, FilesystemLoop].some((kind) =>
    error instanceof kind
  );
}

/** Walks from the root to a file, through all links; resolves to where another user may replace it, or null. */
async function walk(path: string): Promise<string | null> {
  const rest = partsOf(path);
  let at = "/";
  /** True if all users may create files in the current directory, but not replace those of others, as in `/tmp`. */
  let isShared = false;
  let device: number | undefined;
  let links = 0;
  for (let name = rest.shift(); name !== undefined; name = rest.shift()) {
    if (name === "..") {
      at = dirname(at);
      continue;
    }
    const next = `${at === "/" ? "" : at}/${name}`;
    const info = await Deno.lstat(next);
    if (info.isSymlink) {
      // A link has no rights of its own: a user who may write its directory may replace it.
      if (isShared && !isTrusted(info.uid)) return `${next} belongs to user ${info.uid}`;
      if (++links > MOST_LINKS) continue;
      const target = await Deno.readLink(next);
      if (target.startsWith("/")) at = "/";
      rest.unshift(...partsOf(target));
      continue;
    }
    const problem = othersMayWrite(info);
    const isOurs = info.isDirectory && isTrusted(info.uid);
    isShared = problem !== null && isOurs && ((info.mode ?? 0) & STICKY) !== 0;
    const isSound = problem === null || isShared || isOurs && await isVolume(next, info.dev !== device);
    if (!isSound) return `${next} ${problem}`;
    [at, device] = [next, info.dev];
  }
  return null;
}

/**
 * True for a volume that the kubelet made: its directories have mode 0777, but a ConfigMap is mounted read-only, and an emptyDir is
 * the pod's own. Only root can have put the link into it by which the kubelet replaces all files at once.
 */
async function isVolume(path: string, isMounted: boolean): Promise<boolean> {
  if (isMounted && Deno.env.has("KUBERNETES_SERVICE_HOST")) return true;
  try {
    const { isSymlink, uid } = await Deno.lstat(`${path}/..data`);
    return isSymlink && isTrusted(uid);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

/** The directory that holds what an absolute path names; `/` for itself. */
function dirname(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}
