/**
 * Asks kproxy whether it lives, again and again, one question at a time as a kubelet does: `livez_process.ts URL PID` prints for each
 * how many milliseconds the answer took, and for how many of these the thread that answers was computing: what it took on a machine
 * with nothing else to do.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";
import { cpuTicks, TICK_MS } from "./process_costs.ts";

const EVERY_MS = 10;
const TIMEOUT_MS = 120_000;

/** Processor time of a process's first thread so far. */
function computedMs(pid: string): number {
  const task = `/proc/${pid}/task/${pid}`;
  try {
    const [nanoseconds = "NaN"] = Deno.readTextFileSync(`${task}/schedstat`).split(" ");
    return Number(nanoseconds) / 1e6;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  // The user-mode Linux counts in ticks only.
  const { user, system } = cpuTicks(Deno.readTextFileSync(`${task}/stat`));
  return (user + system) * TICK_MS;
}

if (import.meta.main) {
  const [url = "", pid = ""] = Deno.args;
  for (;;) {
    const [fromMs, computedFromMs] = [performance.now(), computedMs(pid)];
    const { status, body } = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    await body?.cancel();
    const isAlive = status === 200;
    const tookMs = isAlive ? performance.now() - fromMs : TIMEOUT_MS;
    writeLine(`${tookMs} ${isAlive ? computedMs(pid) - computedFromMs : TIMEOUT_MS}`);
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}
