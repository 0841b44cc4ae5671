/**
 * Temporary files and folders that exist while some work runs.
 *
 * @module
 */

/** A folder that goes at the end of its block. */
export async function tempFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await Deno.makeTempDir({ prefix: "kproxy-test-" });
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}

/** Does the work in a folder of its own. */
export async function withFolder<T>(work: (folder: string) => T | Promise<T>): Promise<T> {
  await using folder = await tempFolder();
  return await work(folder.path);
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
