/**
 * Temporary files and folders that exist while some work runs.
 *
 * @module
 */

/** Runs `work` in a temporary folder. */
export async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-test-" });
  try {
    return await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs `work` with a temporary YAML file of this content. */
export async function withYamlFile<T>(text: string, work: (path: string) => Promise<T>): Promise<T> {
  const path = await Deno.makeTempFile({ prefix: "kproxy-test-", suffix: ".yaml" });
  try {
    await Deno.writeTextFile(path, text);
    return await work(path);
  } finally {
    await Deno.remove(path);
  }
}
