import { ROOT } from "./project_files.ts";

async function copyPath(from: string, to: string): Promise<void> {
  const stat = await Deno.stat(from);
  if (stat.isFile) return await Deno.copyFile(from, to);
  await Deno.mkdir(to, { recursive: true });
  for await (const entry of Deno.readDir(from)) {
    await copyPath(`${from}/${entry.name}`, `${to}/${entry.name}`);
  }
}

/** Copies files and folders of the project into a new temporary folder, which the caller removes. */
export async function copyProject(paths: readonly string[]): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy_mutate_" });
  try {
    for (const path of paths) {
      const parent = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
      await Deno.mkdir(`${folder}/${parent}`, { recursive: true });
      await copyPath(`${ROOT}/${path}`, `${folder}/${path}`);
    }
  } catch (error) {
    await Deno.remove(folder, { recursive: true });
    throw error;
  }
  return folder;
}
