/**
 * Ends programs that may have ended by themselves.
 *
 * @module
 */

/** Sends a signal to a child; nothing happens if it has ended already. */
export function signalChild(child: Deno.ChildProcess, signal: Deno.Signal = "SIGKILL"): void {
  unlessEnded(() => child.kill(signal));
}

/** Kills programs; nothing happens to those that have ended already. `pids` is what `ip netns pids` prints: one in each line. */
export function killPrograms(pids: string): void {
  for (const pid of pids.split("\n").filter((line) => line !== "")) {
    unlessEnded(() => Deno.kill(Number(pid), "SIGKILL"));
  }
}

function unlessEnded(kill: () => void): void {
  try {
    kill();
  } catch (error) {
    // TypeError: the runtime knows that the process has ended; NotFound: only the kernel knows so far.
    if (!(error instanceof TypeError || error instanceof Deno.errors.NotFound)) throw error;
  }
}
