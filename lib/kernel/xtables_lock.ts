/**
 * The lock file that iptables programs of the legacy variant share with everybody who writes rules on the node.
 *
 * @module
 */

/** Where iptables has it unless it was built otherwise. */
const XTABLES_LOCK = "/run/xtables.lock";

/** What there is to see of the lock. */
export interface XtablesLock {
  readonly path: string;
  readonly exists: boolean;
  /** True if the file is on another file system than its folder, as one that a container was given from its host. */
  readonly isMounted: boolean;
  /** True if another program held it all the time; null if this process may not try. */
  readonly isHeld: boolean | null;
}

/** How often, and how far apart, the lock is tried: a sync of iptables holds it for some milliseconds. */
const TRIES = 5;
const PAUSE_MS = 100;

/** Looks at the lock. It is held for no longer than it takes to let it go, and never waited for. */
export async function readXtablesLock(path: string = XTABLES_LOCK): Promise<XtablesLock> {
  try {
    const [file, folder] = [await Deno.stat(path), await Deno.stat(path.replace(/\/[^/]*$/, "") || "/")];
    return { path, exists: true, isMounted: file.dev !== folder.dev, isHeld: await isHeld(path) };
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return { path, exists: false, isMounted: false, isHeld: false };
  }
}

async function isHeld(path: string): Promise<boolean | null> {
  try {
    using file = await Deno.open(path, { read: true });
    for (let left = TRIES; left > 0; left--) {
      // Shared: readers do not disturb one another, and a writer of rules holds it alone.
      if (await file.tryLock(false)) return false;
      if (left > 1) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) return null;
    throw error;
  }
}
