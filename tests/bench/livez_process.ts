/**
 * Asks kproxy whether it lives, again and again: `livez_process.ts URL` prints, for each answer, how many milliseconds it took; after
 * `TIMEOUT_MS` without one that many. One at a time, as a kubelet does.
 *
 * @module
 */
import { writeLine } from "../../tools/output.ts";

const EVERY_MS = 10;
const TIMEOUT_MS = 120_000;

if (import.meta.main) {
  const [url = ""] = Deno.args;
  for (;;) {
    const fromMs = performance.now();
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
      await response.body?.cancel();
      if (response.status !== 200) writeLine(String(TIMEOUT_MS));
    } catch {
      // Not there yet, or no longer: how long that took is what counts.
    }
    writeLine((performance.now() - fromMs).toFixed(1));
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}
