/**
 * Ending a program that a test started and that may have ended by itself.
 *
 * @module
 */

/** Sends a signal to a child; nothing happens if it has ended already. */
export function signalChild(child: Deno.ChildProcess, signal: Deno.Signal = "SIGKILL"): void {
  try {
    child.kill(signal);
  } catch (error) {
    // TypeError: the runtime knows that it has ended; NotFound: only the kernel does so far.
    if (!(error instanceof TypeError || error instanceof Deno.errors.NotFound)) throw error;
  }
}
