/**
 * How many CPUs the machine has, without opening `/proc` or `/sys`.
 *
 * @module
 */

/**
 * The CPUs of the machine. Where the runtime may not tell (`--allow-sys=cpus`), those this process may use: fewer if it is pinned
 * or has a CPU limit, which says nothing about how many connections the node must track.
 */
export async function cpuCount(): Promise<number> {
  const allowed = Deno.permissions.querySync({ name: "sys", kind: "cpus" }).state === "granted";
  return Math.max(allowed ? await countMachine() : 0, navigator.hardwareConcurrency, 1);
}

async function countMachine(): Promise<number> {
  // Takes milliseconds to load, in which a start can wait for programs.
  const { cpus } = await import("node:os");
  return cpus().length;
}
