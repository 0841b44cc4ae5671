/**
 * Packet counters of the kernel that rules of iptables add to (`-m nfacct`), by the program `nfacct`.
 *
 * @module
 */
import { ExecError } from "../errors.ts";
import { type Exec, runOk } from "./exec.ts";

/** `{ pkts = 00000000000000000012, bytes = 00000000000000000720 } = NAME;`, one a line. */
const COUNTER_REGEXP = /^\{ pkts = (\d+), bytes = \d+ \} = (\S+);$/gm;

/**
 * Name of each counter → packets.
 *
 * @throws {ExecError} if the program is not there, or the kernel has no such counters
 */
export async function readCounters(exec: Exec): Promise<ReadonlyMap<string, number>> {
  const text = await runOk(exec, ["nfacct", "list"]);
  return new Map(
    [...text.matchAll(COUNTER_REGEXP)].map(([, packets, name = ""]) => [name, Number(packets)]),
  );
}

/**
 * Makes those counters that are not there; nothing of a counter that is there changes.
 *
 * @throws {ExecError} if they cannot be made
 */
export async function makeCounters(exec: Exec, names: readonly string[]): Promise<void> {
  const found = await readCounters(exec);
  for (const name of names) {
    if (found.has(name)) continue;
    try {
      await runOk(exec, ["nfacct", "add", name]);
    } catch (error) {
      // The proxier of the other family makes the same ones at the same time.
      if (!(error instanceof ExecError) || !(await readCounters(exec)).has(name)) throw error;
    }
  }
}
