/**
 * What processes cost, as `/proc` tells it.
 *
 * @module
 */
/** Clock ticks of `/proc/PID/stat`. */
export const TICK_MS = 10;

/** CPU time of a process, and of all its children that have ended. */
export interface CpuTicks {
  readonly user: number;
  readonly system: number;
  readonly childUser: number;
  readonly childSystem: number;
}

/** CPU times in a process's `stat`; all 0 if there is none. */
export function cpuTicks(stat: string): CpuTicks {
  // After the name, which may hold blanks: state is field 0, utime, stime, cutime and cstime are 11 to 14.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15).map(Number);
  return { user, system, childUser, childSystem };
}

/** A field of a process's `status` that is told in kB, in megabytes (10⁶ bytes); NaN without it. */
export function statusMb(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1024 / 1e6;
}

/** What a running process holds that is no file's, in megabytes (10⁶ bytes). */
export async function anonymousMemory(pid: number): Promise<number> {
  return statusMb(await Deno.readTextFile(`/proc/${pid}/status`), "RssAnon");
}
