/**
 * Processes in /proc, any of which may end between two reads.
 *
 * @module
 */

/** True if the error says that the file or process does not exist, or no longer. */
export function saysGone(error: unknown): boolean {
  if (error instanceof Deno.errors.NotFound) return true;
  // ESRCH, when a process ends while it is read from /proc; the runtime has no class and no code for it.
  return error instanceof Error && /\(os error 3\)/.test(error.message);
}

/** Text of a file in /proc; `""` if the thread or process has ended. */
export async function readUnlessGone(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (saysGone(error)) return "";
    throw error;
  }
}

/** Process ids of a process' children, zombies included. */
export async function childPids(pid: number): Promise<number[]> {
  const pids: number[] = [];
  const tasks = `/proc/${pid}/task`;
  for await (const { name } of Deno.readDir(tasks)) {
    const children = await readUnlessGone(`${tasks}/${name}/children`);
    pids.push(...children.split(" ").filter((word) => word !== "").map(Number));
  }
  return pids;
}

/** Process ids of the children whose command line, joined by blanks, contains `words`. */
export async function childrenWith(pid: number, words: string): Promise<number[]> {
  const found: number[] = [];
  for (const child of await childPids(pid)) {
    const commandLine = (await readUnlessGone(`/proc/${child}/cmdline`)).replaceAll("\0", " ");
    if (commandLine.includes(words)) found.push(child);
  }
  return found;
}
