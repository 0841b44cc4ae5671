/**
 * From which commit a build is made.
 *
 * @module
 */
import { builtFrom } from "../../lib/node/version.ts";
import { ROOT } from "../project_files.ts";

/**
 * The commit that is checked out, with `-dirty` if files were changed beside it; without `git`, what the sources know.
 *
 * @param paths Git's pathspecs of the files that count, if not all do
 */
export async function buildCommit(root: string = ROOT, paths: readonly string[] = []): Promise<string> {
  const [commit, changed] = await Promise.all([
    git(root, "rev-parse", "--verify", "HEAD"),
    git(root, "status", "--porcelain", "--", ...paths),
  ]);
  if (commit === undefined || changed === undefined) return await builtFrom(new URL(`file://${root}/`));
  return changed === "" ? commit : `${commit}-dirty`;
}

/** What `git` printed; undefined if it is not there or failed, as outside of a repository. */
export async function git(root: string, ...args: readonly string[]): Promise<string | undefined> {
  try {
    const { success, stdout } = await new Deno.Command("git", {
      args: ["-C", root, ...args],
      stdin: "null",
      stderr: "null",
    }).output();
    return success ? new TextDecoder().decode(stdout).trim() : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
