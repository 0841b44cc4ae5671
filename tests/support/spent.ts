/**
 * Measures the time of work, on a machine that may stall or give its processors to other programs.
 *
 * @module
 */
import process from "node:process";

/**
 * Starts to measure; the returned function yields the milliseconds since then. Of wall time and this process' CPU time,
 * the shorter one counts: while others have the processors, the wall clock goes on and CPU time does not. Only for work that
 * this process does itself, without waiting.
 */
export function startWork(): () => number {
  const [startMs, before] = [performance.now(), process.cpuUsage()];
  return () => {
    const { user, system } = process.cpuUsage(before);
    return Math.min(performance.now() - startMs, (user + system) / 1000);
  };
}
