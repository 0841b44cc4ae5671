/**
 * How many CPUs the machine has, without opening `/proc` or `/sys`.
 *
 * @module
 */
import { cpus } from "node:os";

/**
 * The CPUs of the machine. Where the runtime may not tell (`--allow-sys=cpus`), those this process may use: fewer if it is pinned
 * or has a CPU limit, which says nothing about how many connections the node must track.
 */
export function cpuCount(): number {
  const allowed = Deno.permissions.querySync({ name: "sys", kind: "cpus" }).state === "granted";
  return Math.max(allowed ? cpus().length : 0, navigator.hardwareConcurrency, 1);
}
