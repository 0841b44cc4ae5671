/**
 * What programs cost that this process has started.
 *
 * @module
 */

/** Clock ticks of `/proc/self/stat`. */
const TICK_MS = 10;

/** CPU time of all programs that this process has waited for, and of those that they have, in milliseconds. */
export async function programsMs(): Promise<number> {
  const stat = await Deno.readTextFile("/proc/self/stat");
  // After the name, which may hold blanks; cutime and cstime.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return TICK_MS * (Number(fields[13]) + Number(fields[14]));
}
