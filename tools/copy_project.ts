import { ROOT } from "./project_files.ts";

/** Copies files and folders of the project into a new temporary folder, which the caller removes. */
export async function copyProject(paths: readonly string[]): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "kproxy_mutate_" });
  const args = ["-r", "--parents", ...paths, folder];
  const { success, stderr } = await new Deno.Command("cp", { args, cwd: ROOT }).output();
  if (success) return folder;
  await Deno.remove(folder, { recursive: true });
  throw new Error(`The project cannot be copied: ${new TextDecoder().decode(stderr)}`);
}
