/**
 * How long work took, on a machine that may stand still meanwhile or give its processors to others.
 *
 * @module
 */
import process from "node:process";

/**
 * Begins to measure; the function that is returned tells the milliseconds since then. Of the clock and the processor time of this
 * process, the shorter one counts: while others have the processors the clock goes on and the processor time does not. Only for work that
 * this process does itself, without waiting.
 */
export function startWork(): () => number {
  const [startMs, before] = [performance.now(), process.cpuUsage()];
  return () => {
    const { user, system } = process.cpuUsage(before);
    return Math.min(performance.now() - startMs, (user + system) / 1000);
  };
}
