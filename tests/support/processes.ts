/**
 * Processes as /proc shows them, any of which may end between two looks.
 *
 * @module
 */

/** True if the failure says that there is no such file or process, or no longer. */
export function saysGone(error: unknown): boolean {
  if (error instanceof Deno.errors.NotFound) return true;
  // ESRCH, which /proc says of a process that ends while it is read; the runtime has no class and no code for it.
  return error instanceof Error && /\(os error 3\)/.test(error.message);
}

/** Of a file in /proc; `""` if the thread or process has ended meanwhile. */
export async function readUnlessGone(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (saysGone(error)) return "";
    throw error;
  }
}

/** The process ids of all that it has started and not waited for, those that have just ended among them. */
export async function childPids(pid: number): Promise<number[]> {
  const pids: number[] = [];
  const tasks = `/proc/${pid}/task`;
  for await (const { name } of Deno.readDir(tasks)) {
    const children = await readUnlessGone(`${tasks}/${name}/children`);
    pids.push(...children.split(" ").filter((word) => word !== "").map(Number));
  }
  return pids;
}

/** The process ids of those children whose command line, with blanks between its words, holds `words`. */
export async function childrenWith(pid: number, words: string): Promise<number[]> {
  const found: number[] = [];
  for (const child of await childPids(pid)) {
    const commandLine = (await readUnlessGone(`/proc/${child}/cmdline`)).replaceAll("\0", " ");
    if (commandLine.includes(words)) found.push(child);
  }
  return found;
}
