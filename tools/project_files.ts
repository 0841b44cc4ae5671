import { fileURLToPath } from "node:url";

/** The project's folder, without a slash at the end. */
export const ROOT: string = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "");

const SKIPPED = new Set([".git", ".cache", "dist", "node_modules"]);

/** Paths of all project files, relative to its folder, sorted; without Git's own files and build output. */
export async function projectFiles(root: string = ROOT): Promise<string[]> {
  const paths: string[] = [];
  const visit = async (folder: string): Promise<void> => {
    for await (const entry of Deno.readDir(`${root}/${folder}`)) {
      if (SKIPPED.has(entry.name)) continue;
      const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory) await visit(path);
      else if (entry.isFile) paths.push(path);
    }
  };
  await visit("");
  return paths.sort();
}
