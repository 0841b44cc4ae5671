/** True if there is something at the path. */
export async function pathExists(path: string): Promise<boolean> {
  try {
    await Deno.lstat(path);
    return true;
  } catch (error) {
    // The second is what /proc says of a process that ends meanwhile.
    if (error instanceof Deno.errors.NotFound || /os error 3\b/.test(String(error))) return false;
    throw error;
  }
}
