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
/** The kernel does not follow more either. */
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
    return await new Way(absolute).walk();
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

/** The way from the root to a file, through all links. */
class Way {
  #rest: string[];
  #at = "/";
  /** True if all users may create files in the current directory, but not replace those of others, as in `/tmp`. */
  #isShared = false;
  #device: number | undefined;
  #links = 0;

  constructor(path: string) {
    this.#rest = partsOf(path);
  }

  async walk(): Promise<string | null> {
    for (let name = this.#rest.shift(); name !== undefined; name = this.#rest.shift()) {
      if (name === "..") {
        this.#at = dirname(this.#at);
        continue;
      }
      const path = `${this.#at === "/" ? "" : this.#at}/${name}`;
      const problem = await this.#step(path, await Deno.lstat(path));
      if (problem !== null) return `${path} ${problem}`;
    }
    return null;
  }

  async #step(path: string, info: Deno.FileInfo): Promise<string | null> {
    if (info.isSymlink) {
      // A link has no rights of its own: a user who may write its directory may replace it.
      if (this.#isShared && !isTrusted(info.uid)) return `belongs to user ${info.uid}`;
      if (++this.#links > MOST_LINKS) return null;
      const target = await Deno.readLink(path);
      if (target.startsWith("/")) this.#at = "/";
      this.#rest = [...partsOf(target), ...this.#rest];
      return null;
    }
    const problem = othersMayWrite(info);
    this.#isShared = info.isDirectory && problem !== null && isTrusted(info.uid) &&
      ((info.mode ?? 0) & STICKY) !== 0;
    const isSound = problem === null || this.#isShared ||
      info.isDirectory && isTrusted(info.uid) && await this.#isVolume(path, info);
    this.#at = path;
    this.#device = info.dev;
    return isSound ? null : problem;
  }

  /**
   * True for a volume that the kubelet made: its directories have mode 0777, but a ConfigMap is mounted read-only, and an emptyDir is
   * the pod's own. Only root can have put the link into it by which the kubelet replaces all files at once.
   */
  async #isVolume(path: string, { dev }: Deno.FileInfo): Promise<boolean> {
    if (Deno.env.has("KUBERNETES_SERVICE_HOST") && dev !== this.#device) return true;
    try {
      const { isSymlink, uid } = await Deno.lstat(`${path}/..data`);
      return isSymlink && isTrusted(uid);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  }
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

/** The directory that holds what an absolute path names; `/` for itself. */
function dirname(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}
