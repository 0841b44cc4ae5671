/**
 * Packet counters of the kernel that rules of iptables add to (`-m nfacct`), by the program `nfacct`.
 *
 * @module
 */
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

/** Some counters, which the rules of both families add to. */
export class NfacctCounters {
  readonly #exec: Exec;
  readonly #names: readonly string[];
  #making: Promise<void> | undefined;

  constructor(exec: Exec, names: readonly string[]) {
    this.#exec = exec;
    this.#names = names;
  }

  /**
   * Makes missing counters; existing ones do not change. Both families at once make them once.
   *
   * @throws {ExecError} if they cannot be made
   */
  ensure(): Promise<void> {
    return this.#making ??= this.#make().finally(() => {
      this.#making = undefined;
    });
  }

  /**
   * Name → packets, of all counters of the kernel.
   *
   * @throws {ExecError} if they cannot be read
   */
  read(): Promise<ReadonlyMap<string, number>> {
    return readCounters(this.#exec);
  }

  async #make(): Promise<void> {
    const found = await readCounters(this.#exec);
    const missing = this.#names.filter((name) => !found.has(name));
    await Promise.all(missing.map((name) => runOk(this.#exec, ["nfacct", "add", name])));
  }
}
