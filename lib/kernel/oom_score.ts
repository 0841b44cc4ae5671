/**
 * How soon the kernel ends this process when memory runs out, through `choom`, because `/proc` is closed to the program.
 *
 * @module
 */
import { type Exec, runOk } from "./exec.ts";
import { QUICK_LIMIT_MS } from "./time_limit.ts";

/**
 * Sets the adjustment of a process, from -1000 (never end it) to 1000. The programs it starts inherit it.
 *
 * @throws {ExecError} without the program, or without CAP_SYS_RESOURCE for a value below the present one
 */
export async function setOomScoreAdjustment(exec: Exec, pid: number, adjustment: number): Promise<void> {
  await runOk(exec, ["choom", "-n", String(adjustment), "-p", String(pid)], {
    timeoutMs: QUICK_LIMIT_MS,
  });
}
