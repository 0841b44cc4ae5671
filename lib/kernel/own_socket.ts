/**
 * A Unix socket in a directory that no other user can write. The runtime does not say who is at the other end of a socket
 * (SO_PEERCRED), so the place of the socket decides: a client believes what is there only if no other user could have put it there.
 *
 * @module
 */

/** The place of the socket cannot be trusted; the message says why. */
export class UnsafePathError extends Error {
  override readonly name = "UnsafePathError";
}

/** A socket that no other user than its owner can have put there. */
export interface OwnSocket {
  /** Path without links on the way to its directory. */
  readonly path: string;
  /** False: its owner is neither root nor the user of this process, so that it must not name what this process reads or starts. */
  readonly isTrusted: boolean;
}

/** A socket that listens. */
export interface OpenedSocket {
  readonly listener: Deno.UnixListener;
  /** False: something else has taken its place. */
  readonly isInPlace: () => boolean;
}

const ROOT = 0;
const ACCESS_OF_OTHERS = 0o077;
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;

/**
 * Finds the socket, and checks who could have made it.
 *
 * @throws {UnsafePathError} if another user could have
 * @throws {Deno.errors.NotFound} if there is none
 * @throws {Deno.errors.PermissionDenied} if this user may not look
 */
export function findOwnSocket(path: string): OwnSocket {
  const { directory, socket } = placeOf(path);
  const place = Deno.lstatSync(directory);
  checkIsDirectory(directory, place);
  if (modeOf(place) & OTHERS_WRITE) throw new UnsafePathError(`others may write in ${directory}`);
  const isTrusted = place.uid === ROOT || place.uid === Deno.uid();
  checkAncestors(directory, isTrusted);
  const found = Deno.lstatSync(socket);
  if (!found.isSocket) throw new UnsafePathError(`${socket} is no socket`);
  if (found.uid !== place.uid) {
    throw new UnsafePathError(
      `${socket} belongs to user ${found.uid}, and its directory to user ${place.uid}`,
    );
  }
  if (modeOf(found) & OTHERS_WRITE) throw new UnsafePathError(`others may use ${socket}`);
  return { path: socket, isTrusted };
}

/**
 * Listens. The directory is made if it is not there; a socket that is there gives way at once, so that a client finds the one or the other.
 *
 * @throws {UnsafePathError} if another user could write there
 * @throws {Error} if the kernel refuses
 */
export function openOwnSocket(path: string): OpenedSocket {
  const { directory, socket } = placeOf(path);
  prepareDirectory(directory);
  if (statIfThere(socket)?.isSocket === false) throw new UnsafePathError(`${socket} is no socket`);
  const fresh = `${socket}.${Deno.pid}`;
  // Left by a process of the same PID that died before it renamed the socket.
  if (statIfThere(fresh) !== null) Deno.removeSync(fresh);
  const listener = Deno.listen({ transport: "unix", path: fresh });
  try {
    Deno.chmodSync(fresh, 0o600);
    const { ino } = Deno.lstatSync(fresh);
    Deno.renameSync(fresh, socket);
    return { listener, isInPlace: () => statIfThere(socket)?.ino === ino };
  } catch (error) {
    listener.close();
    throw error;
  }
}

function placeOf(path: string): { readonly directory: string; readonly socket: string } {
  const given = parentOf(path);
  // Links on the way are followed once, and the real way is checked and used. The directory itself must be none.
  const above = Deno.realPathSync(parentOf(given));
  const directory = (above === "/" ? "" : above) + given.slice(given.lastIndexOf("/"));
  return { directory, socket: directory + path.slice(path.lastIndexOf("/")) };
}

/** Without `node:path`, whose loading would delay the first rule. */
function parentOf(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf("/")));
}

function prepareDirectory(directory: string): void {
  if (statIfThere(directory) === null) Deno.mkdirSync(directory, { mode: 0o700 });
  checkAncestors(directory, true);
  const before = Deno.lstatSync(directory);
  checkIsDirectory(directory, before);
  if (before.uid !== Deno.uid()) throw new UnsafePathError(`${directory} belongs to user ${before.uid}`);
  if ((modeOf(before) & ACCESS_OF_OTHERS) === 0) return;
  // A volume of a Pod comes open to all, and empty; any other directory is as its owner wants it.
  const isFresh = (modeOf(before) & STICKY) === 0 && [...Deno.readDirSync(directory)].length === 0;
  if (!isFresh) {
    throw new UnsafePathError(
      `${directory} is open to others (mode ${(modeOf(before) & 0o7777).toString(8)})`,
    );
  }
  Deno.chmodSync(directory, 0o700);
}

/** @param mayBeSticky true: a directory like `/tmp` will do where what is below it belongs to root or to this user */
function checkAncestors(directory: string, mayBeSticky: boolean): void {
  for (let at = directory; at !== "/";) {
    at = parentOf(at);
    const info = Deno.lstatSync(at);
    if (info.uid !== ROOT && info.uid !== Deno.uid()) {
      throw new UnsafePathError(`${at}, above ${directory}, belongs to user ${info.uid}`);
    }
    const isSafe = (modeOf(info) & OTHERS_WRITE) === 0 || (mayBeSticky && (modeOf(info) & STICKY) !== 0);
    if (!isSafe) throw new UnsafePathError(`others may write in ${at}, above ${directory}`);
  }
}

function checkIsDirectory(path: string, { isSymlink, isDirectory }: Deno.FileInfo): void {
  if (!isDirectory) throw new UnsafePathError(`${path} is ${isSymlink ? "a link" : "no directory"}`);
}

/** Mode bits. Not known on other systems than Linux, where nothing of this is used: open to all. */
function modeOf({ mode }: Deno.FileInfo): number {
  return mode ?? 0o777;
}

function statIfThere(path: string): Deno.FileInfo | null {
  try {
    return Deno.lstatSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
}
