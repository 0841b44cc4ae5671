import { saysGone } from "./processes.ts";

/** True if a file or folder exists at the path. */
export async function pathExists(path: string): Promise<boolean> {
  try {
    await Deno.lstat(path);
    return true;
  } catch (error) {
    if (saysGone(error)) return false;
    throw error;
  }
}
